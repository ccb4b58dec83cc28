"""Triage: kinds of dead letters, the report, and the plan that is carried out."""

from __future__ import annotations

import html.parser
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.cli.main import cli
from headrace.core.errors import InvalidArgument
from headrace.pipelines.registry import pipeline_named, settings_of
from headrace.pipelines.schema import schema_of
from headrace.pipelines.settings import read_toml
from headrace.pipelines.triage.kinds import is_passing, shape_of, signature_of
from headrace.pipelines.triage.plan import Step, plan_text, propose, read_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "pipelines"


@pytest.mark.parametrize(
    ("payload", "shape"),
    [
        (None, "no value"),
        (b"", "empty"),
        (b"hello", "text, under 10 bytes"),
        (b"\xff" * 50, "binary, under 100 bytes"),
        (b'{"b": [1, 2], "a": "x"}', "{a: text, b: [number]}"),
        (b'{"a": {"b": {"c": {"d": 1}}}}', "{a: {b: {c: {…}}}}"),
        (b'{"a": ', "broken JSON, under 10 bytes"),
        (b"[true, null]", "[boolean]"),
    ],
)
def test_a_payload_is_known_by_its_shape(payload: bytes | None, shape: str) -> None:
    assert shape_of(payload) == shape


@given(st.one_of(st.none(), st.binary(max_size=200), st.text(max_size=80).map(str.encode)))
def test_every_payload_has_a_shape_of_limited_length(payload: bytes | None) -> None:
    assert 0 < len(shape_of(payload)) <= 200


def test_two_errors_that_differ_in_numbers_have_one_signature() -> None:
    one = signature_of("max-attempts", "order 4711 timed out after 30.5 s\n  at line 3")
    two = signature_of("max-attempts", "order 12 timed out after 1 s")
    assert one == two == "order # timed out after # s"
    assert signature_of("expired", None) == "expired"
    assert signature_of("x", "no row 3f2504e0-4f89-11d3-9a0c-0305e82c3301") == "no row #"
    assert is_passing(one) and not is_passing("KeyError: 'customer'")


def test_only_passing_failures_are_proposed_and_not_for_ever() -> None:
    assert propose("connection refused", 0) == "redrive"
    assert propose("connection refused", 3) == "leave"
    assert propose("KeyError: 'id'", 0) == "leave"


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    steps = [
        Step("redrive", "orders", "billing", "max-attempts", 'timed "out" #', "{a: text}", 3, 5.0),
        Step("leave", "orders", "", "rejected", "ümlaut \\ ☂ \x07", "text", 1, None),
    ]
    path = tmp_path / "plan.toml"
    path.write_text(plan_text(steps, "two\nlines"))
    assert read_plan(str(path)) == steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[step]]\naction = 'burn'", "step 1: topic is missing"),
        ("step = 3", "steps are written as"),
        ("[[step]]\nwhat = 1", "unknown key 'what'"),
        ("nonsense", "cannot read the plan"),
    ],
)
def test_a_plan_that_is_wrong_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        read_plan(str(path))


def _letter(number: int, error: str, value: bytes, group: str = "billing") -> tuple[Any, ...]:
    at = datetime(2026, 11, 15, 12, number % 30, tzinfo=UTC)
    identity = f"orders.dlq:0:{number}"
    return (identity, "orders", group, "max-attempts", error, 3, 0, at, value)


def test_dead_letters_become_a_report_and_a_plan(spark: SparkSession) -> None:
    from headrace.pipelines.triage import transform
    from headrace.pipelines.triage.run import Findings, plan_of, report_of

    rows = [_letter(n, f"order {n} timed out", b'{"id": %d}' % n) for n in range(20)]
    rows += [_letter(n, "KeyError: 'id'", b"<script>alert(1)</script>", "mail") for n in range(5)]
    findings = Findings(
        transform.with_kinds(spark.createDataFrame(rows, schema_of(transform.LETTER_SCHEMA)))
    )
    steps = plan_of(findings, 10.0)
    assert [(s.action, s.group, s.signature, s.shape, s.letters) for s in steps] == [
        ("redrive", "billing", "order # timed out", "{id: number}", 20),
        ("leave", "mail", "KeyError: 'id'", "text, under 100 bytes", 5),
    ]
    assert [each.id for each in findings.kinds[0].samples] == [
        f"orders.dlq:0:{number}" for number in (19, 18, 17)
    ]
    text = report_of(findings, steps, "orders")
    # What came in a message is text in the page, and nothing is loaded from anywhere.
    assert "<script" not in text and "&lt;script&gt;" in text
    assert "://" not in text and text.count("<svg") == 1
    assert "prefers-color-scheme: dark" in text
    _check_balanced(text)


def _check_balanced(text: str) -> None:
    class Tags(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "meta":
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    tags = Tags()
    tags.feed(text)
    assert not tags.open


def test_a_plan_redrives_its_kinds_and_leaves_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    with headrace.open(data) as handle:
        handle.create_topic("orders", partitions=1)
        with handle.queue("orders", group="billing", max_attempts=1) as queue:
            for number in range(6):
                handle.publish("orders", {"id": number})
            for message in queue.receive(max=6, wait=0):
                passing = message.value["id"] % 2 == 0
                message.nack(error=f"order {message.value['id']} timed out" if passing else "bad")
    plan, report = tmp_path / "redrive.toml", tmp_path / "triage.html"
    values = read_toml(str(EXAMPLES / "triage.toml")) | {
        "servers": "", "path": data, "plan": str(plan), "report": str(report),
    }  # fmt: skip
    said: list[str] = []
    code = pipeline_named("triage").run(settings_of("triage", values), master=None, say=said.append)
    assert code == 0 and said[0].startswith("6 dead letters of 2 kinds"), said
    assert "order # timed out" in report.read_text() and "orders.dlq:0:5" in report.read_text()
    assert sorted((step.action, step.letters) for step in read_plan(str(plan))) == [
        ("leave", 3),
        ("redrive", 3),
    ]
    command = ["--data", data, "dlq", "redrive", "--plan", str(plan)]
    result = CliRunner().invoke(cli, [*command, "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "3 of 3 dead letters would be redriven" in result.output
    result = CliRunner().invoke(cli, [*command, "--yes"])
    assert result.exit_code == 0, result.output
    with headrace.open(data) as handle:
        assert handle.depth("orders", group="billing") == 3
        assert {letter.error for letter in handle.dead_letters("orders")} == {"bad"}
