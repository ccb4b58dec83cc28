"""A link over a socket."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from headrace.client.link import Pending
from headrace.client.socket_link import SEND_BYTES, SocketLink
from headrace.core.errors import Disconnected
from headrace.core.node_settings import Address
from headrace.wire.remote.codec import encode_request

PING = encode_request("hello", (True,))
WAIT = 30


class Peer:
    """A link that is looked at by hand, and what is at its other end."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = Address(*listening.getsockname())
            self.link = SocketLink(address, "test", silence_seconds=3600, ping=PING)
            self.other, _ = listening.accept()
        self.other.settimeout(WAIT)

    def take(self) -> tuple[int, bytes]:
        """The next request: its number, and all of it."""
        frame = self.receive(struct.unpack(">i", self.receive(4))[0])
        return struct.unpack(">i", frame[4:8])[0], frame

    def receive(self, size: int) -> bytes:
        """All of it: a socket with a timeout does not wait for all, whatever it is told."""
        found = bytearray()
        while len(found) < size:
            some = self.other.recv(size - len(found))
            assert some, "closed"
            found += some
        return bytes(found)

    def answer(self, number: int) -> None:
        self.other.sendall(struct.pack(">iib", 5, number, 0))

    def look(self, times: int) -> None:
        for _ in range(times):
            self.link.look()


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.link.close()
    made.other.close()


def is_over(pending: Pending) -> bool:
    return pending.frame is not None or pending.error is not None


def test_a_peer_that_is_silent_while_somebody_waits_is_pinged_and_then_given_up(
    peer: Peer,
) -> None:
    pending = peer.link.send(b"what is the time?")
    peer.take()
    peer.look(2)
    assert peer.take()[1].endswith(PING)
    peer.look(3)
    assert peer.link.is_alive
    peer.look(1)
    with pytest.raises(Disconnected, match="silent for 3600 s"):
        pending.wait(WAIT)
    assert not peer.link.is_alive


def test_a_peer_that_answers_the_ping_is_waited_for_but_not_for_ever(peer: Peer) -> None:
    pending = peer.link.send(b"count all the records")
    peer.take()
    for looks in range(0, 24, 2):
        assert not is_over(pending), looks
        before = peer.link.received_bytes
        peer.look(2)
        peer.answer(peer.take()[0])
        while peer.link.received_bytes == before:
            assert peer.link.is_alive
        # Whatever came since the last look is a sign of life.
        peer.link._silent_looks = 0
        peer.link._moved = peer.link.received_bytes
    peer.look(1)
    with pytest.raises(Disconnected, match="answers others"):
        pending.wait(WAIT)
    assert peer.link.is_alive


def test_silence_is_fine_when_nobody_waits(peer: Peer) -> None:
    peer.look(100)
    assert peer.link.is_alive


def test_a_large_request_that_goes_out_slowly_is_no_silence(peer: Peer) -> None:
    size = 64 * SEND_BYTES
    # So little lies in between that whatever is taken has just been sent.
    peer.other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    peer.link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    sending = threading.Thread(target=peer.link.send, args=(bytes(size),))
    sending.start()
    for _ in range(16):
        peer.receive(4 * SEND_BYTES)
        peer.look(1)
    assert peer.link.is_alive
    # What is left is a few bytes, which the system has taken.
    sending.join(WAIT)


@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no TCP_USER_TIMEOUT"
)
def test_a_node_that_is_gone_without_a_word_is_noticed_in_half_a_minute() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        link = SocketLink(Address(*listening.getsockname()), "test")
        try:
            option = link._socket.getsockopt
            quiet_s = option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) + option(
                socket.IPPROTO_TCP, socket.TCP_KEEPINTVL
            ) * option(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
            assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert quiet_s == 30
            assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        finally:
            link.close()
