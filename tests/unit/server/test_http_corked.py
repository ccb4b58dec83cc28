"""What is written in one turn of the loop leaves as one piece, in order, and not too late."""

from __future__ import annotations

import asyncio

from headrace.server.http.corked import FLUSH_BYTES, CorkedTransport


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = False
        self.unsent = 0

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return name


def test_a_head_and_its_body_are_one_piece() -> None:
    async def run() -> None:
        transport = Transport()
        corked = CorkedTransport(transport, asyncio.get_running_loop())
        corked.write(b"head ")
        corked.write(b"body")
        assert transport.written == []
        await asyncio.sleep(0)
        corked.write(b"next")
        await asyncio.sleep(0)
        assert transport.written == [b"head body", b"next"]
        assert corked.get_extra_info("peername") == "peername"

    asyncio.run(run())


def test_a_large_piece_does_not_wait() -> None:
    async def run() -> None:
        transport = Transport()
        corked = CorkedTransport(transport, asyncio.get_running_loop())
        corked.write(b"x")
        corked.write(bytes(FLUSH_BYTES))
        assert [len(each) for each in transport.written] == [FLUSH_BYTES + 1]
        await asyncio.sleep(0)
        assert len(transport.written) == 1

    asyncio.run(run())


def test_what_was_written_goes_out_before_the_end_and_nothing_after() -> None:
    async def run() -> None:
        transport = Transport()
        corked = CorkedTransport(transport, asyncio.get_running_loop())
        corked.write(b"last")
        corked.close()
        corked.write(b"too late")
        await asyncio.sleep(0)
        assert (transport.written, transport.is_closed) == ([b"last"], True)

    asyncio.run(run())


def test_a_piece_is_held_whole_until_all_of_it_is_sent() -> None:
    async def run() -> None:
        transport = Transport()
        corked = CorkedTransport(transport, asyncio.get_running_loop())
        corked.write(bytes(FLUSH_BYTES + 1))
        assert corked.held_bytes == 0
        transport.unsent = 1
        assert corked.held_bytes > FLUSH_BYTES

    asyncio.run(run())
