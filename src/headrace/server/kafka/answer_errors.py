"""The errors in an answer, wherever its message has them.

    ProduceResponse    responses[] . partition_responses[] . error_code
    FetchResponse      error_code;  responses[] . partitions[] . error_code

Where codes are is read off the message's type, once for each: a field whose name ends
in `error_code`, in the message itself or in whatever it holds. Looking costs far less
than encoding the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

from headrace.server.kafka.errors import Error
from headrace.wire.kafka.api import Message

_NAMES: Final = {code.value: code.name for code in Error}

Find = Callable[[Message, list[int]], None]


def error_codes(response: Message) -> list[int]:
    """Every code that is not 0, as often as it is there."""
    found: list[int] = []
    kind: Any = type(response)
    find = _finder(kind)
    if find is not None:
        find(response, found)
    return found


def name_of(code: int) -> str:
    return _NAMES.get(code, str(code))


@cache
def _finder(kind: Any) -> Find | None:
    """None for a message that has no place for a code."""
    codes: list[int] = []
    inside: list[tuple[int, bool, Find]] = []
    for number, (name, hint) in enumerate(get_type_hints(kind).items()):
        if name.endswith("error_code"):
            codes.append(number)
            continue
        for is_array, held in _held_by(hint):
            find = _finder(held)
            if find is not None:
                inside.append((number, is_array, find))
    if not codes and not inside:
        return None

    def find_all(message: Message, found: list[int]) -> None:
        for number in codes:
            if message[number]:
                found.append(message[number])
        for number, is_array, find in inside:
            held = message[number]
            if not held:
                continue
            if is_array:
                for each in held:
                    find(each, found)
            else:
                find(held, found)

    return find_all


def _held_by(hint: Any) -> list[tuple[bool, type]]:
    """Messages that a field of this type holds, and whether it holds many."""
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return [(False, hint)]
    is_array = get_origin(hint) is not None and get_origin(hint).__name__ == "Sequence"
    return [(many or is_array, held) for each in get_args(hint) for many, held in _held_by(each)]
