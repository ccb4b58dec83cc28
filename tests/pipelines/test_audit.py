"""The audit finds what is missing, what came twice, what was changed, and how long it took."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.conftest import NOON, record, records

from headrace.pipelines.audit import run as auditing
from headrace.pipelines.audit.report import report_of
from headrace.pipelines.audit.run import AuditSettings, judge, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE = "batch long, done_at timestamp"


def test_an_audit_finds_what_is_missing_and_what_came_twice(spark: SparkSession) -> None:
    topic = records(
        spark,
        [record(b"x", offset=n, partition=p, topic="orders") for p in (0, 1) for n in range(10)],
    )
    # Partition 0 lost offset 3 and has offset 5 twice; partition 1 ends at 8.
    there = [(0, n) for n in range(10) if n != 3] + [(0, 5)] + [(1, n) for n in range(8)]
    lake = records(
        spark, [record(b"x", offset=n, partition=p, topic="orders") for p, n in there]
    ).selectExpr("*", "cast(0 as long) as batch")
    done = spark.createDataFrame([(0, NOON + timedelta(seconds=4))], DONE)
    ends = {"orders/0": 10, "orders/1": 8}
    found = judge(topic, lake, ends, done, contents=topic)
    assert not found.is_complete
    assert [tuple(each) for each in found.verdicts] == [
        ("orders", 0, 10, 10, 1, 1, 1, 0),
        ("orders", 1, 8, 8, 0, 0, 0, 2),
    ]
    assert found.missing_samples == ["orders:0:3"]
    assert [tuple(each) for each in found.duplicates] == [("orders", 0, 5, 2)]
    # What both have is the same; that a record is missing or there twice is said elsewhere.
    assert found.changed == []
    assert found.contents is not None
    assert [each[:4] for each in found.contents] == [
        ("orders", 0, "2026-11-15 12:00", 10), ("orders", 1, "2026-11-15 12:00", 8),
    ]  # fmt: skip
    assert [(row["rows"], row["p50"], row["p99"]) for row in found.hours] == [(18, 4.0, 4.0)]
    page = report_of(found, topic="orders", lake="lake")
    assert "The table does not hold each record once" in page and "orders:0:3" in page
    assert '<td class="n">4s</td>' in page


def test_an_audit_notices_whatever_was_changed_and_says_where(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour_ms = 3_600_000
    header = [("h", b"1")]

    def row(partition: int, **changes: Any) -> tuple[Any, ...]:
        made = record(b"v", partition=partition, key=b"k", topic="orders")
        names = ("key", "value", "topic", "partition", "offset", "timestamp", "type", "headers")
        return tuple((dict(zip(names, made, strict=True)) | {"headers": header} | changes).values())

    same = [row(0, offset=n) for n in range(5)]
    # Each partition has one record that differs in one thing, and one that does not.
    changes: list[dict[str, Any]] = [
        {"value": b"w"}, {"value": None}, {"key": None}, {"key": b""}, {"headers": []},
        {"headers": [("h", None)]}, {"headers": [("h", b"2")]}, {"headers": [*header, *header]},
        {"timestamp": NOON + timedelta(milliseconds=1)},
    ]  # fmt: skip
    places = range(1, len(changes) + 1)
    # A swap of two values: the hour has the same values as before.
    ours = [*same, row(0, offset=5, value=b"a"), row(0, offset=6, value=b"b")]
    ours += [row(p, offset=n) for p in places for n in (0, 1)]
    ours += [row(1, offset=2, timestamp=NOON + timedelta(milliseconds=hour_ms))]
    theirs = [*same, row(0, offset=5, value=b"b"), row(0, offset=6, value=b"a")]
    theirs += [row(p, offset=0) for p in places] + [row(1, offset=2, timestamp=ours[-1][5])]
    theirs += [row(p, offset=1, **each) for p, each in zip(places, changes, strict=True)]
    topic = records(spark, ours)
    lake = records(spark, theirs).selectExpr("*", "cast(0 as long) as batch")
    done = spark.createDataFrame([(0, NOON)], DONE)
    ends = {f"orders/{partition}": 10 for partition in range(len(changes) + 1)}
    found = judge(topic, lake, ends, done, contents=topic)
    assert not found.is_complete and not any(v.missing or v.duplicates for v in found.verdicts)
    assert [(each.partition, each.hour) for each in found.changed] == [
        (partition, "2026-11-15 12:00") for partition in range(len(changes) + 1)
    ]
    assert len(found.contents or ()) == len(changes) + 2

    monkeypatch.setattr(auditing, "audit", lambda *_: found)
    report = tmp_path / "audit.html"
    settings = AuditSettings.from_mapping(
        {"servers": "x:1", "topic": "orders", "lake": "lake", "report": str(report)}
    )
    said: list[str] = []
    assert run(settings, master=None, say=said.append) == 1
    assert said[0] == (
        "changed: orders, partition 0, hour 2026-11-15 12:00 UTC: of 7 records at least one is "
        "not as it is in the topic"
    )
    assert said[-1].endswith(f"0 duplicates, 10 hours changed: {report}")
    written = json.loads((tmp_path / "audit.json").read_text())
    assert [each["changed"] for each in written["contents"]].count(True) == 10
    assert not written["complete"]
