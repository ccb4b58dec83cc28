"""What WebSockets send: a message gets on or is cut, all of them fit into one sum with the
bodies of HTTP, and small bytes stay small."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
import zlib
from time import perf_counter

import pytest
from tests.hostile.target import masked
from tests.unit.server.http_lines import DEFLATE, Bench, play, wait_until

from headrace.core import limits
from headrace.server.http.websocket import QUEUED_BYTES
from headrace.server.stalls import PROGRESS_BYTES_MIN, STEADY_SECONDS

TEXT, BEGINNING, GOING_ON, LAST, PING = 0x81, 0x01, 0x00, 0x80, 0x89
DEFLATED = 0x40


def test_a_message_that_gets_nowhere_is_cut_while_pings_are_answered() -> None:
    async def scenario(bench: Bench) -> None:
        begun, whole = await bench.open_socket(), await bench.open_socket()
        begun.receive(masked(BEGINNING, b"x" * 50_000))
        await wait_until(lambda: begun.is_reading_now)
        bench.pass_seconds(0)
        for _ in range(5):
            bench.pass_seconds(10)
            begun.receive(masked(PING, b"x" * 125) * 20)
            await wait_until(lambda: begun.is_reading_now)
        assert [line.ended for line in (begun, whole)] == [None, None]
        bench.pass_seconds(10)
        assert [line.ended for line in (begun, whole)] == ["aborted", None]
        assert bench.cuts == {("websocket", "body"): 1}

    play(scenario)


@pytest.mark.parametrize(
    "beginning",
    [masked(TEXT, b"x" * 60_000)[:9], masked(TEXT, b"x" * 60_000)[:-1], masked(PING, b"xy")[:-1]],
    ids=["the head of a frame", "a frame but for its end", "a ping"],
)
def test_a_frame_that_gets_nowhere_is_cut(beginning: bytes) -> None:
    async def scenario(bench: Bench) -> None:
        line = await bench.open_socket()
        line.receive(beginning)
        bench.pass_seconds(0)
        bench.pass_seconds(59)
        assert line.ended is None
        bench.pass_seconds(1)
        assert line.ended == "aborted"
        assert bench.cuts == {("websocket", "body"): 1}

    play(scenario)


def test_fragments_without_content_are_not_getting_on() -> None:
    async def scenario(bench: Bench) -> None:
        line = await bench.open_socket()
        line.receive(masked(BEGINNING, b""))
        bench.pass_seconds(0)
        for _ in range(5):
            bench.pass_seconds(10)
            line.receive(masked(GOING_ON, b"") * 1_000)
            await wait_until(lambda: line.is_reading_now)
        assert (line.ended, bench.arriving_bytes) == (None, 0)
        bench.pass_seconds(10)
        assert line.ended == "aborted"

    play(scenario)


def test_a_slow_message_small_ones_and_a_silent_connection_are_not_cut() -> None:
    async def scenario(bench: Bench) -> None:
        slow, small, silent = [await bench.open_socket() for _ in range(3)]
        slow.receive(masked(BEGINNING, b"{"))
        message = masked(TEXT, b'{"op":"ack","id":1,"receipts":[]}')
        # Whole messages, and always the beginning of one more.
        small.receive(message[:5])
        for number in range(1, 8):
            bench.pass_seconds(50)
            slow.receive(masked(GOING_ON, b" " * PROGRESS_BYTES_MIN))
            small.receive(message[5:] + message[:5])
            while small.sent.count(b'"done"') < number:
                await asyncio.sleep(0)
        assert [line.ended for line in (slow, small, silent)] == [None] * 3
        slow.receive(masked(LAST, b'"op":"ack","id":1,"receipts":[]}'))
        await wait_until(lambda: b'"done"' in slow.sent)
        # The first two bytes of a frame are not kept.
        assert bench.arriving_bytes == small.protocol.room_bytes == 3

    play(scenario)


def test_a_message_in_fragments_and_one_in_many_pieces_arrive_whole() -> None:
    async def scenario(bench: Bench) -> None:
        line = await bench.open_socket()
        content = json.dumps({"op": "ack", "id": "é", "receipts": []}, ensure_ascii=False).encode()
        for index, kind in enumerate((BEGINNING, *[GOING_ON] * (len(content) - 2), LAST)):
            line.receive(masked(kind, content[index : index + 1]))
        await wait_until(lambda: line.sent.count(b'"id":"\xc3\xa9"') == 1)
        for byte in masked(TEXT, content):
            line.receive(bytes([byte]))
        await wait_until(lambda: line.sent.count(b'"id":"\xc3\xa9"') == 2)
        assert bench.arriving_bytes == 0

    play(scenario)


def test_binary_fragments_arrive_as_one_message() -> None:
    async def scenario(bench: Bench) -> None:
        line = await bench.open_socket()
        packed = b"\x83\xa2op\xa3ack\xa2id\x07\xa8receipts\x90"
        line.receive(masked(0x02, packed[:4]) + masked(GOING_ON, b"") + masked(LAST, packed[4:]))
        await wait_until(lambda: b"\xa4done" in line.sent)

    play(scenario)


def test_what_is_arriving_of_messages_is_summed_and_let_go_of() -> None:
    async def scenario(bench: Bench) -> None:
        lines = [await bench.open_socket() for _ in range(2)]
        for line in lines:
            line.receive(masked(BEGINNING, b"x" * 10_000))
            line.receive(masked(GOING_ON, b"x" * 10_000)[:-7])
        assert bench.arriving_bytes == 2 * (20_000 - 7)
        lines[0].abort()
        await wait_until(lambda: bench.arriving_bytes == 20_000 - 7)
        # Nonsense too: it is answered, and gone.
        lines[1].receive(b"x" * 7 + masked(LAST, b""))
        await wait_until(lambda: b"invalid-argument" in lines[1].sent)
        assert bench.arriving_bytes == 0

    play(scenario)


def test_no_frame_is_kept_beside_what_is_summed() -> None:
    async def scenario(bench: Bench) -> None:
        line = await bench.open_socket()
        small = b'{"op":"ack","id":1,"receipts":[]}'
        large = small + b" " * 1_000_000
        line.receive(masked(TEXT, small))
        await wait_until(lambda: line.sent.count(b'"done"') == 1)
        tracemalloc.start()
        try:
            line.receive(masked(BEGINNING, large))
            await wait_until(lambda: bench.arriving_bytes >= len(large))
            assert tracemalloc.get_traced_memory()[0] < 1.5 * len(large)
            line.receive(masked(LAST, b""))
            await wait_until(lambda: line.sent.count(b'"done"') == 2)
            line.receive(masked(TEXT, large))
            await wait_until(lambda: line.sent.count(b'"done"') == 3)
            assert tracemalloc.get_traced_memory()[0] < 0.5 * len(large)
        finally:
            tracemalloc.stop()

    play(scenario)


def test_messages_that_wait_for_their_turn_are_in_the_sum() -> None:
    async def scenario(bench: Bench) -> None:
        line = await bench.open_socket()
        line.receive(masked(TEXT, b"") * 10 + masked(TEXT, b"x" * 50))
        assert bench.arriving_bytes == 11 * QUEUED_BYTES + 50
        # A character may take four bytes, and all the others with it.
        line.receive(masked(TEXT, "é".encode() * 25))
        assert bench.arriving_bytes == 12 * QUEUED_BYTES + 50 + 200
        await wait_until(lambda: line.sent.count(b"invalid-argument") == 12)
        assert bench.arriving_bytes == 0

    play(scenario)


def test_a_message_for_which_there_is_no_room_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_BODIES_BYTES_MAX", 100_000)

    async def scenario(bench: Bench) -> None:
        lines = [await bench.open_socket() for _ in range(3)]
        for line in lines:
            line.receive(masked(BEGINNING, b"x" * 40_000))
        assert [line.ended for line in lines] == [None, None, "aborted"]
        assert bench.cuts == {("websocket", "memory"): 1}
        await wait_until(lambda: bench.arriving_bytes == 80_000)

    play(scenario)


def test_when_too_much_is_arriving_the_messages_are_cut_that_get_on_slowest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_BODIES_BYTES_MAX", 100_000)

    async def scenario(bench: Bench) -> None:
        slow, fast, other = [await bench.open_socket() for _ in range(3)]
        slow.receive(masked(BEGINNING, b"x" * 20_000))
        fast.receive(masked(BEGINNING, b"x" * 50_000))
        bench.pass_seconds(STEADY_SECONDS)
        other.receive(masked(BEGINNING, b"x" * 20_000))
        assert [line.ended for line in (slow, fast, other)] == ["aborted", None, None]
        assert bench.cuts == {("websocket", "memory"): 1}
        assert bench.arriving_bytes == 70_000

    play(scenario)


def test_messages_are_not_compressed_whatever_the_client_offers() -> None:
    async def scenario(bench: Bench) -> None:
        line = await bench.open_socket(DEFLATE)
        assert b"permessage-deflate" not in line.sent
        packer = zlib.compressobj(wbits=-12)
        bomb = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_SYNC_FLUSH)
        line.receive(masked(BEGINNING | DEFLATED, bomb[:-4]))
        await wait_until(lambda: line.ended == "closed")
        assert bench.arriving_bytes == 0

    play(scenario)


def test_many_small_messages_are_parsed_in_turns_and_answered_in_order() -> None:
    async def scenario(bench: Bench) -> None:
        line, other = await bench.open_socket(), await bench.open_socket()
        messages = b"".join(
            masked(TEXT, b'{"op":"ack","id":%d,"receipts":[]}' % number) for number in range(5_000)
        )
        # Read in one piece, and what comes behind it.
        line.receive(messages[:200_000])
        assert not line.is_reading_now
        assert line.protocol.queue.qsize() < 500
        assert bench.arriving_bytes > 200_000
        other.receive(masked(TEXT, b"{}"))
        await wait_until(lambda: b"invalid" in other.sent)
        assert b'"id":4000' not in line.sent
        await wait_until(lambda: line.is_reading_now)
        line.receive(messages[200_000:])
        await wait_until(lambda: b'"id":4999' in line.sent)
        found = re.findall(rb'"op":"done","id":(\d+)', line.sent)
        assert [int(each) for each in found] == list(range(5_000))
        await wait_until(lambda: line.is_reading_now)
        assert bench.arriving_bytes == 0

    play(scenario)


def test_messages_that_wait_for_nothing_leave_turns_to_others() -> None:
    async def scenario(bench: Bench) -> None:
        line = await bench.open_socket()
        # As if it had used little for long.
        line.protocol.account.spend(-1.0, perf_counter())
        queue = line.protocol.queue
        for _ in range(1_000):
            queue.put_nowait({"type": "websocket.receive", "text": "{}"})
        await wait_until(lambda: queue.qsize() < 999)
        assert queue.qsize() > 0
        await wait_until(lambda: line.sent.count(b"invalid") == 1_000)

    play(scenario)


def test_what_is_parsed_at_once_is_bounded_by_time_however_small_the_frames_are() -> None:
    async def scenario(bench: Bench) -> None:
        line = await bench.open_socket()
        # Three hundred frames in two kilobytes.
        line.receive(masked(PING, b"") * 340)
        assert not line.is_reading_now
        await wait_until(lambda: line.sent.count(b"\x8a\x00") == 340)

    play(scenario)


def test_frames_without_end_stand_in_line() -> None:
    async def scenario(bench: Bench) -> None:
        line = await bench.open_socket()
        reads = 0
        while line.is_reading_now:
            line.receive(masked(PING, b"") * 1_000)
            reads += 1
            assert reads < 1_000
        await wait_until(lambda: line.is_reading_now)
        line.receive(masked(PING, b"") * 40_000)
        assert not line.is_reading_now
        await wait_until(lambda: line.is_reading_now)
        assert line.ended is None

    play(scenario)
