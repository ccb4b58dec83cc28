"""How many messages a body has, before any of them is made.

Thirty megabytes can be millions of messages of one byte, and a decoder that is asked for a
list goes through to its end: that would take seconds, in which the node answers nobody. So
whoever could have too many is counted first, with a decoder that makes nothing of what it
passes, and gives up as soon as there are too many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from headrace.core import limits
from headrace.core.errors import LimitExceeded

_NAME = b"messages"
# The bytes of a length behind the byte that begins a list; a shorter list is short.
_LENGTHS = {b"\xdc": 2, b"\xdd": 4}
# More would take as long as counting.
LOOKS_MAX = 16


class TooManyMessages(LimitExceeded):
    code = "too-many-messages"


def check_json_count(body: bytes | str) -> None:
    """LimitExceeded when it publishes more messages than one request may. Whatever else is
    wrong with it is found by whoever decodes it."""
    commas = body.count(",") if isinstance(body, str) else body.count(b",")
    # So few separate no more messages than that, wherever they are.
    if commas >= limits.HTTP_MESSAGES_MAX:
        _check(_JSON.decode, body)


def check_msgpack_count(body: bytes) -> None:
    """Likewise."""
    if len(body) >= limits.HTTP_MESSAGES_MAX and _says_too_many(body):
        _check(_MSGPACK.decode, body)


def _says_too_many(body: bytes) -> bool:
    """Whether it may be so, by what it says itself: in msgpack a list begins with its length,
    and that of the messages comes right behind its name."""
    at = body.find(_NAME)
    # The name may stand in a value, too.
    for _ in range(LOOKS_MAX):
        if at < 0:
            return False
        at += len(_NAME)
        size = _LENGTHS.get(body[at : at + 1], 0)
        if int.from_bytes(body[at + 1 : at + 1 + size]) > limits.HTTP_MESSAGES_MAX:
            return True
        at = body.find(_NAME, at)
    return True


def _check(decode: Callable[[Any], object], body: bytes | str) -> None:
    _Message.left = limits.HTTP_MESSAGES_MAX
    try:
        decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        if _Message.left < 0:
            raise TooManyMessages(
                f"one request publishes at most {limits.HTTP_MESSAGES_MAX} messages; send "
                "several smaller ones"
            ) from None


class _Message(msgspec.Struct):
    """Without fields: the decoder goes over what is in it."""

    left: ClassVar = 0

    def __post_init__(self) -> None:
        _Message.left -= 1
        if _Message.left < 0:
            raise ValueError("too many")


class _Messages(msgspec.Struct):
    messages: list[_Message] = []


_JSON = msgspec.json.Decoder(_Messages)
_MSGPACK = msgspec.msgpack.Decoder(_Messages)
