"""Attacks on the HTTP door and its WebSockets. Each function is one round of one attack."""

from __future__ import annotations

import contextlib
import json
import zlib

from tests.hostile.kafka_attacks import BOMBED
from tests.hostile.target import EXPECTED, Target, masked

TEXT, BEGINNING, GOING_ON, PING, PONG = 0x81, 0x01, 0x00, 0x89, 0x8A

ZEROS = bytes(8 * 1024 * 1024)
_packer = zlib.compressobj(wbits=-12)
# Without the four bytes that every message would end with.
ZEROS_DEFLATED = (_packer.compress(ZEROS) + _packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


async def deep_json(target: Target) -> None:
    """A million brackets, and objects within objects."""
    for content in (b"[" * 1_000_000, b'{"value":' * 200_000, b'{"a":[' * 100_000):
        await target.ask("POST", f"/topics/{BOMBED}/messages", content)


async def json_that_is_no_text(target: Target) -> None:
    """Invalid UTF-8, lone surrogates, and numbers that no computer has."""
    for value in (b'"\xff\xfe"', b'"\\ud800"', b"1e999999", b"9" * 100_000, b'"\\u0000\\u001b[2J"'):
        await target.ask("POST", f"/topics/{BOMBED}/messages", b'{"value":%b}' % value)


async def many_values_in_one_body(target: Target) -> None:
    """A body of the largest size, of the smallest messages."""
    content = b'{"messages":[%b]}' % b",".join([b'{"value":1}'] * 200_000)
    await target.ask("POST", f"/topics/{BOMBED}/messages", content)


async def one_topic_named_200_000_times(target: Target) -> None:
    """Lists of one name, as long as a body may be, wherever topics are named."""
    names = ["held"] * 200_000
    group = target.fresh("repeater")
    await target.ask("POST", f"/queues/{group}/lease", {"topics": names, "wait": 5})
    await target.ask("POST", "/subscribe", {"topics": names, "group": f"{group}-s"})
    dequeue = {"op": "dequeue", "id": 1, "topics": names, "group": group, "credit": 10}
    async with target.connect(target.http) as peer:
        await peer.send(target.upgrade())
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(masked(TEXT, json.dumps(dequeue).encode()))
        await peer.reader.read(65_536)


async def heads_that_never_end(target: Target) -> None:
    async with target.connect(target.http) as peer:
        await peer.send(b"GET /topics HTTP/1.1\r\n")
        for number in range(2_000):
            await peer.send(b"x-%d: %b\r\n" % (number, b"y" * 200))
        await peer.reader.read()


async def bodies_that_never_end(target: Target) -> None:
    """Chunks without a last one, as fast as they go."""
    async with target.connect(target.http) as peer:
        await peer.send(
            b"POST /topics/quiet/messages HTTP/1.1\r\nhost: %b\r\n"
            b"transfer-encoding: chunked\r\n\r\n" % target.http.encode()
        )
        for _ in range(1_000):
            await peer.send(b"10000\r\n" + bytes(0x10000) + b"\r\n")
        await peer.reader.read()


async def requests_by_the_thousand(target: Target) -> None:
    """Pipelined, over one connection."""
    async with target.connect(target.http) as peer:
        peer.writer.write(target.request("GET", "/topics/quiet") * 500)
        received = 0
        while received < 500:
            received += (await peer.reader.read(65_536)).count(b"HTTP/1.1 ") or 1


async def answers_that_nobody_reads(target: Target) -> None:
    """Whole pages of messages, asked for by connections that take nothing."""
    asked = target.request("GET", f"/topics/{BOMBED}/messages?count=1000&offset=0")
    async with target.crowd(target.http, 200) as peers:
        for peer in peers:
            peer.go_deaf()
            peer.writer.write(asked * 50)
        await target.pause(10)


async def leases_that_are_never_acked(target: Target) -> None:
    body = {"topics": ["held"], "count": 1_000, "visibility": 12 * 3600}
    await target.ask("POST", "/topics/held/messages", {"messages": [{"value": 1}] * 100})
    await target.ask("POST", f"/queues/{target.fresh('holder')}/lease", body)
    await target.ask("POST", "/queues/holder/lease", body)


async def leases_of_bombs(target: Target) -> None:
    """A new group each time, which wants all that the bombed topic has."""
    body = {"topics": [BOMBED], "count": 1_000, "visibility": 1}
    await target.ask("POST", f"/queues/{target.fresh('opener')}/lease", body)


async def searches_through_bombs(target: Target) -> None:
    """Everything that reads a topic through: search, export, traces."""
    await target.ask("GET", f"/topics/{BOMBED}/search?value=nothing")
    await target.ask("GET", f"/topics/{BOMBED}/messages?count=1000&offset=0")
    await target.ask("GET", f"/trace?topic={BOMBED}&header=none")
    await target.ask("GET", f"/trace/{BOMBED}:0:0")


async def polls_that_are_abandoned(target: Target) -> None:
    """Long polls whose clients leave without a word."""
    content = json.dumps({"topics": ["quiet"], "wait": 30}).encode()
    for _ in range(3):
        async with target.crowd(target.http, 100) as peers:
            for peer in peers:
                await peer.send(target.request("POST", "/queues/abandoned/lease", content))


async def messages_for_the_year_9999(target: Target) -> None:
    message = {"value": "later", "deliver_at": "9999-12-31T23:59:59Z"}
    await target.ask("POST", "/topics/late/messages", {"messages": [message] * 200})


async def fragments_without_end(target: Target) -> None:
    """A WebSocket message that goes on and on."""
    async with target.connect(target.http) as peer:
        await peer.send(target.upgrade())
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(masked(BEGINNING, b"{"))
        for _ in range(2_000):
            await peer.send(masked(GOING_ON, bytes(32_000)))
        await peer.reader.read()


async def fragments_of_a_crowd(target: Target) -> None:
    """Messages of 250 WebSockets, each of which begins with two megabytes, or with eight where
    the node lets them be deflated, and goes on with nothing. All of them answer pings."""
    async with target.crowd(target.http, 250) as peers:
        for peer in peers:
            await peer.send(target.upgrade(deflate=True))
            with contextlib.suppress(*EXPECTED):
                head = await peer.reader.readuntil(b"\r\n\r\n")
                is_deflated = b"permessage-deflate" in head
                kind = BEGINNING | 0x40 if is_deflated else BEGINNING
                await peer.send(
                    masked(kind, ZEROS_DEFLATED if is_deflated else ZEROS[: len(ZEROS) // 4])
                )
        for _ in range(6):
            await target.pause(2)
            for peer in peers:
                with contextlib.suppress(*EXPECTED):
                    await peer.send(masked(GOING_ON, b"") * 1_000 + masked(PONG, b""))


async def sockets_with_frames_of_nothing(target: Target) -> None:
    """Whole messages without content, and pings, as many as fit into a packet."""
    async with target.crowd(target.http, 20) as peers:
        for peer in peers:
            await peer.send(target.upgrade())
            await peer.reader.readuntil(b"\r\n\r\n")
            peer.go_deaf()
        for _ in range(20):
            for peer in peers:
                peer.writer.write((masked(PING, b"") + masked(TEXT, b"")) * 5_000)
            await target.pause(0.5)


async def sockets_that_talk_nonsense(target: Target) -> None:
    deep = b"[" * 60_000
    for nonsense in (
        b"\xff\xfe",
        b"{}",
        deep,
        b'{"op":"dequeue"}',
        b'{"op":"tail","id":1,"topic":"\\ud800"}',
    ):
        async with target.connect(target.http) as peer:
            await peer.send(target.upgrade())
            await peer.reader.readuntil(b"\r\n\r\n")
            with contextlib.suppress(*EXPECTED):
                await peer.send(masked(TEXT, nonsense) * 50)
                await peer.reader.read(65_536)


async def sockets_that_never_read(target: Target) -> None:
    """Subscriptions to everything, by clients that take nothing."""
    tail = {"op": "tail", "id": 1, "topic": BOMBED, "start": "earliest", "credit": 10_000}
    async with target.crowd(target.http, 30) as peers:
        for peer in peers:
            await peer.send(target.upgrade())
            await peer.reader.readuntil(b"\r\n\r\n")
            peer.go_deaf()
            await peer.send(masked(TEXT, json.dumps(tail).encode()))
        await target.pause(10)
