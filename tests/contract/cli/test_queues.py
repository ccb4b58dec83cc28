"""The command line's view of queues: working, delays, dead letters, statistics."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]

NO_BACKOFF = ("--set", "backoff_ms=0ms", "--set", "max_attempts=2")


@pytest.fixture
def orders(run: Run) -> Run:
    run("topic", "create", "orders", "--partitions", "1")
    return run


@pytest.fixture
def failed(orders: Run) -> Run:
    """The same, with three dead letters: one of them because of a timeout."""
    orders("publish", "orders", "bad address")
    reject = "cat >/dev/null; echo bad address >&2; exit 100"
    orders("work", "orders", "--group", "billing", "--count", "1", "--exec", reject)
    orders("publish", "orders", "slow", "slower")
    orders(*("work", "orders", "--group", "billing", "--count", "2"),
        *("--exec", "echo Timeout of the bank >&2; exit 100"))  # fmt: skip
    return orders


def document_of(result: Result) -> Any:
    return json.loads(result.stdout)


def state_of(run: Run, message_id: str, group: str = "billing") -> dict[str, Any]:
    answer: dict[str, Any] = document_of(run("status", message_id, "--group", group, "--json"))
    return answer


# Working.


def test_a_message_is_printed_and_acked(orders: Run) -> None:
    [message_id] = orders("publish", "orders", "hello").stdout.split()
    assert orders("work", "orders", "--group", "billing", "--count", "1").stdout == "hello\n"
    assert state_of(orders, message_id)["state"] == "acked"
    orders("work", "orders", "--group", "billing", "--wait", "0s", code=3)


def test_a_peek_changes_nothing(orders: Run) -> None:
    [message_id] = orders("publish", "orders", "hello").stdout.split()
    for _ in range(2):
        peeked = orders("work", "orders", "--group", "billing", "--peek", "--count", "1", "--json")
        assert document_of(peeked)["attempt"] == 1
    assert state_of(orders, message_id)["state"] == "pending"


def test_a_nacked_message_comes_again_later(orders: Run) -> None:
    [message_id] = orders("publish", "orders", "hello").stdout.split()
    orders("work", "orders", "--group", "billing", "--count", "1", "--nack")
    status = state_of(orders, message_id)
    assert (status["state"], status["attempts"]) == ("retrying", 1)
    assert status["due"] is not None


def test_a_rejected_message_is_a_dead_letter(orders: Run) -> None:
    [message_id] = orders("publish", "orders", "hello").stdout.split()
    orders("work", "orders", "--group", "billing", "--count", "1", "--reject")
    assert state_of(orders, message_id)["state"] == "dead-lettered"
    [letter] = document_of(orders("dlq", "list", "orders", "--json"))
    assert letter["source"] == message_id


def test_several_topics_are_worked_at_once(orders: Run) -> None:
    orders("topic", "create", "returns")
    orders("publish", "orders", "one")
    orders("publish", "returns", "two")
    worked = orders("work", "orders", "returns", "--count", "2", "--wait", "0s").stdout.split()
    assert sorted(worked) == ["one", "two"]


def test_a_command_gets_the_value_and_its_place(orders: Run, tmp_path: Path) -> None:
    [message_id] = orders("publish", "orders", "hello", "--key", "k").stdout.split()
    out = tmp_path / "out"
    told = quote(str(out))
    command = f'cat > {told}; echo " $HEADRACE_ID $HEADRACE_KEY $HEADRACE_ATTEMPT" >> {told}'
    orders("work", "orders", "--group", "billing", "--count", "1", "--exec", command)
    assert out.read_text() == f"hello {message_id} k 1\n"
    assert state_of(orders, message_id)["state"] == "acked"


def test_a_command_that_fails_gets_the_message_again_until_it_is_dead(orders: Run) -> None:
    [message_id] = orders("publish", "orders", "hello").stdout.split()
    failing = ("--exec", "echo no luck >&2; exit 3", *NO_BACKOFF)
    worked = orders("work", "orders", "--group", "billing", "--count", "2", *failing)
    assert f"{message_id}: exit code 3: no luck" in worked.stderr
    [letter] = document_of(orders("dlq", "list", "orders", "--json"))
    assert letter["attempts"] == 2
    assert "no luck" in letter["error"]


def test_a_command_that_exits_with_100_rejects(orders: Run) -> None:
    [message_id] = orders("publish", "orders", "hello").stdout.split()
    orders("work", "orders", "--group", "billing", "--count", "1", "--exec", "exit 100")
    assert state_of(orders, message_id)["state"] == "dead-lettered"


def test_a_command_that_reads_nothing_is_no_trouble(orders: Run) -> None:
    orders("publish", "orders", "-", "--whole", stdin=b"x" * 500_000)
    orders("work", "orders", "--group", "billing", "--count", "1", "--exec", "true")
    assert document_of(orders("queue", "stats", "billing", "--json"))["depth"] == 0


def test_a_slow_command_keeps_its_lease(orders: Run) -> None:
    [message_id] = orders("publish", "orders", "hello").stdout.split()
    # Runs for several times as long as the lease lasts.
    orders(*("work", "orders", "--group", "billing", "--count", "1", "--visibility", "400ms"),
        *("--exec", "sleep 1"))  # fmt: skip
    status = state_of(orders, message_id)
    assert (status["state"], status["attempts"]) == ("acked", 1)


def test_many_commands_run_at_once(orders: Run, tmp_path: Path) -> None:
    orders("publish", "orders", *"abcd")
    # Each waits for all four to have begun: alone, one would wait for ever.
    meet = (
        f"cd {quote(str(tmp_path))}; touch begun.$HEADRACE_ID; "
        "while [ $(ls | grep -c begun) -lt 4 ]; do sleep 0.01; done"
    )
    orders("work", "orders", "--count", "4", "--concurrency", "4", "--exec", meet)
    assert document_of(orders("queue", "stats", "default", "--json"))["acked"] == 4


# Statistics.


def test_statistics_count_what_happened(orders: Run) -> None:
    orders("publish", "orders", *"abc")
    orders("publish", "orders", "later", "--delay", "1h")
    orders("work", "orders", "--group", "billing", "--count", "1")
    orders("work", "orders", "--group", "billing", "--count", "1", "--nack")
    statistics = document_of(orders("queue", "stats", "billing", "--json"))
    counted = {name: statistics[name] for name in ("depth", "ready", "retrying", "delayed")}
    assert counted == {"depth": 3, "ready": 1, "retrying": 1, "delayed": 1}
    assert (statistics["acked"], statistics["nacked"]) == (1, 1)
    [everything] = document_of(orders("queue", "stats", "--json"))
    assert everything["group"] == "billing"
    [listed] = document_of(orders("queue", "list", "--json"))
    assert listed["depth"] == 3


def test_statistics_for_people_name_the_lanes(orders: Run) -> None:
    orders("publish", "orders", "x", "--priority", "critical")
    orders("work", "orders", "--group", "billing", "--count", "1", "--nack")
    shown = orders("queue", "stats", "billing").stdout
    assert "critical" in shown and "background" in shown
    assert "billing" in orders("queue", "stats").stdout


# Delayed messages.


def test_delayed_messages_are_listed_by_their_time_and_cancelled(orders: Run) -> None:
    [late] = orders("publish", "orders", "late", "--delay", "2h").stdout.split()
    [soon] = orders("publish", "orders", "soon", "--delay", "1h").stdout.split()
    [fixed] = orders("publish", "orders", "x", "--at", "2100-01-01T00:00:00Z").stdout.split()
    listed = document_of(orders("delayed", "list", "orders", "--json"))
    assert [message["id"] for message in listed] == [soon, late, fixed]
    assert listed[2]["deliver_at"] == "2100-01-01T00:00:00.000Z"
    assert "59m" in orders("delayed", "list", "orders", "--limit", "1").stdout
    orders("delayed", "cancel", soon)
    orders("delayed", "cancel", soon, code=3)
    listed = document_of(orders("delayed", "list", "orders", "--json"))
    assert [message["id"] for message in listed] == [late, fixed]


def test_a_topic_without_delayed_messages_ends_with_code_3(orders: Run) -> None:
    assert document_of(orders("delayed", "list", "orders", "--json", code=3)) == []


# Dead letters.


def test_dead_letters_are_found_by_their_reason(failed: Run) -> None:
    assert len(document_of(failed("dlq", "list", "orders", "--json"))) == 3
    found = document_of(failed("dlq", "list", "orders", "--reason", "timeout", "--json"))
    assert [letter["value"] for letter in found] == ["slow", "slower"]
    assert document_of(failed("dlq", "list", "orders", "--group", "x", "--json", code=3)) == []


def test_a_dead_letter_is_shown_whole(failed: Run) -> None:
    [letter, *_] = document_of(failed("dlq", "list", "orders", "--json"))
    shown = document_of(failed("dlq", "show", letter["id"], "--json"))
    assert shown == letter
    text = failed("dlq", "show", letter["id"]).stdout
    assert "bad address" in text and letter["source"] in text


def test_a_redrive_asks_and_says_what_it_would_do(failed: Run) -> None:
    dry = document_of(failed("dlq", "redrive", "orders", "--dry-run", "--json"))
    assert (dry["matched"], dry["dry_run"]) == (3, True)
    failed("dlq", "redrive", "orders", code=1, stdin=b"n\n")
    assert len(document_of(failed("dlq", "list", "orders", "--json"))) == 3


def test_a_redriven_message_is_worked_by_the_group_in_which_it_failed(failed: Run) -> None:
    redriven = failed("dlq", "redrive", "orders", "--reason", "timeout", "--yes", "--json")
    assert document_of(redriven)["redriven"] == 2
    worked = failed("work", "orders", "--group", "billing", "--wait", "0s").stdout.split()
    assert sorted(worked) == ["slow", "slower"]
    assert len(document_of(failed("dlq", "list", "orders", "--json"))) == 1


def test_a_redrive_that_matches_nothing_ends_with_code_3(failed: Run) -> None:
    failed("dlq", "redrive", "orders", "--reason", "nobody said this", "--yes", code=3)


def test_purged_dead_letters_are_gone(failed: Run) -> None:
    dry = document_of(failed("dlq", "purge", "orders", "--dry-run", "--json"))
    assert (dry["matched"], dry["purged"]) == (3, 0)
    failed("dlq", "purge", "orders", code=1, stdin=b"n\n")
    purged = document_of(failed("dlq", "purge", "orders", "--limit", "2", "--yes", "--json"))
    assert purged["purged"] == 2
    assert len(document_of(failed("dlq", "list", "orders", "--json"))) == 1


def test_dead_letters_are_exported_as_json_lines(failed: Run) -> None:
    exported = failed("dlq", "export", "orders").stdout.splitlines()
    assert [json.loads(line) for line in exported] == document_of(
        failed("dlq", "list", "orders", "--json")
    )
