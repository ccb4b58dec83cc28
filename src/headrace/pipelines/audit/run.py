"""Runs the audit of an archive: a report in HTML and JSON, and an exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.core.wording import counted
from headrace.pipelines.archive.job import raw_table
from headrace.pipelines.archive.reading import seam
from headrace.pipelines.archive.transform import below, of_topic
from headrace.pipelines.ledger import Done, Ledger, check_written
from headrace.pipelines.page import Section, cards, lines, page, paragraph, table
from headrace.pipelines.registry import Say
from headrace.pipelines.running import read_batch
from headrace.pipelines.session import spark_session
from headrace.pipelines.settings import StreamSettings
from headrace.pipelines.triage.run import write_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MISSING_SHOWN = 20


@dataclass(frozen=True, slots=True)
class AuditSettings(StreamSettings):
    # The archive's instance, where its settings gave it a name of its own.
    archive: str = ""
    report: str = "audit.html"

    def check_checkpoint(self) -> None:
        """It has none."""

    @property
    def instance(self) -> str:
        return self.archive or self.name or f"archive-{self.topic}"


Settings = AuditSettings


class Verdict(NamedTuple):
    """One partition, judged."""

    topic: str
    partition: int
    # In the topic, below the place where the lake ends.
    published: int
    arrived: int
    missing: int
    duplicates: int
    holes: int
    # Published and not yet due: behind the lake's end.
    waiting: int


class Audit(NamedTuple):
    verdicts: list[Verdict]
    missing_samples: list[str]
    hours: list[dict[str, Any]]

    @property
    def is_complete(self) -> bool:
        return not any(each.missing or each.duplicates for each in self.verdicts)


def run(settings: AuditSettings, *, master: str | None, say: Say) -> int:
    with spark_session(settings, master) as spark:
        found = audit(spark, settings)
    write_text(settings.report, report_of(found, settings))
    write_text(f"{settings.report.removesuffix('.html')}.json", _json(found))
    total = sum(each.arrived for each in found.verdicts)
    missing = sum(each.missing for each in found.verdicts)
    duplicates = sum(each.duplicates for each in found.verdicts)
    say(
        f"{counted(total, 'row')} arrived, {missing:,} missing, "
        f"{counted(duplicates, 'duplicate')}: {settings.report}"
    )
    return 0 if found.is_complete else 1


def audit(spark: SparkSession, settings: AuditSettings) -> Audit:
    check_written(settings.lake, settings.format, settings.instance, settings.storage)
    ends = seam(settings)
    columns = ("topic", "partition", "offset", "timestamp", "batch")
    # An archive of several topics is audited one by one.
    lake = below(raw_table(settings).read(spark, columns=columns), ends)
    lake = of_topic(lake, settings.topic)
    topic = read_batch(spark, settings, columns="topic,partition,offset,timestamp")
    batches = Ledger(settings.lake, settings.format, settings.instance, settings.storage).batches()
    return judge(spark, topic, lake, ends, batches)


def judge(
    spark: SparkSession,
    topic: DataFrame,
    lake: DataFrame,
    ends: dict[str, int],
    batches: Sequence[Done],
) -> Audit:
    """Set the topic beside the lake. `ends` is where the lake says it ends."""
    from headrace.pipelines.audit import transform

    due = below(topic, ends)
    everything = _by_place(transform.published(topic))
    published = _by_place(transform.published(due))
    arrived = _by_place(transform.arrived(lake))
    lost = transform.missing(due, lake).persist()
    try:
        missing = _by_place(lost.groupBy(*transform.PLACE).count())
        samples = lost.orderBy(*transform.PLACE, "offset").limit(MISSING_SHOWN).collect()
    finally:
        lost.unpersist()
    done = spark.createDataFrame(
        [(each.batch, each.done_at) for each in batches], "batch long, done_at timestamp"
    )
    hours = [row.asDict() for row in transform.latency(lake, done).collect()]
    verdicts = []
    for place in sorted({*everything, *arrived}):
        total = everything.get(place, {}).get("rows", 0)
        there = arrived.get(place, {})
        verdicts.append(
            Verdict(
                *place,
                published=published.get(place, {}).get("rows", 0),
                arrived=there.get("rows", 0),
                missing=missing.get(place, {}).get("count", 0),
                duplicates=there.get("duplicates", 0),
                holes=there.get("holes", 0),
                waiting=total - published.get(place, {}).get("rows", 0),
            )
        )
    return Audit(verdicts, [f"{r.topic}:{r.partition}:{r.offset}" for r in samples], hours)


def _by_place(frame: DataFrame) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row.topic, row.partition): row.asDict() for row in frame.collect()}


def report_of(found: Audit, settings: AuditSettings) -> str:
    verdict = (
        paragraph("Every record that the topic still has is in the table, once.", "good")
        if found.is_complete
        else paragraph("The table does not hold each record once.", "wrong")
    )
    facts = [
        ("rows arrived", sum(each.arrived for each in found.verdicts)),
        ("missing", sum(each.missing for each in found.verdicts)),
        ("duplicates", sum(each.duplicates for each in found.verdicts)),
        ("waiting", sum(each.waiting for each in found.verdicts)),
    ]
    hours = [(_hour(row["hour"]), row) for row in found.hours]
    curves = [
        (name, [(label, float(row[name])) for label, row in hours])
        for name in ("p50", "p95", "p99")
    ]
    sections = [
        Section("", verdict + cards(facts)),
        Section(
            "From publishing to the table, in seconds",
            lines(curves, "latency by hour", "s")
            + table(
                ["hour", "rows", "p50", "p95", "p99", "longest"],
                [
                    [label, *(row[name] for name in ("rows", "p50", "p95", "p99", "longest"))]
                    for label, row in hours
                ],
            ),
        ),
        Section("Partitions", table(list(Verdict._fields), [list(v) for v in found.verdicts])),
    ]
    if found.missing_samples:
        sections.append(
            Section("Missing", table(["record"], [[each] for each in found.missing_samples]))
        )
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return page(f"Audit of {settings.topic}", f"{settings.lake}, made {made}", sections)


def _json(found: Audit) -> str:
    document = {
        "complete": found.is_complete,
        "partitions": [each._asdict() for each in found.verdicts],
        "missing_samples": found.missing_samples,
        "hours": [row | {"hour": _hour(row["hour"])} for row in found.hours],
    }
    return json.dumps(document, indent=2) + "\n"


def _hour(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:00")
