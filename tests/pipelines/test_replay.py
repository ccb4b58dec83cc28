"""Replay: chosen records, changed, once each, though it is cut short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.pipelines.conftest import record, records
from tests.spark.conftest import Topic

from headrace.core.errors import InvalidArgument
from headrace.core.wording import shown_bytes
from headrace.pipelines.registry import pipeline_named, settings_of
from headrace.pipelines.replay.plan import Plan, load_plan
from headrace.pipelines.replay.transform import spans
from headrace.pipelines.running import read_batch
from headrace.pipelines.settings import read_toml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "pipelines"


def test_chunks_cover_every_offset_once() -> None:
    plan = Plan({("a", 0): (5, 18), ("a", 1): (0, 3)}, 8, "x")
    seen: list[tuple[str, int, int]] = []
    for chunk in range(plan.chunks):
        for (topic, partition), (start, end) in plan.ranges(chunk).items():
            assert 0 < end - start <= 4
            seen += [(topic, partition, offset) for offset in range(start, end)]
    assert sorted(seen) == [("a", 0, n) for n in range(5, 18)] + [("a", 1, n) for n in range(3)]
    assert plan.chunks == 4 and plan.total == 16


def test_a_plan_is_read_back_and_another_replays_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "folder" / "state.json")
    assert load_plan(path, "x") is None
    plan = Plan({("a", 0): (5, 18)}, 8, "x", chunk=2, records=7)
    plan.save(path)
    assert load_plan(path, "x") == plan
    with pytest.raises(InvalidArgument, match="is of another replay"):
        load_plan(path, "y")
    Path(path).write_text("[]")
    with pytest.raises(InvalidArgument, match="is not the state of a replay"):
        load_plan(path, "x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"to_topic": ""}, "to_topic is missing"),
        ({"to_topic": "orders"}, "to_topic is the topic that is read"),
        ({"source": "lake"}, "lake is missing"),
        ({"start": "yesterday"}, "start: 'yesterday' is not a moment"),
        ({"rate": -1}, "rate must be at least 0"),
        ({"keep": ["offset"]}, "keep takes timestamp, key, headers, partition, and not 'offset'"),
    ],
)
def test_wrong_settings_of_a_replay_are_named(changes: dict[str, Any], message: str) -> None:
    values = read_toml(str(EXAMPLES / "replay.toml")) | changes
    with pytest.raises(InvalidArgument, match=message):
        settings_of("replay", values)


def test_a_replay_that_is_cut_short_goes_on_and_writes_each_record_once(
    spark: SparkSession, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.publish([json.dumps({"id": n, "total": n + 0.5}).encode() for n in range(60)])
    target = Topic(topic.node, f"{topic.name}-again")
    target.create(2)
    values = read_toml(str(EXAMPLES / "replay.toml")) | {
        "servers": topic.node.bootstrap,
        "topic": topic.name,
        "to_topic": target.name,
        "state": str(tmp_path / "state.json"),
        "chunk_rows": 30,
        "value": "upper(text)",
        "rate": 0,
    }
    settings = settings_of("replay", values)
    real = Plan.save

    def save(self: Plan, path: str) -> None:
        if self.chunk == 1:
            # The chunk is written; that it is, nobody learns.
            raise ConnectionAbortedError("died here")
        real(self, path)

    run = pipeline_named("replay").run
    with monkeypatch.context() as patched:
        patched.setattr(Plan, "save", save)
        with pytest.raises(ConnectionAbortedError):
            run(settings, master=None, say=lambda _: None)
    said: list[str] = []
    assert run(settings, master=None, say=said.append) == 0
    size = sum(len(json.dumps({"id": n, "total": n + 0.5})) for n in range(10, 60))
    assert said[-1] == (f"60 records read, 50 written to {target.name}, {shown_bytes(size)}"), said
    options = {"kafka.isolation.level": "read_committed", "subscribe": target.name}
    rows = read_batch(spark, settings, **options).collect()
    found = sorted(json.loads(bytes(row.value))["ID"] for row in rows)
    assert found == list(range(10, 60))
    origins = {bytes(header.value) for row in rows for header in row.headers}
    assert len(origins) == 50 and all(o.startswith(topic.name.encode()) for o in origins)
    # Nothing is left of it at the node, and one that begins anew is another replay.
    # A client that nobody holds ends, and then its call is never answered.
    admin = AdminClient({"bootstrap.servers": topic.node.bootstrap})
    groups = admin.list_consumer_groups().result(60).valid
    assert not [each.group_id for each in groups if target.name in each.group_id]
    (tmp_path / "state.json").unlink()
    assert run(settings, master=None, say=said.append) == 0
    target.consume(100)


def _settings(topic: Topic, target: Topic, state: Path, **changes: Any) -> Any:
    values = read_toml(str(EXAMPLES / "replay.toml")) | {
        "servers": topic.node.bootstrap, "topic": topic.name, "to_topic": target.name,
        "state": str(state), "rate": 0, "where": "",
    }  # fmt: skip
    return settings_of("replay", values | changes)


def test_a_replay_keeps_what_it_is_told_to_keep(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    at_ms = 1_780_000_000_123
    producer = Producer({"bootstrap.servers": topic.node.bootstrap})
    for partition in (0, 1):
        producer.produce(
            topic.name, b"order", b"one key", partition, timestamp=at_ms, headers={"shop": b"north"}
        )
    assert producer.flush(30) == 0
    same = Topic(topic.node, f"{topic.name}-same")
    same.create(2, **{"retention.ms": "-1"})
    bare = Topic(topic.node, f"{topic.name}-bare")
    bare.create(1)
    run = pipeline_named("replay").run
    everything = ["timestamp", "key", "headers", "partition"]
    # A topic with too few partitions is noticed before anything is written to it.
    said: list[str] = []
    with pytest.raises(InvalidArgument, match="has 1 partition, and a record of partition 1"):
        run(
            _settings(topic, bare, tmp_path / "bare.json", keep=everything),
            master=None,
            say=said.append,
        )
    bare.consume(0)
    run(
        _settings(topic, same, tmp_path / "same.json", keep=everything),
        master=None,
        say=said.append,
    )
    assert said[-1] == f"2 records read, 2 written to {same.name}, 24 B"
    found = same.consume(2)
    assert sorted(message.partition() or 0 for message in found) == [0, 1]
    assert {message.timestamp()[1] for message in found} == {at_ms}
    assert {message.key() for message in found} == {b"one key"}
    headers = [dict(message.headers() or ()) for message in found]
    assert all(each["shop"] == b"north" for each in headers)
    # And nothing but the value, where nothing is named.
    run(_settings(topic, bare, tmp_path / "none.json", keep=[]), master=None, say=said.append)
    for message in bare.consume(2):
        assert message.key() is None and message.timestamp()[1] > at_ms
        assert list(dict(message.headers() or ())) == ["headrace-replayed-from"]


def test_sql_that_is_wrong_is_one_line_and_writes_nothing(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.publish([b'{"total": 9.5}', b'{"total": 10.5}'], partition=0)
    target = Topic(topic.node, f"{topic.name}-again")
    target.create(1)
    run = pipeline_named("replay").run
    for changes, message in (
        ({"where": "total >"}, r"where is not SQL that fits: \[PARSE_SYNTAX_ERROR\]"),
        ({"value": "upper(txt)"}, r"value is not SQL that fits: \[UNRESOLVED_COLUMN"),
        (
            {"where": "get_json_object(text, '$.total') > 10"},
            r"where, key or value does not fit a record: \[CAST_INVALID_INPUT\].*use try_cast",
        ),
    ):
        settings = _settings(topic, target, tmp_path / "state.json", **changes)
        with pytest.raises(InvalidArgument, match=message) as raised:
            run(settings, master=None, say=lambda _: None)
        assert "\n" not in str(raised.value) and "at org." not in str(raised.value)
        (tmp_path / "state.json").unlink(missing_ok=True)
    target.consume(0)


def test_offsets_that_a_lake_does_not_have_are_not_looked_at(spark: SparkSession) -> None:
    there = [(0, 9_000_001), (0, 9_000_005), (1, 7)]
    frame = records(spark, [record(b"x", offset=n, partition=p, topic="a") for p, n in there])
    assert spans(frame) == {("a", 0): (9_000_001, 9_000_006), ("a", 1): (7, 8)}
