"""Replay: chosen records, changed, once each, though it is cut short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.pipelines.conftest import record, records
from tests.spark.conftest import Topic

from headrace.core.errors import InvalidArgument
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
    ],
)
def test_wrong_settings_of_a_replay_are_named(changes: dict[str, Any], message: str) -> None:
    values = read_toml(str(EXAMPLES / "replay.toml")) | changes
    with pytest.raises(InvalidArgument, match=message):
        settings_of("replay", values)


def test_a_replay_that_is_cut_short_goes_on_and_writes_each_record_once(
    spark: SparkSession, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.publish([json.dumps({"id": n, "total": n}).encode() for n in range(60)])
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
    assert said[-1] == f"49 records written to {target.name}", said
    options = {"kafka.isolation.level": "read_committed", "subscribe": target.name}
    rows = read_batch(spark, settings, **options).collect()
    found = sorted(json.loads(bytes(row.value))["ID"] for row in rows)
    assert found == list(range(11, 60))
    origins = {bytes(header.value) for row in rows for header in row.headers}
    assert len(origins) == 49 and all(o.startswith(topic.name.encode()) for o in origins)
    # Nothing is left of it at the node, and one that begins anew is another replay.
    # A client that nobody holds ends, and then its call is never answered.
    admin = AdminClient({"bootstrap.servers": topic.node.bootstrap})
    groups = admin.list_consumer_groups().result(60).valid
    assert not [each.group_id for each in groups if target.name in each.group_id]
    (tmp_path / "state.json").unlink()
    assert run(settings, master=None, say=said.append) == 0
    target.consume(98)


def test_offsets_that_a_lake_does_not_have_are_not_looked_at(spark: SparkSession) -> None:
    there = [(0, 9_000_001), (0, 9_000_005), (1, 7)]
    frame = records(spark, [record(b"x", offset=n, partition=p, topic="a") for p, n in there])
    assert spans(frame) == {("a", 0): (9_000_001, 9_000_006), ("a", 1): (7, 8)}
