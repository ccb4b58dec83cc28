"""Who is at the other end, as grpc writes it: `ipv4:10.0.0.1:5000`, `ipv6:%5B::1%5D:5000`."""

from __future__ import annotations

from urllib.parse import unquote


def host_of(peer: str) -> str:
    """Empty for anything else."""
    return address_of(peer)[0]


def address_of(peer: str) -> tuple[str, int]:
    """Likewise, with port 0."""
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return "", 0
    return host.strip("[]"), int(port)
