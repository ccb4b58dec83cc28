"""A connection between two requests is closed after a while, whatever it sends meanwhile."""

from __future__ import annotations

import pytest
from tests.unit.server.http_lines import Bench, Line, play, wait_until

REQUEST = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def ask(line: Line, times: int = 1) -> None:
    before = line.sent.count(b"HTTP/1.1 200 ")
    line.receive(REQUEST * times)
    await wait_until(lambda: line.sent.count(b"HTTP/1.1 200 ") == before + times)


@pytest.mark.parametrize("stall_timeout_ms", [60_000, 0])
def test_a_connection_between_two_requests_is_closed_after_75_seconds(
    stall_timeout_ms: int,
) -> None:
    async def scenario(bench: Bench) -> None:
        line = bench.connect()
        await ask(line)
        bench.pass_seconds(0)
        bench.pass_seconds(74)
        assert line.ended is None
        await ask(line, times=3)
        bench.pass_seconds(0)
        bench.pass_seconds(74)
        assert line.ended is None
        bench.pass_seconds(1)
        assert line.ended == "closed"
        assert bench.cuts == {("http", "idle"): 1}

    play(scenario, stall_timeout_ms=stall_timeout_ms)


def test_empty_lines_after_an_answer_are_no_request() -> None:
    async def scenario(bench: Bench) -> None:
        line = bench.connect()
        await ask(line)
        bench.pass_seconds(0)
        for _ in range(8):
            assert line.ended is None
            line.receive(b"\r\n")
            bench.pass_seconds(10)
        assert line.ended == "closed"
        assert bench.cuts == {("http", "idle"): 1}

    play(scenario)


def test_a_connection_that_waits_for_its_answer_is_not_idle() -> None:
    async def scenario(bench: Bench) -> None:
        line = bench.connect()
        await ask(line)
        line.receive(b"GET /consume?topic=orders&wait=600 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        for _ in range(10):
            bench.pass_seconds(20)
        assert line.ended is None
        line.close()

    play(scenario)


def test_requests_between_two_looks_begin_the_time_anew() -> None:
    async def scenario(bench: Bench) -> None:
        line = bench.connect()
        for _ in range(5):
            await ask(line)
            bench.pass_seconds(50)
        assert line.ended is None

    play(scenario)
