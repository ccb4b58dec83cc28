"""Runs the audit of an archive: a report in HTML and JSON, and an exit code."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.core.wording import counted
from headrace.pipelines.archive.job import raw_table
from headrace.pipelines.archive.reading import seam
from headrace.pipelines.archive.transform import below, of_topic
from headrace.pipelines.audit.findings import Audit, Contents, Duplicate, Verdict, shown_hour
from headrace.pipelines.audit.report import json_of, report_of
from headrace.pipelines.ledger import Ledger, check_written
from headrace.pipelines.registry import Say
from headrace.pipelines.running import read_batch
from headrace.pipelines.session import spark_session
from headrace.pipelines.settings import StreamSettings
from headrace.pipelines.triage.run import write_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MISSING_SHOWN = 20
DUPLICATES_SHOWN = 100
CHANGES_SAID = 20
_HOURS_MAX = 253_402_300_800 // 3_600


@dataclass(frozen=True, slots=True)
class AuditSettings(StreamSettings):
    # The archive's instance, where its settings gave it a name of its own.
    archive: str = ""
    report: str = "audit.html"
    # Whether contents are compared too, for which all values of the topic are read.
    contents: bool = True

    def check_checkpoint(self) -> None:
        """It has none."""

    @property
    def instance(self) -> str:
        return self.archive or self.name or f"archive-{self.topic}"


Settings = AuditSettings


def run(settings: AuditSettings, *, master: str | None, say: Say) -> int:
    with spark_session(settings, master) as spark:
        found = audit(spark, settings)
    write_text(settings.report, report_of(found, topic=settings.topic, lake=settings.lake))
    write_text(f"{settings.report.removesuffix('.html')}.json", json_of(found))
    total = sum(each.arrived for each in found.verdicts)
    missing = sum(each.missing for each in found.verdicts)
    duplicates = sum(each.duplicates for each in found.verdicts)
    for each in found.changed[:CHANGES_SAID]:
        say(
            f"changed: {each.topic}, partition {each.partition}, hour {each.hour} UTC: of "
            f"{counted(each.records, 'record')} at least one is not as it is in the topic"
        )
    changed = "" if found.contents is None else f", {counted(len(found.changed), 'hour')} changed"
    say(
        f"{counted(total, 'row')} arrived, {missing:,} missing, "
        f"{counted(duplicates, 'duplicate')}{changed}: {settings.report}"
    )
    return 0 if found.is_complete else 1


def audit(spark: SparkSession, settings: AuditSettings) -> Audit:
    check_written(settings.lake, settings.format, settings.instance, settings.storage)
    ends = seam(settings)
    columns: tuple[str, ...] = ("topic", "partition", "offset", "timestamp", "batch")
    if settings.contents:
        columns += ("key", "value", "headers")
    # An archive of several topics is audited one by one.
    lake = below(raw_table(settings).read(spark, columns=columns), ends)
    lake = of_topic(lake, settings.topic)
    topic = read_batch(spark, settings, columns="topic,partition,offset,timestamp")
    ledger = Ledger(settings.lake, settings.format, settings.instance, settings.storage)
    contents = read_batch(spark, settings) if settings.contents else None
    return judge(topic, lake, ends, ledger.times(spark), contents=contents)


def judge(
    topic: DataFrame,
    lake: DataFrame,
    ends: dict[str, int],
    batches: DataFrame,
    *,
    contents: DataFrame | None = None,
) -> Audit:
    """Set the topic beside the lake. `ends` is where the lake says it ends, `batches` when each
    batch was done; `contents` are the topic's records with all their columns, where those are
    to be compared."""
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
    hours = [row.asDict() for row in transform.latency(lake, batches).collect()]
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
    doubled = transform.duplicates(lake).limit(DUPLICATES_SHOWN).collect()
    return Audit(
        verdicts,
        [f"{r.topic}:{r.partition}:{r.offset}" for r in samples],
        hours,
        [Duplicate(*row) for row in doubled],
        None if contents is None else _compared(transform.contents(below(contents, ends), lake)),
    )


def _compared(contents: DataFrame) -> list[Contents]:
    return [
        Contents(
            row.topic, row.partition, _hour_since_1970(row.hour), row.records,
            _checksum(row.in_topic), _checksum(row.in_lake),
        )
        for row in contents.collect()
    ]  # fmt: skip


def _checksum(total: Any) -> str:
    return f"{int(total) % (1 << 64):016x}"


def _hour_since_1970(hour: int) -> str:
    # A record may bear any time, and not each is of a year that there is a date for.
    if not 0 <= hour < _HOURS_MAX:
        return f"{hour} hours since 1970"
    return shown_hour(datetime.fromtimestamp(hour * 3_600, UTC))


def _by_place(frame: DataFrame) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row.topic, row.partition): row.asDict() for row in frame.collect()}
