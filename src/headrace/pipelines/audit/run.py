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
from headrace.pipelines.archive.transform import below
from headrace.pipelines.ledger import Done, Ledger, check_written
from headrace.pipelines.page import (
    Seconds,
    Section,
    cards,
    duration,
    lines,
    page,
    paragraph,
    table,
)
from headrace.pipelines.registry import Say
from headrace.pipelines.running import read_batch
from headrace.pipelines.session import spark_session
from headrace.pipelines.settings import StreamSettings
from headrace.pipelines.triage.run import write_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MISSING_SHOWN = 20
DUPLICATES_SHOWN = 100
# Partitions and hours whose checksums the page has; the JSON has all of them.
CONTENTS_SHOWN = 200
CHANGES_SAID = 20
_HOURS_MAX = 253_402_300_800 // 3_600


@dataclass(frozen=True, slots=True)
class AuditSettings(StreamSettings):
    # The archive's instance, where its settings gave it a name of its own.
    archive: str = ""
    report: str = "audit.html"
    # Whether contents are compared too, for which all values of the topic are read.
    contents: bool = True

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


class Contents(NamedTuple):
    """The records of one partition and hour that both sides have, and their checksums."""

    topic: str
    partition: int
    hour: str
    records: int
    in_topic: str
    in_lake: str

    @property
    def is_changed(self) -> bool:
        return self.in_topic != self.in_lake


class Duplicate(NamedTuple):
    topic: str
    partition: int
    offset: int
    times: int


class Audit(NamedTuple):
    verdicts: list[Verdict]
    missing_samples: list[str]
    hours: list[dict[str, Any]]
    duplicates: list[Duplicate]
    # None when contents were not looked at.
    contents: list[Contents] | None = None

    @property
    def changed(self) -> list[Contents]:
        return [each for each in self.contents or () if each.is_changed]

    @property
    def is_complete(self) -> bool:
        lost = any(each.missing or each.duplicates for each in self.verdicts)
        return not lost and not self.changed


def run(settings: AuditSettings, *, master: str | None, say: Say) -> int:
    with spark_session(settings, master) as spark:
        found = audit(spark, settings)
    write_text(settings.report, report_of(found, settings))
    write_text(f"{settings.report.removesuffix('.html')}.json", _json(found))
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
    check_written(settings.lake, settings.format, settings.instance)
    ends = seam(settings)
    lake = below(raw_table(settings).read(spark), ends)
    topic = read_batch(spark, settings, columns="topic,partition,offset,timestamp")
    batches = Ledger(settings.lake, settings.format, settings.instance).batches()
    contents = read_batch(spark, settings) if settings.contents else None
    return judge(spark, topic, lake, ends, batches, contents=contents)


def judge(
    spark: SparkSession,
    topic: DataFrame,
    lake: DataFrame,
    ends: dict[str, int],
    batches: Sequence[Done],
    *,
    contents: DataFrame | None = None,
) -> Audit:
    """Set the topic beside the lake. `ends` is where the lake says it ends; `contents` are
    the topic's records with all their columns, where those are to be compared."""
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
    return _hour(datetime.fromtimestamp(hour * 3_600, UTC))


def _by_place(frame: DataFrame) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row.topic, row.partition): row.asDict() for row in frame.collect()}


def report_of(found: Audit, settings: AuditSettings) -> str:
    verdict = (
        paragraph("Every record that the topic still has is in the table, once.", "good")
        if found.is_complete
        else paragraph("The table does not hold each record once, as it is in the topic.", "wrong")
    )
    facts = [
        ("rows arrived", sum(each.arrived for each in found.verdicts)),
        ("missing", sum(each.missing for each in found.verdicts)),
        ("duplicates", sum(each.duplicates for each in found.verdicts)),
        ("waiting", sum(each.waiting for each in found.verdicts)),
    ]
    if found.contents is not None:
        facts.append(("hours changed", len(found.changed)))
    hours = [(_hour(row["hour"]), row) for row in found.hours]
    curves = [
        (name, [(label, float(row[name])) for label, row in hours])
        for name in ("p50", "p95", "p99")
    ]
    sections = [
        Section("", verdict + cards(facts)),
        Section(
            "From publishing to the table",
            lines(curves, "latency by hour", duration)
            + table(
                ["hour", "rows", "p50", "p95", "p99", "longest"],
                [
                    [
                        label,
                        row["rows"],
                        *(Seconds(row[name]) for name in ("p50", "p95", "p99", "longest")),
                    ]
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
    if found.duplicates:
        rows = [list(each) for each in found.duplicates]
        sections.append(Section("Duplicates", table(list(Duplicate._fields), rows)))
    if found.contents is not None:
        sections.append(Section("Contents", _contents(found.contents)))
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return page(f"Audit of {settings.topic}", f"{settings.lake}, made {made}", sections)


def _contents(contents: list[Contents]) -> str:
    # What differs comes first.
    shown = sorted(contents, key=lambda each: not each.is_changed)[:CONTENTS_SHOWN]
    rows = [[*each, "changed" if each.is_changed else "the same"] for each in shown]
    words = (
        "Checksums of key, value, timestamp and headers of the records that both have, by the hour "
        "of publishing (UTC)."
    )
    if len(contents) > len(shown):
        words += f" The first {len(shown):,} of {len(contents):,}; the JSON has all."
    headings = ["topic", "partition", "hour", "records", "in the topic", "in the table", ""]
    return paragraph(words, "sub") + table(headings, rows)


def _json(found: Audit) -> str:
    document = {
        "complete": found.is_complete,
        "partitions": [each._asdict() for each in found.verdicts],
        "missing_samples": found.missing_samples,
        "duplicates": [each._asdict() for each in found.duplicates],
        "contents": None
        if found.contents is None
        else [each._asdict() | {"changed": each.is_changed} for each in found.contents],
        "hours": [row | {"hour": _hour(row["hour"])} for row in found.hours],
    }
    return json.dumps(document, indent=2) + "\n"


def _hour(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:00")
