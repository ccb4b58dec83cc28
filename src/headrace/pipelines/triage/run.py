"""Runs the triage: reads the dead letters once, writes a report and a plan."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.core.settings import check_between
from headrace.core.wording import counted
from headrace.pipelines.page import Section, bars, cards, columns, page, paragraph, sample, table
from headrace.pipelines.registry import Say
from headrace.pipelines.running import place_options
from headrace.pipelines.session import spark_session
from headrace.pipelines.settings import PipelineSettings
from headrace.pipelines.triage.plan import Step, plan_text, propose

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

KINDS_SHOWN = 50
_TREND_COLUMNS = 60
_STEPS_SECONDS = (1, 10, 60, 300, 3_600, 21_600, 86_400)


@dataclass(frozen=True, slots=True)
class TriageSettings(PipelineSettings):
    # Where the report and the plan go.
    report: str = "triage.html"
    plan: str = "redrive.toml"
    # How fast the plan redrives, in messages a second.
    rate: float = 50.0

    def __post_init__(self) -> None:
        check_between("rate", self.rate, 0.001, None)


Settings = TriageSettings


class Findings:
    """What was found, small enough for the driver."""

    def __init__(self, told: DataFrame) -> None:
        from pyspark.sql import functions as F

        from headrace.pipelines.triage import transform

        told = told.persist()
        try:
            self.kinds: list[Row] = transform.groups(told).collect()
            self.total = sum(kind.letters for kind in self.kinds)
            span = told.agg(F.min("failed_at"), F.max("failed_at")).first()
            self.first: datetime | None = span[0] if span else None
            self.last: datetime | None = span[1] if span else None
            self.step_seconds = _step_seconds(self.first, self.last)
            self.trend: list[Row] = transform.trend(told, self.step_seconds).collect()
        finally:
            told.unpersist()

    def by(self, column: str) -> list[tuple[str, int]]:
        counts: dict[str, int] = {}
        for kind in self.kinds:
            counts[kind[column]] = counts.get(kind[column], 0) + kind.letters
        return sorted(counts.items(), key=lambda item: -item[1])[:15]


def run(settings: TriageSettings, *, master: str | None, say: Say) -> int:
    with spark_session(settings, master) as spark:
        findings = triage(spark, settings)
    proposed = sum(
        step.letters for step in plan_of(findings, settings.rate) if step.action == "redrive"
    )
    say(
        f"{counted(findings.total, 'dead letter')} of "
        f"{counted(len(findings.kinds), 'kind')}: {settings.report}"
    )
    say(f"{proposed:,} of them look worth another try: {settings.plan}")
    return 0


def triage(spark: SparkSession, settings: TriageSettings) -> Findings:
    """Look at the letters, and write the report and the plan."""
    from headrace.pipelines.triage import transform

    findings = Findings(transform.with_kinds(read_letters(spark, settings)))
    steps = plan_of(findings, settings.rate)
    write_text(settings.report, report_of(findings, steps, settings.topic))
    about = (
        f"Dead letters of {settings.topic}, {_now()}. Read it, change what is wrong, then:\n"
        f"headrace dlq redrive --plan {settings.plan}"
    )
    write_text(settings.plan, plan_text(steps, about))
    return findings


def read_letters(spark: SparkSession, settings: TriageSettings) -> DataFrame:
    """The letters that are dead now: those that were redriven or purged still lie
    in the log, and only the view knows which they are."""
    from headrace.pipelines.triage import transform

    options = {**place_options(settings), "subscribe": settings.topic, "view": "dead-letters"}
    view = spark.read.format("headrace").options(**(options | settings.options)).load()
    return transform.letters(view, settings.topic)


def plan_of(findings: Findings, rate: float) -> list[Step]:
    return [
        Step(
            propose(kind.signature, kind.redrives),
            kind.origin, kind.group, kind.reason, kind.signature, kind["shape"], kind.letters,
            rate,
        )
        for kind in findings.kinds
    ]  # fmt: skip


def report_of(findings: Findings, steps: list[Step], topic: str) -> str:
    shown = findings.kinds[:KINDS_SHOWN]
    sections = [
        Section(
            "",
            cards(
                [
                    ("dead letters", findings.total),
                    ("kinds", len(findings.kinds)),
                    ("first", _moment(findings.first)),
                    ("last", _moment(findings.last)),
                ]
            ),
        ),
        Section("Over time", columns(_filled(findings), "dead letters over time")),
        Section("By reason", bars(findings.by("signature"), "dead letters by reason")),
        Section("By group", bars(findings.by("group"), "dead letters by group")),
        Section("By shape of the payload", bars(findings.by("shape"), "dead letters by shape")),
        Section("Kinds", _kinds_table(findings, steps)),
    ]
    for number, kind in enumerate(shown, 1):
        body = paragraph(f"group {kind.group or '–'}, payload {kind['shape']}", "sub")
        body += "".join(sample(_sample_text(each)) for each in kind.samples)
        sections.append(
            Section(f"{number}. {kind.signature}: {counted(kind.letters, 'letter')}", body)
        )
    return page(f"Dead letters of {topic}", f"made {_now()}", sections)


def _kinds_table(findings: Findings, steps: list[Step]) -> str:
    rows = [
        [
            number, kind.letters, kind.signature, kind.group, kind["shape"], kind.attempts,
            kind.redrives, _moment(kind.first_at), _moment(kind.last_at), step.action,
        ]
        for number, (kind, step) in enumerate(zip(findings.kinds, steps, strict=True), 1)
    ][:KINDS_SHOWN]  # fmt: skip
    headings = [
        "no.", "letters", "reason", "group", "payload", "attempts", "redrives", "first", "last",
        "proposed",
    ]  # fmt: skip
    return table(headings, rows)


def _sample_text(each: Any) -> str:
    value = bytes(each.value or b"").decode(errors="backslashreplace")
    return f"{each.id}  {_moment(each.failed_at)}  {each.error or ''}\n{value}"


def _filled(findings: Findings) -> list[tuple[str, int]]:
    """The trend with a zero for every stretch in which nothing failed."""
    counts = {int(row.start.timestamp()): row.letters for row in findings.trend}
    if not counts:
        return []
    moments = range(min(counts), max(counts) + 1, findings.step_seconds)
    return [
        (_moment(datetime.fromtimestamp(at, UTC)), counts.get(at, 0))
        for at in moments[-4 * _TREND_COLUMNS :]
    ]


def _step_seconds(first: datetime | None, last: datetime | None) -> int:
    span = (last - first).total_seconds() if first and last else 0.0
    for seconds in _STEPS_SECONDS:
        if span / seconds <= _TREND_COLUMNS:
            return seconds
    return _STEPS_SECONDS[-1]


def _moment(at: datetime | None) -> str:
    if at is None:
        return "–"
    # Spark's rows hold local time without a zone.
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _now() -> str:
    return _moment(datetime.now(UTC)) + " UTC"


def write_text(path: str, text: str) -> None:
    """Whole or not at all: a reader never meets half a report."""
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    aside = f"{path}.tmp"
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(aside, path)
