"""A link over a socket."""

from __future__ import annotations

import socket

import pytest

from headrace.client.socket_link import SocketLink
from headrace.core.node_settings import Address


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
