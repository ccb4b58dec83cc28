"""`headrace top` says what is so: after known work, in JSON and on a real terminal."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.contract.cli.pseudo_terminal import Session
from tests.interop.conftest import NodeProcess

import headrace
from headrace.cli.main import cli
from headrace.client.connecting import open_backend

Run = Callable[..., Result]
Open = Callable[..., Session]


@pytest.fixture
def worked(run: Run) -> Run:
    """40 messages in `orders`, of which `billing` has done 10 and given up 2 and `audit`
    has read 15; one more is delayed."""
    run("topic", "create", "orders", "--partitions", "2")
    run("topic", "create", "quiet", "--partitions", "1")
    run("publish", "orders", "-", stdin=b"".join(b"%d\n" % number for number in range(40)))
    run("work", "orders", "--group", "billing", "--count", "10")
    run("work", "orders", "--group", "billing", "--count", "2", "--reject")
    run("consume", "orders", "--group", "audit", "--count", "15")
    run("publish", "orders", "later", "--delay", "1h")
    return run


def test_totals_are_those_of_the_work_that_was_done(worked: Run) -> None:
    found = json.loads(worked("top", "--once", "--json", "--every", "1ms").stdout)
    # A directory that is read from outside does not say who else has it open.
    members = None if found["place"].endswith("data") else 0
    topics = {each["name"]: each for each in found["topics"]}
    groups = {each["name"]: each for each in found["groups"]}
    assert list(topics) == ["orders", "quiet"]
    orders = topics["orders"]
    expected: dict[str, object] = {
        "partitions": 2,
        "records": 41,
        "published": 41,
        "delivered": 27,
        "lag": 29,
    }
    expected |= {"dead_letters": 2, "stopped": 0, "undecided": 0, "rate_in": 0.0, "rate_out": 0.0}
    assert {name: orders[name] for name in expected} == expected
    assert orders["size_bytes"] > 0 and topics["quiet"]["records"] == 0
    billing, audit = groups["billing"], groups["audit"]
    expected = {"kind": "queue", "lag": 29, "ready": 28, "delayed": 1, "leased": 0}
    expected |= {"delivered": 12, "dead_lettered": 2, "members": members, "topics": ["orders"]}
    assert {name: billing[name] for name in expected} == expected
    expected = {"kind": "stream", "lag": 26, "delivered": 15, "members": members}
    assert {name: audit[name] for name in expected} == expected
    assert billing["behind_ms"] >= 0 and audit["behind_ms"] >= 0
    # Both groups have been read within the last minute, so nobody is missed.
    assert [each["about"] for each in found["attention"]] == ["orders"]


def test_once_prints_tables_without_colours(worked: Run) -> None:
    printed = worked("top", "--once", "--every", "1ms", "--sort", "name").stdout
    assert "\x1b" not in printed
    lines = printed.splitlines()
    [orders] = [line for line in lines if line.startswith("orders")]
    size = orders.split()[4]
    assert orders.split()[1:] == ["2", "0", "0", size, "KB", "41", "29", "2"]
    assert any("2 dead letters" in line and "headrace dlq list orders" in line for line in lines)
    only = worked("top", "--once", "--every", "1ms", "--filter", "aud").stdout
    assert "audit" in only and "\norders " not in only


def test_a_place_that_is_not_there_is_said_as_ever(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["top", "--data", str(tmp_path / "absent")])
    assert (result.exit_code, "there is no directory" in result.stderr) == (1, True)


# On a terminal.


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path_factory.mktemp("top") / "data")
    with headrace.connect(process.bootstrap) as handle:
        handle.create_topic("orders", 2)
        handle.publish_many("orders", [b"value"] * 30)
        with handle.queue("orders", group="billing") as queue:
            queue.ack(queue.lease(10))
            queue.reject(queue.lease(3))
    yield process
    process.stop()


@pytest.fixture
def open_session(node: NodeProcess) -> Iterator[Open]:
    opened: list[Session] = []

    def start(*words: str, **options: Any) -> Session:
        options.setdefault("environment", {})
        opened.append(
            Session("top", "--server", node.bootstrap, "--every", "100ms", *words, **options)
        )
        return opened[-1]

    yield start
    for session in opened:
        session.close()


def row_of(lines: list[str], name: str) -> list[str]:
    return next((line.split()[1:] for line in lines if line.startswith(f"{name} ")), [])


def test_a_node_says_how_long_syncs_and_its_loop_take(node: NodeProcess) -> None:
    backend = open_backend(node.bootstrap)
    figures = backend.figures()
    assert figures is not None and figures.sync_failed is None
    assert figures.syncs is not None and figures.loop_lag is not None
    assert sum(figures.syncs.counts) > 0
    assert len(figures.loop_lag.counts) == len(figures.loop_lag.bounds) + 1
    backend.close()


def test_the_screen_follows_the_work_and_the_keys(node: NodeProcess, open_session: Open) -> None:
    session = open_session()
    lines = session.wait_for("billing ")
    assert len(lines) == 24 and lines[0].startswith(
        f"headrace {version('headrace')} at {node.bootstrap}  up "
    )
    assert "  mem " in lines[0]
    # partitions, in, out, size and its unit, records, lag, dead.
    assert row_of(lines, "orders")[-3:] == ["30", "17", "3"]
    # kind, members, lag, oldest, ready, leased, delayed.
    assert row_of(lines, "billing")[0] == "queue" and row_of(lines, "billing")[4] == "17"
    assert lines[4].startswith("! orders: 3 dead letters")
    assert lines[4].endswith("headrace dlq list orders")
    with headrace.connect(node.bootstrap) as handle:
        handle.publish_many("orders", [b"value"] * 70)
    session.wait_until(lambda lines: row_of(lines, "orders")[-3:] == ["100", "87", "3"])
    session.press("/bil\r")
    lines = session.wait_for("showing *bil*")
    assert not row_of(lines, "orders") and row_of(lines, "billing")
    session.press("\x1b")
    session.wait_until(lambda lines: bool(row_of(lines, "orders")))
    session.press("?")
    session.wait_for("this page; any key leaves it")
    session.press("x")
    session.wait_until(lambda lines: bool(row_of(lines, "orders")))
    assert "33" in session.screen.colours
    session.press("q")
    assert session.end() == 0


def test_a_resized_screen_is_drawn_anew(open_session: Open) -> None:
    session = open_session()
    session.wait_for("MEMBERS")
    session.resize(50, 12)
    lines = session.wait_until(
        lambda lines: lines[-1].startswith("q quit") and not any("MEMBERS" in one for one in lines)
    )
    assert len(lines) == 12 and row_of(lines, "orders")
    session.press("q")
    assert session.end() == 0


def test_a_node_that_is_away_is_said_to_be_and_comes_back(tmp_path: Path) -> None:
    process = NodeProcess(tmp_path / "data")
    session = Session("top", "--server", process.bootstrap, "--every", "100ms", environment={})
    try:
        session.wait_for("0 topics")
        process.kill()
        session.wait_for(f"{process.bootstrap}: no node answers")
        process.restart()
        with headrace.connect(process.bootstrap) as handle:
            handle.create_topic("orders", 2)
        lines = session.wait_until(lambda lines: bool(row_of(lines, "orders")))
        assert lines[0].startswith("headrace ")
        session.press("q")
        assert session.end() == 0
    finally:
        session.close()
        process.stop()


def test_without_colours_there_are_none(open_session: Open) -> None:
    session = open_session(environment={"NO_COLOR": "1"})
    session.wait_for("billing ")
    assert session.screen.colours == set()
    session.process.send_signal(signal.SIGTERM)
    assert session.end() == 143


def test_ctrl_c_leaves_the_terminal_as_it_was(open_session: Open) -> None:
    session = open_session()
    session.wait_for("billing ")
    session.process.send_signal(signal.SIGINT)
    assert session.end() == 130
