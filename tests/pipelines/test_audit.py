"""The audit finds what is missing, what came twice, and how long it took."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.pipelines.conftest import NOON, record, records

from headrace.pipelines.audit.run import AuditSettings, judge, report_of
from headrace.pipelines.ledger import Done

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    done = Done("archive-orders", 0, "q", 18, 18, 0, 0, None, {}, NOON, NOON + timedelta(seconds=4))
    found = judge(spark, topic, lake, {"orders/0": 10, "orders/1": 8}, [done])
    assert not found.is_complete
    assert [tuple(each) for each in found.verdicts] == [
        ("orders", 0, 10, 10, 1, 1, 1, 0),
        ("orders", 1, 8, 8, 0, 0, 0, 2),
    ]
    assert found.missing_samples == ["orders:0:3"]
    assert [(row["rows"], row["p50"], row["p99"]) for row in found.hours] == [(18, 4.0, 4.0)]
    settings = AuditSettings.from_mapping({"servers": "x:1", "topic": "orders", "lake": "lake"})
    page = report_of(found, settings)
    assert "The table does not hold each record once." in page and "orders:0:3" in page
