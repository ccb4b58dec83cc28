"""Connections that send a byte now and then: 700 at once, at every door."""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack

from tests.hostile.target import EXPECTED, Target, masked

OF_EACH = 140
ROUND_SECONDS = 90
BYTE_SECONDS = 5


async def a_byte_now_and_then(target: Target) -> None:
    """Heads and bodies of HTTP, frames of Kafka, of gRPC and of WebSockets, none of which
    is ever whole. Who is cut stays away until the next round."""
    beginnings = (
        (target.http, b"GET /topics HTTP/1.1\r\nx-slow: "),
        (
            target.http,
            b"POST /topics/quiet/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 90000\r\n\r\n",
        ),
        (target.kafka, (90_000).to_bytes(4, "big") + b"\0\x12\0\x03"),
        (target.grpc, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\x40\0\0"),
        (target.http, target.upgrade() + masked(0x81, b"x" * 50_000)[:9]),
    )
    async with AsyncExitStack() as stack:
        peers = []
        for address, beginning in beginnings:
            for peer in await stack.enter_async_context(target.crowd(address, OF_EACH)):
                await peer.send(beginning)
                peers.append(peer)
        for _ in range(ROUND_SECONDS // BYTE_SECONDS):
            await target.pause(BYTE_SECONDS)
            if target.ending.is_set():
                return
            for peer in peers:
                with contextlib.suppress(*EXPECTED):
                    await peer.send(b"x")
