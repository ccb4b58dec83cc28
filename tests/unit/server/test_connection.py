"""A connection without a socket: order, limits, and who is cut off."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import pytest
from tests.unit.server import connected
from tests.unit.server.connected import Connected

from headrace.core import limits
from headrace.core.node_settings import NodeSettings
from headrace.core.ports import Buffer
from headrace.server.kafka.connection import (
    OPEN_REQUESTS_MAX,
    REQUESTS_PER_TURN,
    SCRATCH_BYTES,
    TOGETHER_BYTES_MAX,
    Connection,
)
from headrace.server.kafka.door import Door
from headrace.server.kafka.rooms import SPARE_BYTES
from headrace.server.kafka.slot import Slot
from headrace.server.kafka.turns import FETCH, PRODUCE, SHARE_FETCH
from headrace.server.shares import Account, shares_of
from headrace.wire.remote.methods import API_KEY

METADATA = 3


class NotingDoor(Door):
    """Keeps the requests, without the key of their API, for the test to answer."""

    open_requests: list[tuple[Slot, bytes]]

    def handle(self, connection: Connection, slot: Slot, frame: memoryview) -> None:
        self.open_requests.append((slot, bytes(frame[2:])))


class Bench(Connected):
    door: NotingDoor

    def _open_door(self, settings: NodeSettings) -> NotingDoor:
        door = NotingDoor(self.service, settings, {})
        door.open_requests = []
        return door

    def answer(self, number: int, parts: Sequence[Buffer]) -> None:
        self.connection.answer(self.door.open_requests[number][0], parts)


def frame(payload: bytes, key: int = PRODUCE) -> bytes:
    """Of an API whose requests may overlap, if nothing else is said."""
    return struct.pack(">ih", 2 + len(payload), key) + payload


def play(scenario: Callable[[Bench], Awaitable[None] | None], **settings: Any) -> None:
    connected.play(partial(Bench, **settings), scenario)


def test_answers_go_out_in_the_order_of_their_requests() -> None:
    def scenario(bench: Bench) -> None:
        bench.send(frame(b"one") + frame(b"two") + frame(b"three"))
        bench.answer(1, [b"2"])
        bench.answer(2, [b"3"])
        assert bench.line.sent == b""
        assert bench.connection.unsent_bytes == 2
        bench.answer(0, [b"1"])
        assert bench.line.sent == b"123"
        assert bench.connection.unsent_bytes == 0
        assert bench.connection.is_idle

    play(scenario)


def test_small_answers_wait_for_those_of_the_same_turn_and_leave_before_the_end() -> None:
    def scenario(bench: Bench) -> None:
        bench.send(frame(b"one") + frame(b"two") + frame(b"three") + frame(b"four"))
        bench.answer(0, [b"1"])
        assert (bench.line.sent, bench.connection.unsent_bytes) == (b"", 1)
        large = b"2" * (TOGETHER_BYTES_MAX + 1)
        bench.answer(1, [large])
        assert (bench.line.sent, bench.connection.unsent_bytes) == (b"1" + large, 0)
        bench.line.sent = b""
        bench.answer(2, [b"3"])
        assert bench.line.sent == b""
        bench.connection.finish()
        assert (bench.line.sent, bench.line.ended) == (b"3", "closed")

    play(scenario)


def test_a_connection_with_many_requests_leaves_turns_to_the_others() -> None:
    async def scenario(bench: Bench) -> None:
        bench.send(b"".join(frame(b"%d" % number) for number in range(3 * REQUESTS_PER_TURN)))
        assert len(payloads(bench)) == REQUESTS_PER_TURN
        assert not bench.line.is_reading_now
        other, _ = bench.connect()
        bench.send(frame(b"other"), other)
        while not bench.line.is_reading_now:
            await asyncio.sleep(0)
        numbers = [b"%d" % number for number in range(3 * REQUESTS_PER_TURN)]
        numbers.insert(REQUESTS_PER_TURN, b"other")
        assert payloads(bench) == numbers

    play(scenario)


def test_an_answer_does_not_wait_for_requests_that_take_longer() -> None:
    async def scenario(bench: Bench) -> None:
        bench.send(frame(b"one") + frame(b"two"))
        bench.answer(0, [b"1"])
        await asyncio.sleep(0)
        assert (bench.line.sent, bench.connection.unsent_bytes) == (b"1", 0)

    play(scenario)


def test_a_request_without_an_answer_keeps_its_place() -> None:
    def scenario(bench: Bench) -> None:
        bench.send(frame(b"one") + frame(b"two"))
        bench.answer(1, [b"2"])
        bench.answer(0, [])
        assert bench.line.sent == b"2"

    play(scenario)


def payloads(bench: Bench) -> list[bytes]:
    return [payload for _, payload in bench.door.open_requests]


@pytest.mark.parametrize("before", [PRODUCE, FETCH, METADATA])
def test_a_request_of_another_api_starts_when_those_before_it_are_answered(before: int) -> None:
    async def scenario(bench: Bench) -> None:
        # In one piece, and in two of which the first ends within the waiting frame.
        data = frame(b"one", before) + frame(b"two", 12) + frame(b"three", before)
        cut = len(frame(b"one")) + 7
        for piece in (data[:cut], data[cut:]):
            if bench.line.is_reading_now:
                bench.send(piece)
        assert payloads(bench) == [b"one"]
        assert not bench.line.is_reading_now
        bench.answer(0, [b"1"])
        await asyncio.sleep(0)
        if bench.line.is_reading_now:
            bench.send(data[cut:])
        assert payloads(bench) == [b"one", b"two"]
        bench.answer(1, [b"2"])
        await asyncio.sleep(0)
        assert payloads(bench) == [b"one", b"two", b"three"]
        assert bench.line.sent == b"12"
        assert bench.line.is_reading_now

    play(scenario)


def test_a_poll_that_was_ended_for_the_next_request_ends_no_later_ones() -> None:
    async def scenario(bench: Bench) -> None:
        connection = bench.connection
        line = shares_of(asyncio.get_running_loop()).line
        connection.account = Account(line)
        ended: list[bool] = []
        connection.polls.add(lambda: ended.append(True))
        # It has used little, and after its poll much; and others stand in line before it.
        connection.account.spend(-1.0, perf_counter())
        bench.send(frame(b"poll", FETCH))
        line.join(lambda: None)
        connection.account.spend(2.0, perf_counter())
        bench.send(frame(b"other", METADATA))
        assert (ended, connection.is_hurried) == ([True], True)
        # The answer comes while it stands in line.
        bench.answer(0, [b"1"])
        while len(payloads(bench)) < 2:
            await asyncio.sleep(0)
        assert not connection.is_hurried
        bench.answer(1, [b"2"])
        while not bench.line.is_reading_now:
            await asyncio.sleep(0)
        bench.send(frame(b"poll", FETCH) + frame(b"another", FETCH))
        await asyncio.sleep(0)
        assert payloads(bench)[2:] == [b"poll", b"another"]

    play(scenario)


@pytest.mark.parametrize(
    ("key", "started"), [(PRODUCE, 2), (FETCH, 2), (SHARE_FETCH, 1), (METADATA, 1), (11, 1)]
)
def test_only_produces_overlap_and_only_fetches(key: int, started: int) -> None:
    def scenario(bench: Bench) -> None:
        bench.send(frame(b"one", key) + frame(b"two", key))
        assert len(payloads(bench)) == started

    play(scenario)


def test_a_large_request_waits_for_its_turn_too() -> None:
    async def scenario(bench: Bench) -> None:
        bench.send(frame(b"one", METADATA))
        large = frame(b"x" * 2 * SCRATCH_BYTES)
        bench.send(large[:1_000])
        assert bench.door.rooms.bytes == 1_000
        assert not bench.line.is_reading_now
        bench.answer(0, [b"1"])
        await asyncio.sleep(0)
        assert bench.line.is_reading_now
        bench.send(large[1_000:])
        assert payloads(bench) == [b"one", b"x" * 2 * SCRATCH_BYTES]

    play(scenario)


def test_a_call_of_the_sdk_waits_for_nothing() -> None:
    def scenario(bench: Bench) -> None:
        bench.send(frame(b"one", METADATA) + frame(b"call", API_KEY) + frame(b"call", API_KEY))
        assert payloads(bench) == [b"one", b"call", b"call"]

    play(scenario)


@pytest.mark.parametrize(
    ("behind", "ended"), [(METADATA, 1), (PRODUCE, 1), (FETCH, 0), (API_KEY, 0)]
)
def test_a_poll_ends_when_a_request_of_another_api_stands_behind_it(
    behind: int, ended: int
) -> None:
    async def scenario(bench: Bench) -> None:
        calls: list[str] = []
        bench.send(frame(b"poll", FETCH))
        bench.connection.polls.add(lambda: calls.append("ended"))
        bench.send(frame(b"behind", behind))
        assert len(calls) == ended
        assert bench.connection.is_hurried == bool(ended)
        bench.answer(0, [b"1"])
        await asyncio.sleep(0)
        assert not bench.connection.is_hurried

    play(scenario)


def test_turns_that_are_held_keep_even_those_waiting_that_may_overlap() -> None:
    async def scenario(bench: Bench) -> None:
        bench.send(frame(b"one"))
        bench.connection.hold_turns()
        bench.send(frame(b"two"))
        assert payloads(bench) == [b"one"]
        bench.connection.release_turns()
        await asyncio.sleep(0)
        assert payloads(bench) == [b"one", b"two"]

    play(scenario)


def test_an_idle_connection_holds_no_buffer_and_a_frame_may_come_in_any_pieces() -> None:
    def scenario(bench: Bench) -> None:
        data = frame(b"a" * 100) + frame(b"b" * (2 * SCRATCH_BYTES)) + frame(b"c")
        for start in range(0, len(data), 7_777):
            bench.send(data[start : start + 7_777])
        seen = [payload for _, payload in bench.door.open_requests]
        assert seen == [b"a" * 100, b"b" * (2 * SCRATCH_BYTES), b"c"]
        assert not bench.connection.is_mid_frame
        assert bench.door.rooms.bytes == 0

    play(scenario)


def test_reading_stops_while_too_many_requests_are_open_and_goes_on_in_order() -> None:
    async def scenario(bench: Bench) -> None:
        count = OPEN_REQUESTS_MAX + 50
        bench.send(b"".join(frame(b"%d" % number) for number in range(count)))
        for _ in range(count):
            await asyncio.sleep(0)
        assert len(bench.door.open_requests) == OPEN_REQUESTS_MAX
        assert not bench.line.is_reading_now
        for number in range(OPEN_REQUESTS_MAX):
            bench.answer(number, [b"x"])
        await asyncio.sleep(0)
        assert bench.line.is_reading_now
        assert [payload for _, payload in bench.door.open_requests] == [
            b"%d" % number for number in range(count)
        ]

    play(scenario)


def test_reading_stops_while_the_peer_does_not_take_its_answers() -> None:
    async def scenario(bench: Bench) -> None:
        bench.connection.pause_writing()
        assert not bench.line.is_reading_now
        bench.connection.resume_writing()
        await asyncio.sleep(0)
        assert bench.line.is_reading_now

    play(scenario)


@pytest.mark.parametrize("length", [0, -1, 100 * 1024 * 1024 + 1])
def test_an_impossible_length_cuts_the_connection(length: int) -> None:
    def scenario(bench: Bench) -> None:
        bench.send(struct.pack(">i", length))
        assert bench.line.ended == "aborted"
        assert bench.door.open_requests == []

    play(scenario)


def test_what_all_connections_receive_at_once_is_bounded() -> None:
    def scenario(bench: Bench) -> None:
        bench.door.rooms.bytes = limits.RECEIVING_BYTES_MAX - 1_000
        bench.send(struct.pack(">i", 50_000_000) + b"x" * 10)
        assert bench.line.ended == "aborted"
        bench.connection.connection_lost(None)
        bench.door.rooms.bytes = 0
        second, line = bench.connect()
        bench.send(struct.pack(">i", 50_000_000) + b"x" * 10, second)
        assert line.ended is None
        assert 0 < bench.door.rooms.bytes < 1_000_000
        second.connection_lost(None)
        assert bench.door.rooms.bytes == 0

    play(scenario)


def test_requests_that_wait_for_their_turn_are_bounded_in_sum() -> None:
    async def scenario(bench: Bench) -> None:
        second, line = bench.connect()
        held = frame(b"x" * 1_000, METADATA)
        bench.send(frame(b"long poll", FETCH) + held)
        assert bench.door.rooms.bytes == len(held)
        bench.door.rooms.bytes = limits.RECEIVING_BYTES_MAX - 1
        bench.send(frame(b"long poll", FETCH), second)
        bench.send(frame(b"x", METADATA), second)
        assert (bench.line.ended, line.ended) == (None, "aborted")
        second.connection_lost(None)
        bench.answer(0, [b"1"])
        await asyncio.sleep(0)
        assert bench.door.rooms.bytes == limits.RECEIVING_BYTES_MAX - len(held) - 1

    play(scenario)


@pytest.mark.parametrize("size", [300_000, SPARE_BYTES - 4, SPARE_BYTES, 5_000_000])
def test_large_frames_in_the_same_room_do_not_mix(size: int) -> None:
    def scenario(bench: Bench) -> None:
        second, _ = bench.connect()
        one, other = frame(b"a" * size), frame(b"b" * size)
        for _ in range(2):
            # Two at once, and what follows a frame is not taken for its end.
            bench.send(one[:280_000])
            bench.send(other[:280_000], second)
            bench.send(one[280_000:] + frame(b"c" * 10))
            bench.send(other[280_000:], second)
        seen = [payload for _, payload in bench.door.open_requests]
        assert seen == [b"a" * size, b"c" * 10, b"b" * size] * 2
        assert bench.door.rooms.bytes == 0

    play(scenario)


def test_connections_beyond_the_limit_are_cut_and_leave_no_trace() -> None:
    def scenario(bench: Bench) -> None:
        second, line = bench.connect()
        assert line.ended == "aborted"
        second.connection_lost(None)
        assert bench.door.connections == {bench.connection}

    play(scenario, connections_max=1)


def test_an_address_has_so_many_connections_and_its_places_come_back() -> None:
    def scenario(bench: Bench) -> None:
        second, line = bench.connect()
        third, refused = bench.connect()
        assert (line.ended, refused.ended) == (None, "aborted")
        third.connection_lost(None)
        second.connection_lost(None)
        assert bench.connect()[1].ended is None
        assert +bench.service.counts.cuts == {("kafka", "address"): 1}

    play(scenario, connections_per_address_max=2)


def test_who_holds_something_for_a_connection_hears_of_its_end() -> None:
    def scenario(bench: Bench) -> None:
        heard: list[str] = []
        bench.connection.on_closed.append(lambda: heard.append("closed"))
        bench.connection.connection_lost(None)
        assert heard == ["closed"]
        assert bench.door.connections == set()

    play(scenario)
