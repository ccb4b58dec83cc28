"""An audit as a page for people and as JSON for programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from headrace.pipelines.audit.findings import Audit, Contents, Duplicate, Verdict, shown_hour
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

# Partitions and hours whose checksums the page has; the JSON has all of them.
CONTENTS_SHOWN = 200


def report_of(found: Audit, *, topic: str, lake: str) -> str:
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
    hours = [(shown_hour(row["hour"]), row) for row in found.hours]
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
    return page(f"Audit of {topic}", f"{lake}, made {made}", sections)


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


def json_of(found: Audit) -> str:
    document = {
        "complete": found.is_complete,
        "partitions": [each._asdict() for each in found.verdicts],
        "missing_samples": found.missing_samples,
        "duplicates": [each._asdict() for each in found.duplicates],
        "contents": None
        if found.contents is None
        else [each._asdict() | {"changed": each.is_changed} for each in found.contents],
        "hours": [row | {"hour": shown_hour(row["hour"])} for row in found.hours],
    }
    return json.dumps(document, indent=2) + "\n"
