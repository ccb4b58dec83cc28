"""Pipelines on a real node: the archive, the union with the live topic, the audit,
the rollup and its status, with the settings that the documentation shows."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from click.testing import CliRunner
from tests.pipelines.conftest import NOON, NOON_MS, metric
from tests.spark.conftest import Topic

import headrace
from headrace.cli.main import cli
from headrace.pipelines.__main__ import main
from headrace.pipelines.archive.job import ArchiveJob, ArchiveSettings, raw_table
from headrace.pipelines.archive.reading import read_union, seam, starting_offsets
from headrace.pipelines.registry import pipeline_named, settings_of
from headrace.pipelines.running import read_batch
from headrace.pipelines.settings import read_toml
from headrace.pipelines.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "pipelines"


def _values(name: str, topic: Topic, tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """The example's settings, with this test's places."""
    own = {"servers": topic.node.bootstrap, "topic": topic.name}
    if name != "triage":
        own |= {"lake": str(tmp_path / "lake")}
    return read_toml(str(EXAMPLES / f"{name}.toml")) | own | changes


def _run(values: dict[str, Any]) -> tuple[int, list[str]]:
    said: list[str] = []
    name = values["pipeline"]
    code = pipeline_named(name).run(settings_of(name, values), master=None, say=said.append)
    return code, said


def test_an_archive_and_the_live_topic_are_one_without_gap_or_overlap(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    orders = [
        json.dumps({"id": n, "customer": f"c{n}", "total": n / 2}).encode() for n in range(60)
    ]
    topic.publish([*orders, b"not an order", b"{"])
    values = _values("archive", topic, tmp_path, trigger="once", rows_per_batch_max=40)
    code, said = _run(values)
    assert code == 0 and "62 records archived in 2 batches" in said[-2], said
    assert "2 could not be decoded" in said[-1]
    settings = settings_of("archive", values)
    assert isinstance(settings, ArchiveSettings)
    typed = open_table(
        settings.table_path("typed"),
        settings.format,
        "_date string, _topic string, _partition int, _offset long, id long, total double",
        partition_by=("_date",),
        time="_timestamp",
    )
    assert typed.read(spark).selectExpr("count(*)", "sum(total)").first() == (60, 885.0)
    # What comes after the last batch is in the topic alone.
    topic.publish(orders[:10])
    union = read_union(spark, settings)
    assert union.count() == 72
    assert union.select("topic", "partition", "offset").distinct().count() == 72
    _check_compaction(spark, settings)
    _check_audit(topic, tmp_path)
    _check_seam(spark, topic, settings)


def _check_seam(spark: SparkSession, topic: Topic, settings: ArchiveSettings) -> None:
    """Each record is on one side of the seam, whatever happens to either."""
    # A batch that is in the lake and not in the ledger: its process was killed there.
    live = read_batch(spark, settings, startingOffsets=starting_offsets(seam(settings)))
    assert ArchiveJob(settings).take(live, 99, "killed").rows_in == 10
    # The topic has forgotten what is in the lake, and has a partition more.
    topic.delete_before({0: 20, 1: 20})
    topic.grow(3)
    topic.publish([b"{}"] * 5, partition=2)
    places = read_union(spark, settings).select("partition", "offset").collect()
    assert sorted(tuple(each) for each in places) == [
        *((0, n) for n in range(36)),
        *((1, n) for n in range(36)),
        *((2, n) for n in range(5)),
    ]


AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": ["null", "double"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def _avro(number: int) -> bytes:
    stream = io.BytesIO()
    row = {"id": number, "total": None if number == 7 else number / 2, "at": NOON}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO_SCHEMA), row)
    return stream.getvalue()


def test_an_archive_of_avro_is_typed_and_is_replayed_from_the_lake(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.publish([*(_avro(number) for number in range(20)), b"not Avro"])
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO_SCHEMA))
    columns = "id BIGINT, total DOUBLE, at TIMESTAMP"
    values = _values(
        "archive", topic, tmp_path, trigger="once", format="parquet",
        value_format="avro", value_schema=columns, avro_schema=str(schema),
    )  # fmt: skip
    code, said = _run(values)
    assert code == 0 and "1 could not be decoded" in said[-1], said
    typed = spark.read.parquet(str(tmp_path / "lake" / "typed"))
    rows = {row.id: row for row in typed.collect()}
    assert sorted(rows) == list(range(20))
    assert rows[7].total is None and rows[8].total == 4.0
    assert rows[0].at.astimezone(UTC) == NOON
    # The lake is all that is left of them.
    topic.delete_before({0: 11, 1: 10})
    again = Topic(topic.node, f"{topic.name}-again")
    again.create(1)
    code, said = _run(
        _values(
            "replay", topic, tmp_path, source="lake", format="parquet", to_topic=again.name,
            state=str(tmp_path / "state.json"), where="length(value) < 20", rate=0, chunk_rows=8,
            start="2020-01-01T00:00:00+00:00",
        )
    )  # fmt: skip
    assert code == 0 and said[-1].startswith(f"21 records read, 21 written to {again.name}, "), said
    found = sorted(message.value() or b"" for message in again.consume(21))
    assert found == sorted([*(_avro(number) for number in range(20)), b"not Avro"])
    origins = [dict(message.headers() or ()) for message in again.consume(21)]
    assert all(topic.name in str(each["headrace-replayed-from"]) for each in origins)


def _check_compaction(spark: SparkSession, settings: ArchiveSettings) -> None:
    table = raw_table(settings)
    before = len(table.files())
    table.compact(spark)
    assert before > len(table.files()) == 1
    assert table.read(spark).select("partition", "offset").distinct().count() == 62


def _check_audit(topic: Topic, tmp_path: Path) -> None:
    report = tmp_path / "audit.html"
    code, said = _run(_values("audit", topic, tmp_path, report=str(report)))
    assert code == 0 and said == [
        f"62 rows arrived, 0 missing, 0 duplicates, 0 hours changed: {report}"
    ]
    page = report.read_text()
    assert "Every record that the topic still has is in the table, once." in page
    assert "<svg" in page and "http" not in page
    found = json.loads((tmp_path / "audit.json").read_text())
    assert sum(each["waiting"] for each in found["partitions"]) == 10
    assert found["hours"][0]["rows"] == 62 and found["hours"][0]["p99"] > 0
    # Both sides are read in full, and say the same of each partition.
    assert sum(each["records"] for each in found["contents"]) == 62
    assert all(int(each["in_topic"], 16) for each in found["contents"])


def test_a_directory_that_no_process_has_open_is_archived(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    values = read_toml(str(EXAMPLES / "archive.toml")) | {
        "servers": "", "path": data, "trigger": "once", "lake": str(tmp_path / "lake"),
        "value_format": "raw", "value_schema": "",
    }  # fmt: skip
    with headrace.open(data) as handle:
        handle.create_topic("orders", partitions=2)
    config = tmp_path / "archive.toml"
    _write_toml(config, values | {"trigger": "10s", "lake": "overruled"})
    for run in (1, 2):
        with headrace.open(data) as handle:
            handle.publish_many("orders", [f"order {number}" for number in range(50)])
        # As spark-submit runs it, with what `headrace pipeline run` takes.
        changes = ["--once", "--set", f"lake={values['lake']}"]
        assert main(["archive", "--config", str(config), *changes]) == 0
        assert "50 records archived" in capsys.readouterr().err
        settings = settings_of("archive", values)
        assert isinstance(settings, ArchiveSettings)
        assert len(raw_table(settings).rows()) == 50 * run


def test_a_rollup_follows_a_topic_and_its_status_tells_how_far_it_is(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.publish([metric("cpu", NOON_MS + n * 60_000, float(n)) for n in range(40)] + [b"bad"])
    windows = Topic(topic.node, f"{topic.name}-windows")
    windows.create(1)
    values = _values("rollup", topic, tmp_path, trigger="once", publish_to=windows.name)
    assert _run(values)[0] == 0
    _check_windows(spark, windows)
    topic.publish([b"more", b"to do"], transactional_id="more")
    config = tmp_path / "rollup.toml"
    found = _status(config, values)
    assert (found["rows_in"], found["rows_out"], found["rows_bad"]) == (41, 40, 1)
    # In each partition a record, and the mark that its transaction was committed.
    assert found["lag"] == 4 and found["last_batch"] == 0
    assert found["rows_per_second"] == pytest.approx(41 / found["seconds"], rel=0.05, abs=1)
    several = values | {"servers": f"{topic.node.bootstrap}, {topic.node.bootstrap}"}
    assert _status(config, several)["lag"] == 4
    assert _status(config, values | {"topic": "gone", "name": f"rollup-{topic.name}"}) == found | {
        "lag": None
    }
    # A run that finds what the last one left goes on from there.
    code, said = _run(values)
    assert code == 0 and said[-1].startswith("2 rows in = 0 rolled + 0 late + 2 bad")
    assert _status(config, values)["lag"] == 0
    # One that begins anew publishes anew, though the numbers of its batches are the same.
    shutil.rmtree(values["lake"])
    assert _run(values)[0] == 0
    windows.consume(2 * (29 + 5))


def _write_toml(config: Path, values: dict[str, Any]) -> None:
    config.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items()))


def _status(config: Path, values: dict[str, Any]) -> dict[str, Any]:
    _write_toml(config, values)
    result = CliRunner().invoke(cli, ["pipeline", "status", "--config", str(config), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def _check_windows(spark: SparkSession, windows: Topic) -> None:
    """The watermark is at 29 minutes: 29 minutes and 5 times 5 are published."""
    options = {"servers": windows.node.bootstrap, "subscribe": windows.name}
    rows = spark.read.format("headrace").options(**options).load().collect()
    found = [json.loads(bytes(row.value)) for row in rows]
    assert {bytes(row.key) for row in rows} == {b"cpu"}
    by_resolution = Counter(each["resolution"] for each in found)
    assert by_resolution == {"1m": 29, "5m": 5}
    assert [each["mean"] for each in found if each["resolution"] == "5m"][:1] == [2.0]
