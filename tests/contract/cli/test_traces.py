"""The command line's view of traces, on a directory and on a node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def failed(run: Run) -> Run:
    """A message that was rejected, and one that waits."""
    run("topic", "create", "orders", "--partitions", "1")
    run("publish", "orders", "bad address", "--key", "customer-7", "--header", "shop=berlin")
    reject = "cat >/dev/null; echo no such street >&2; exit 100"
    run("work", "orders", "--group", "billing", "--count", "1", "--exec", reject)
    run("publish", "orders", "good address", "--key", "customer-8")
    return run


def test_a_timeline_is_printed_by_id_and_by_key(failed: Run) -> None:
    by_id = failed("trace", "orders:0:0").stdout
    assert ["dead-letter:", "orders.dlq:0:0"] in [line.split() for line in by_id.splitlines()]
    assert "billing  queue  dead-lettered" in by_id
    assert "to orders.dlq:0:0 (rejected: exit code 100: no such street)" in by_id
    assert failed("trace", "customer-7", "--topic", "orders").stdout == by_id
    assert failed("trace", "show", "orders:0:0").stdout == by_id


def test_several_messages_have_a_line_each(failed: Run) -> None:
    listed = failed("trace", "--topic", "orders").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["ID", "orders:0:0", "orders:0:1"]
    assert failed("trace", "--topic", "orders").stderr == ""
    first = failed("trace", "--topic", "orders", "--limit", "1")
    assert first.stdout.splitlines()[0].split() == ["id:", "orders:0:0"]
    assert "--limit shows more" in first.stderr
    failed("trace", "customer-9", code=3)
    failed("trace", "--group", "billing", "--outcome", "acked", code=3)


def test_a_trace_in_json_has_everything(failed: Run) -> None:
    trace = json.loads(failed("trace", "orders:0:0", "--json").stdout)
    assert [event["event"] for event in trace["events"]] == [
        "published",
        "leased",
        "dead-lettered",
    ]
    assert trace["links"] == [{"relation": "dead-letter", "id": "orders.dlq:0:0"}]
    assert ["shop", "berlin"] in trace["headers"]
    [found] = json.loads(failed("trace", "--header", "shop=berlin", "--topic", "orders",
                                "--json").stdout)  # fmt: skip
    assert found == trace


def test_an_export_is_json_lines_of_what_was_chosen(failed: Run, tmp_path: Path) -> None:
    lines = failed("trace", "export", "--topic", "orders").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["orders:0:0", "orders:0:1"]
    file = tmp_path / "traces.jsonl"
    failed("trace", "export", "--outcome", "dead-lettered", "--output", str(file))
    [line] = file.read_text().splitlines()
    assert json.loads(line) == json.loads(failed("trace", "orders:0:0", "--json").stdout)


def test_what_is_typed_wrong_is_said_so(failed: Run) -> None:
    assert "unknown-message" in failed("trace", "orders:0:99", code=1).stderr
    assert "unknown-topic" in failed("trace", "--topic", "nothing", code=1).stderr
    failed("trace", "--outcome", "lost", code=2)
