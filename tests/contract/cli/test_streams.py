"""Topics, publishing, streams and groups from the command line, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.contract.cli.conftest import on_files

from headrace.cli.consume import Followed, Printer
from headrace.cli.main import cli
from headrace.core.values import Outgoing
from headrace.node import Node

Run = Callable[..., Result]


@pytest.fixture
def orders(run: Run) -> Run:
    """The same, with a topic `orders` of two partitions."""
    run("topic", "create", "orders", "--partitions", "2")
    return run


def document_of(result: Result) -> Any:
    return json.loads(result.stdout)


def lines_of(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


# Topics.


def test_a_topic_is_made_listed_and_described(run: Run) -> None:
    run("topic", "create", "orders", "--partitions", "6", "--set", "retention_ms=2d")
    run("topic", "create", "clicks")
    listed = document_of(run("topic", "list", "--json"))
    assert [(one["name"], len(one["partitions"])) for one in listed] == [
        ("clicks", 3),
        ("orders", 6),
    ]
    described = document_of(run("topic", "describe", "orders", "--json"))
    assert described["settings"]["retention_ms"] == 2 * 24 * 3600 * 1000
    text = run("topic", "describe", "orders").stdout
    assert "retention_ms: 172800000" in text
    assert "durability" not in text, "a setting at its default is not shown"


def test_a_topic_that_exists_is_refused_unless_that_is_fine(orders: Run) -> None:
    refused = orders("topic", "create", "orders", code=1)
    assert refused.stderr.startswith("error: ") and refused.stderr.endswith("[topic-exists]\n")
    orders("topic", "create", "orders", "--exist-ok")


def test_settings_of_a_topic_are_altered_one_by_one(orders: Run) -> None:
    orders("topic", "alter", "orders", "--set", "segment_bytes=1MB")
    settings = document_of(orders("topic", "describe", "orders", "--json"))["settings"]
    assert settings["segment_bytes"] == 1024 * 1024
    assert settings["durability"] == "synced"


def test_an_unknown_setting_is_named_with_those_that_are_known(run: Run) -> None:
    refused = run("topic", "create", "orders", "--set", "colour=red", code=2)
    assert "'colour'" in refused.stderr and "durability" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_topic_grows_and_never_shrinks(orders: Run) -> None:
    orders("topic", "grow", "orders", "--partitions", "4")
    assert len(document_of(orders("topic", "describe", "orders", "--json"))["partitions"]) == 4
    orders("topic", "grow", "orders", "--partitions", "3", code=2)


def test_deleting_a_topic_asks_first(orders: Run) -> None:
    orders("topic", "delete", "orders", code=1, stdin=b"n\n")
    orders("topic", "delete", "orders", code=1, stdin=b"")
    assert document_of(orders("topic", "list", "--json"))
    orders("topic", "delete", "orders", stdin=b"y\n")
    assert document_of(orders("topic", "list", "--json")) == []


def test_deleting_a_topic_with_yes_asks_nothing(orders: Run) -> None:
    orders("topic", "delete", "orders", "--yes")
    assert document_of(orders("topic", "list", "--json")) == []


# Publishing and streams.


def test_words_are_published_and_answered_with_their_ids(orders: Run) -> None:
    ids = orders("publish", "orders", "one", "two").stdout.split()
    assert len(set(ids)) == 2
    records = lines_of(orders("consume", "orders", "--json"))
    assert {record["id"] for record in records} == set(ids)
    assert sorted(record["value"] for record in records) == ["one", "two"]


def test_lines_of_stdin_become_messages(orders: Run) -> None:
    answer = orders("publish", "orders", "-", stdin=b"".join(b"%d\n" % n for n in range(2_500)))
    assert answer.stdout == ""
    assert "published 2,500 messages" in answer.stderr
    values = orders("consume", "orders").stdout.split()
    assert sorted(map(int, values)) == list(range(2_500))


def test_words_that_are_not_text_are_published_as_they_were_typed(orders: Run) -> None:
    # What Python makes of an argument with the bytes ff and fe.
    orders("publish", "orders", "\udcff", "--key", "\udcfe")
    [record] = lines_of(orders("consume", "orders", "--json"))
    assert (record["value"], record["key"]) == ({"base64": "/w=="}, {"base64": "/g=="})


@pytest.mark.parametrize("stdin", [None, b"", b"line\n"])
def test_stdin_is_read_only_when_it_is_asked_for(orders: Run, stdin: bytes | None) -> None:
    refused = orders("publish", "orders", code=2, stdin=stdin)
    assert "- for stdin" in refused.stderr
    orders("consume", "orders", code=3)


def test_lines_of_a_file_become_messages_with_keys(orders: Run, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a:1\nb:2\na:3\n")
    orders("publish", "orders", "--file", str(path), "--key-separator", ":")
    shown = orders("consume", "orders", "--key-separator", "=").stdout.split()
    assert sorted(shown) == ["a=1", "a=3", "b=2"]
    assert shown.index("a=1") < shown.index("a=3")


def test_a_whole_file_becomes_one_message(orders: Run, tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\x00\xff\nend")
    orders("publish", "orders", "--file", str(path), "--whole")
    assert orders("consume", "orders", "--format", "hex").stdout == "00ff0a656e64\n"
    assert orders("consume", "orders").stdout_bytes == b"\x00\xff\nend\n"
    [record] = lines_of(orders("consume", "orders", "--format", "json"))
    assert record["value"] == {"base64": "AP8KZW5k"}


def test_a_line_without_its_separator_says_how_many_went_before(orders: Run) -> None:
    lines = b"k:v\n" * 1_000 + b"no separator\n"
    refused = orders("publish", "orders", "-", "--key-separator", ":", stdin=lines, code=1)
    assert "published 1,000 messages before" in refused.stderr
    assert "[invalid-argument]" in refused.stderr


def test_headers_and_attributes_travel_with_a_message(orders: Run) -> None:
    orders(
        *("publish", "orders", "x", "--key", "k", "--header", "trace=1", "--header", "trace=2"),
        *("--priority", "high", "--max-attempts", "7"),
    )
    [record] = lines_of(orders("consume", "orders", "--json"))
    assert record["key"] == "k"
    assert record["headers"][:2] == [["trace", "1"], ["trace", "2"]]
    [message] = lines_of(orders("work", "orders", "--count", "1", "--peek", "--json"))
    assert message["priority"] == "high"
    assert message["max_attempts"] == 7


def test_a_duplicate_is_recognised_by_its_id(run: Run) -> None:
    run("topic", "create", "orders", "--set", "dedup=true", "--partitions", "1")
    [first] = lines_of(run("publish", "orders", "x", "--dedup-id", "7", "--json"))
    [second] = lines_of(run("publish", "orders", "x", "--dedup-id", "7", "--json"))
    assert first["id"] == second["id"]
    assert (first["duplicate"], second["duplicate"]) == (False, True)


def test_consume_starts_where_it_is_told(run: Run) -> None:
    run("topic", "create", "orders", "--partitions", "1")
    run("publish", "orders", *"abcdef")
    assert run("consume", "orders", "--from", "4").stdout.split() == ["e", "f"]
    assert run("consume", "orders", "--from", "2", "--count", "2").stdout.split() == ["c", "d"]
    assert run("consume", "orders", "--from", "2020-01-01").stdout.split() == list("abcdef")
    assert run("consume", "orders", "--from", "latest", code=3).stdout == ""
    assert run("consume", "orders", "--from", "2100-01-01", code=3).stdout == ""


def test_consume_without_a_group_moves_nothing(orders: Run) -> None:
    orders("publish", "orders", "x")
    for _ in range(2):
        assert orders("consume", "orders").stdout == "x\n"
    assert document_of(orders("group", "list", "--json")) == []


def test_consume_with_a_group_goes_on_where_it_ended(orders: Run) -> None:
    orders("publish", "orders", "a", "b", "c", "--key", "k")
    assert orders("consume", "orders", "--group", "audit", "--count", "2").stdout == "a\nb\n"
    assert orders("consume", "orders", "--group", "audit").stdout == "c\n"
    assert orders("consume", "orders", "--group", "audit", code=3).stdout == ""
    again = orders("consume", "orders", "--group", "audit", "--from", "earliest")
    assert again.stdout == "a\nb\nc\n"


def test_a_partition_that_does_not_exist_is_refused(orders: Run) -> None:
    refused = orders("consume", "orders", "--partition", "2", code=1)
    assert "0 to 1" in refused.stderr and "[unknown-partition]" in refused.stderr


# Groups.


def test_a_stream_group_is_described_reset_and_deleted(orders: Run) -> None:
    orders("publish", "orders", *"abcd", "--partition", "0")
    orders("consume", "orders", "--group", "audit")
    described = document_of(orders("group", "describe", "audit", "--json"))
    assert described["kind"] == "stream"
    assert sum(row["lag"] or 0 for row in described["partitions"]) == 0
    orders("group", "reset", "audit", "--topic", "orders", "--to", "1", "--yes")
    assert orders("consume", "orders", "--group", "audit").stdout.split() == ["b", "c", "d"]
    orders("group", "delete", "audit", "--yes")
    assert document_of(orders("group", "list", "--json")) == []


def test_a_queue_group_is_altered_and_has_no_cursors_to_reset(orders: Run) -> None:
    orders("publish", "orders", "x")
    orders("work", "orders", "--group", "billing", "--count", "1")
    orders("group", "alter", "billing", "--set", "visibility_ms=2m")
    described = document_of(orders("group", "describe", "billing", "--json"))
    assert described["settings"]["visibility_ms"] == 120_000
    assert "visibility_ms: 120000" in orders("group", "describe", "billing").stdout
    refused = orders(
        *("group", "reset", "billing", "--topic", "orders", "--to", "earliest", "--yes"), code=1
    )
    assert "[group-kind-mismatch]" in refused.stderr


# Errors and exit codes.


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "absent"],
        ["publish", "absent", "x"],
        ["topic", "describe", "absent"],
        ["topic", "delete", "absent", "--yes"],
        ["work", "absent", "--wait", "0s"],
        ["delayed", "list", "absent"],
        ["dlq", "list", "absent"],
    ],
)
def test_an_unknown_topic_is_one_line_and_code_1(orders: Run, words: list[str]) -> None:
    check_unknown_topic(orders(*words, code=1))


@on_files
@pytest.mark.parametrize(
    "words",
    [
        ["log", "export", "absent"],
        ["log", "dump", "absent", "0"],
        ["log", "verify", "absent"],
    ],
)
def test_an_unknown_topic_among_files_is_one_line_and_code_1(orders: Run, words: list[str]) -> None:
    check_unknown_topic(orders(*words, code=1))


def check_unknown_topic(refused: Result) -> None:
    assert refused.stderr.startswith("error: ")
    assert refused.stderr.endswith("[unknown-topic]\n")
    assert refused.stderr.count("\n") == 1
    assert refused.stdout == ""


@on_files
@pytest.mark.parametrize(
    "words",
    [
        ["topic", "list"],
        ["publish", "orders", "x"],
        ["consume", "orders"],
        ["work", "orders"],
        ["log", "verify"],
    ],
)
def test_a_missing_directory_is_not_made_by_looking(
    run: Run, words: list[str], tmp_path: Path
) -> None:
    refused = run(*words, code=1)
    assert "HEADRACE_DATA" in refused.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-command"],
        ["topic"],
        ["publish", "orders", "x", "--delay", "5"],
        ["publish", "orders", "x", "--file", "y"],
        ["publish", "orders", "x", "y", "--dedup-id", "1"],
        ["consume", "orders", "--group", "g", "--partition", "0"],
        ["work", "orders", "--exec", "true", "--nack"],
        ["work", "orders", "--peek"],
        ["work", "orders", "--ack", "--nack"],
        ["work", "orders", "--reject", "--peek", "--count", "1"],
        ["log", "dump", "orders"],
        ["completion", "powershell"],
    ],
)
def test_a_command_that_is_typed_wrong_ends_with_code_2(orders: Run, words: list[str]) -> None:
    refused = orders(*words, code=2)
    assert "Usage:" in refused.stderr
    assert "Traceback" not in refused.output


@on_files
def test_a_directory_of_something_else_is_no_matter_of_typing(run: Run, data: Path) -> None:
    data.mkdir()
    assert "there is no Headrace directory here" in run("topic", "list", code=1).stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["publish", "orders", "x", "--partition", "9"], "unknown-partition"),
        (["status", "orders:0:0", "--group", "absent"], "unknown-group"),
        (["queue", "stats", "absent"], "unknown-group"),
        (["group", "describe", "absent"], "unknown-group"),
        (["dlq", "show", "orders.dlq:0:0"], "unknown-"),
        (["publish", "orders", "--file", "/absent"], "os-error"),
    ],
)
def test_each_refusal_has_its_code(orders: Run, words: list[str], error: str) -> None:
    refused = orders(*words, code=1)
    assert f"[{error}" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["publish", "orders", "x", "--priority", "urgent"], "invalid-argument"),
        (["topic", "create", "no/slash"], "invalid-name"),
        (["topic", "alter", "orders", "--set", "segment_bytes=few"], "invalid-argument"),
        (["topic", "grow", "orders", "--partitions", "1"], "invalid-argument"),
        (["status", "nonsense", "--group", "absent"], "invalid-argument"),
        (["delayed", "cancel", "orders"], "invalid-argument"),
        (["dlq", "show", "orders"], "invalid-argument"),
    ],
)
def test_a_value_that_cannot_be_is_typed_wrong_too(
    orders: Run, words: list[str], error: str
) -> None:
    refused = orders(*words, code=2)
    assert f"[{error}" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_the_version_is_that_of_the_package(run: Run) -> None:
    from importlib.metadata import version

    assert run("--version").stdout.startswith(f"headrace {version('headrace')} (")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_calls_back_into_headrace(run: Run, shell: str) -> None:
    assert "_HEADRACE_COMPLETE" in run("completion", shell).stdout


def test_the_directory_may_come_from_the_environment_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(tmp_path / "elsewhere"))
    assert CliRunner().invoke(cli, ["topic", "create", "orders"]).exit_code == 0
    assert (tmp_path / "elsewhere").is_dir()
    assert json.loads(CliRunner().invoke(cli, ["topic", "list", "--json"]).stdout)
    named = CliRunner().invoke(cli, ["topic", "list", "--data", str(tmp_path / "absent")])
    assert named.exit_code == 1


BENCH = ("bench", "--messages", "300", "--batch", "100", "--single", "5", "--json")


def check_rounds(rounds: list[dict[str, Any]]) -> None:
    counts = {one["name"]: one["messages"] for one in rounds}
    assert counts == {
        "publish": 5,
        "deliver": 5,
        "end to end": 5,
        "publish batches": 300,
        "lease and ack": 300,
    }
    for one in rounds:
        calls = sum(row["calls"] for row in one["histogram"])
        assert calls == (5 if one["batch"] == 1 else 3)
        times = [one[name] for name in ("p50_ms", "p90_ms", "p99_ms", "p99_9_ms", "max_ms")]
        assert times == sorted(times)
    publish, _, whole = rounds[:3]
    assert whole["max_ms"] > 0 and whole["p50_ms"] >= publish["histogram"][0]["from_ms"]


@on_files
def test_a_quick_benchmark_draws_each_round(run: Run, tmp_path: Path) -> None:
    words = [*BENCH[:-1], "--in", str(tmp_path)]
    drawn = run(*words).stdout
    assert "P99.9 MS" in drawn
    for title in ("publish, milliseconds a message:", "end to end, milliseconds a message:"):
        _, _, rest = drawn.partition(title)
        assert "█" in rest.splitlines()[1] and "max" in rest.split("\n\n")[0]


@on_files
def test_a_quick_benchmark_counts_what_it_did(run: Run, tmp_path: Path) -> None:
    measured = document_of(run(*BENCH, "--in", str(tmp_path)))
    check_rounds(measured["rounds"])
    assert list(tmp_path.glob("headrace-bench-*")) == []
    assert "no directory" in run(*BENCH, "--in", str(tmp_path / "absent"), code=2).stderr


@pytest.mark.parametrize("run", ["server"], indirect=True)
def test_a_quick_benchmark_leaves_nothing_on_a_node(run: Run, tmp_path: Path) -> None:
    measured = document_of(run(*BENCH))
    check_rounds(measured["rounds"])
    assert document_of(run("topic", "list", "--json")) == []
    assert document_of(run("group", "list", "--json")) == []
    assert "a node has its own" in run(*BENCH, "--in", str(tmp_path), code=2).stderr


def test_following_notices_a_topic_that_was_made_again(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    node = Node.open(":memory:")
    node.create_topic("orders", partitions=2)
    node.publish("orders", [Outgoing(b"old", partition=0), Outgoing(b"older", partition=1)])
    followed = Followed(node, "orders", None, "earliest")
    printer = Printer("value", None, None)
    followed.print_what_is_there(node, printer)
    for partitions in (1, 3):
        node.delete_topic("orders")
        node.create_topic("orders", partitions=partitions)
        node.publish("orders", [Outgoing(b"new", partition=0)] * 3)
        if partitions == 3:
            followed.catch_up(node)
        followed.print_what_is_there(node, printer)
    printed = capfdbinary.readouterr()
    assert printed.out.split() == [b"old", b"older"] + [b"new"] * 6
    assert printed.err.count(b"was deleted and made again") == 2
    node.close()
