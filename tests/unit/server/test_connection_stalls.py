"""A connection of the Kafka door that gets nowhere is cut off, and one that is slow is not."""

from __future__ import annotations

import struct

import pytest
from tests.unit.server.test_connection import Bench, frame, play

from headrace.core import limits
from headrace.server.kafka.connection import WRITE_BYTES_HIGH
from headrace.server.kafka.turns import PRODUCE
from headrace.server.stalls import PROGRESS_BYTES_MIN, STEADY_SECONDS


def sweep(bench: Bench, times: int) -> None:
    for _ in range(times):
        bench.door.sweeper.run()


def test_a_peer_that_stops_within_a_request_is_cut_off() -> None:
    def scenario(bench: Bench) -> None:
        bench.send(frame(b"whole")[:-1])
        sweep(bench, 6)
        assert bench.line.ended is None
        sweep(bench, 1)
        assert bench.line.ended == "aborted"

    play(scenario)


def test_a_peer_that_sends_a_byte_now_and_then_is_cut_off_and_a_slow_one_is_not() -> None:
    def scenario(bench: Bench) -> None:
        slow, line = bench.connect()
        small, other = bench.connect()
        for connection in (bench.connection, slow):
            bench.send(struct.pack(">ih", 300_000, PRODUCE), connection)
        # Whole requests, and always the beginning of one more.
        bench.send(frame(b"whole")[:3], small)
        for _ in range(7):
            assert bench.line.ended is None
            bench.send(b"x")
            bench.send(b"x" * PROGRESS_BYTES_MIN, slow)
            bench.send(frame(b"whole")[3:] + frame(b"whole")[:3], small)
            bench.door.sweeper.run()
        assert (bench.line.ended, line.ended, other.ended) == ("aborted", None, None)
        assert +bench.service.counts.cuts == {("kafka", "body"): 1}

    play(scenario)


def test_a_peer_that_takes_nothing_is_cut_off_and_one_that_is_slow_is_not() -> None:
    def scenario(bench: Bench) -> None:
        bench.line.unsent = WRITE_BYTES_HIGH * 2
        for _ in range(18):
            bench.line.unsent -= PROGRESS_BYTES_MIN
            bench.door.sweeper.run()
        assert bench.line.ended is None
        # A byte now and then is not taking it.
        for _ in range(6):
            bench.line.unsent -= 1
            bench.door.sweeper.run()
        assert bench.line.ended == "aborted"

    play(scenario)


def test_a_silent_peer_is_let_go_unless_it_waits_for_an_answer() -> None:
    def scenario(bench: Bench) -> None:
        bench.send(frame(b"a long poll"))
        sweep(bench, 65)
        assert bench.line.ended is None
        bench.answer(0, [b"news"])
        sweep(bench, 1)
        assert bench.line.ended == "closed"

    play(scenario)


@pytest.mark.parametrize("unsent", [1, WRITE_BYTES_HIGH * 2])
def test_a_peer_that_takes_nothing_of_a_short_answer_is_cut_off_too(unsent: int) -> None:
    def scenario(bench: Bench) -> None:
        bench.line.unsent = unsent
        sweep(bench, 3)
        assert bench.line.ended is None
        sweep(bench, 1)
        assert bench.line.ended == "aborted"
        assert +bench.service.counts.cuts == {("kafka", "answer"): 1}

    play(scenario, stall_timeout_ms=30_000)


def test_when_too_much_waits_for_clients_those_are_cut_who_took_nothing_for_longest() -> None:
    def scenario(bench: Bench) -> None:
        lines = [bench.line, *(bench.connect()[1] for _ in range(3))]
        deaf, slow, *others = lines
        for line in lines:
            line.unsent = limits.UNTAKEN_BYTES_MAX // 4
        bench.door.sweeper.run()
        bench.door.summer.run()
        assert [line.ended for line in lines] == [None] * 4
        for line in (slow, *others):
            line.unsent -= PROGRESS_BYTES_MIN
        bench.door.sweeper.run()
        slow.unsent += 4 * PROGRESS_BYTES_MIN
        bench.door.summer.run()
        assert [line.ended for line in lines] == ["aborted", None, None, None]
        assert +bench.service.counts.cuts == {("kafka", "memory"): 1}
        del deaf

    play(scenario)


def test_when_too_much_is_arriving_those_are_cut_that_get_on_slowest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kilobyte a minute is progress, but not where others find no room for it."""

    def scenario(bench: Bench) -> None:
        slow, slow_line = bench.connection, bench.line
        quick, quick_line = bench.connect()
        young, young_line = bench.connect()
        for connection, size in ((slow, 300_000), (quick, 600_000), (young, 100)):
            bench.send(struct.pack(">ih", 50_000_000, PRODUCE) + b"x" * size, connection)
        lines = (slow_line, quick_line, young_line)
        now = young.large_began + STEADY_SECONDS
        young.large_began = now - 1
        held = bench.door.rooms.bytes
        monkeypatch.setattr(limits, "RECEIVING_BYTES_MAX", 2 * held)
        bench.door.bound_receiving(now)
        assert [line.ended for line in lines] == [None] * 3
        monkeypatch.setattr(limits, "RECEIVING_BYTES_MAX", held + 100)
        bench.door.bound_receiving(now)
        assert [line.ended for line in lines] == ["aborted", None, None]
        assert +bench.service.counts.cuts == {("kafka", "memory"): 1}
        slow.connection_lost(None)
        # Of those that have just begun nobody knows how they get on.
        monkeypatch.setattr(limits, "RECEIVING_BYTES_MAX", 1)
        quick.large_began = now - 1
        bench.door.bound_receiving(now)
        assert (quick_line.ended, young_line.ended) == (None, None)

    play(scenario)


def test_limits_of_zero_cut_nobody_off() -> None:
    def scenario(bench: Bench) -> None:
        bench.send(frame(b"whole")[:-1])
        bench.line.unsent = 1
        sweep(bench, 10_000)
        assert bench.line.ended is None

    play(scenario, stall_timeout_ms=0, connections_max_idle_ms=0)
