"""Bytes that are filled by somebody else, in both twins."""

from __future__ import annotations

from collections.abc import Callable
from pickle import PickleBuffer
from typing import Any

import pytest
from tests.twins import both

from headrace.core.ports import Buffer

Filled = Callable[[int, Callable[[Buffer], int]], bytes]
each_twin = pytest.mark.parametrize("filled", both("headrace.record.filling.filled"))


def writing(data: bytes) -> Callable[[Buffer], int]:
    def fill(room: Buffer) -> int:
        memoryview(room)[: len(data)] = data
        return len(data)

    return fill


@each_twin
@pytest.mark.parametrize(
    ("capacity", "data"), [(0, b""), (1, b""), (1, b"x"), (9, b"four"), (1 << 20, b"ab" * 9_999)]
)
def test_what_was_written_is_there_and_no_more(filled: Filled, capacity: int, data: bytes) -> None:
    made = filled(capacity, writing(data))
    assert type(made) is bytes and made == data
    assert hash(made) == hash(data)


@each_twin
@pytest.mark.parametrize("size", [-1, 5])
def test_more_than_there_is_room_for_is_refused(filled: Filled, size: int) -> None:
    with pytest.raises(ValueError, match="of 4 bytes"):
        filled(4, lambda room: size)


@each_twin
def test_what_raises_while_it_fills_is_told(filled: Filled) -> None:
    def fail(room: Buffer) -> int:
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        filled(4, fail)


@each_twin
@pytest.mark.parametrize("keeping", [PickleBuffer, memoryview, lambda room: room[:]])
def test_room_that_is_kept_is_an_error_and_not_another_memory(
    filled: Filled, keeping: Callable[[Buffer], Any]
) -> None:
    kept: list[Any] = []

    def keep(room: Buffer) -> int:
        kept.append(keeping(room))
        memoryview(room)[:] = b"mine"
        return 4

    with pytest.raises(BufferError):
        filled(4, keep)
    assert bytes(memoryview(kept[0])) == b"mine"
