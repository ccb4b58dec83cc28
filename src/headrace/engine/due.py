"""Due times: what falls due when, for millions of messages.

Exact to the millisecond: an offset is never popped early and never held back, and
`next_due_ms` is the truth, not an estimate. No call ever has to reorganise what
lies in the future, so no call stalls, whether the entries lie within a minute or
ten years apart.

    pending     a small heap of whole keys          (due << 63 | offset)
       | when it holds 4,096: sort once, pack
       v
    runs        sorted arrays, each relative to     [.....#################]
                its own smallest due and offset          ^ start: popped below
    heads       a heap with the first key of each run

An entry of a run is one integer, (due - base_due) << offset_bits | (offset -
base_offset), in the narrowest array that holds the run: 4 bytes when the run spans
minutes, 8 when it spans years. Only a run whose span of time times span of offsets
goes beyond 2**64 is kept as a list of Python integers.

Popping moves a run's start and nothing else. A run that is half popped gives the
space back. One with few entries left gives them back to pending, so that a handful
of far entries among many near ones never pins a run each.

Rejected: a timing wheel. It rounds, so that exactness needs a sort at the end
anyway, and when its hand enters a crowded slot of an upper level it has to move all
of that slot's entries at once. Rejected: one heap of tuples, at over 100 bytes an
entry. There is no removal: callers check a popped offset against what they know.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace, merge, nsmallest
from sys import getsizeof
from typing import Final

from headrace.core.errors import InvalidArgument
from headrace.core.limits import TIMESTAMP_MS_MAX

# Large enough that a run's own objects cost nothing per entry and that a million
# entries make few runs; small enough that sorting one takes about a millisecond.
RUN_ENTRIES: Final = 4096

# A run that has shrunk to this many gives them back to pending. Each entry that
# moves so was paid for by seven that were popped.
_RUN_ENTRIES_LEAST: Final = RUN_ENTRIES // 8

# Who reads in order mostly stops soon.
_ENTRIES_AT_ONCE: Final = 16

_OFFSET_BITS: Final = 63
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1


class _Run:
    """Sorted entries, packed relative to their own smallest due and offset."""

    __slots__ = ("base_due_ms", "base_offset", "keys", "mask", "offset_bits", "start")

    def __init__(self, due_ms: Sequence[int], offsets: Sequence[int]) -> None:
        self.base_due_ms = base_due_ms = min(due_ms)
        self.base_offset = base_offset = min(offsets)
        self.offset_bits = offset_bits = (max(offsets) - base_offset).bit_length()
        self.mask = (1 << offset_bits) - 1
        keys = [
            (due - base_due_ms) << offset_bits | (offset - base_offset)
            for due, offset in zip(due_ms, offsets, strict=True)
        ]
        keys.sort()
        bits = keys[-1].bit_length()
        self.keys: array[int] | list[int] = keys
        if bits <= 64:
            self.keys = array("I" if bits <= 32 else "Q", keys)
        self.start = 0

    def __len__(self) -> int:
        return len(self.keys) - self.start

    def head(self) -> int:
        """The first entry as a whole key, comparable with those of other runs."""
        key = self.keys[self.start]
        due_ms = self.base_due_ms + (key >> self.offset_bits)
        return due_ms << _OFFSET_BITS | (self.base_offset + (key & self.mask))

    def end_of(self, whole_key: int) -> int:
        """Where the entries up to this whole key, itself included, end."""
        due_ms = (whole_key >> _OFFSET_BITS) - self.base_due_ms
        offset = (whole_key & _OFFSET_MASK) - self.base_offset
        if offset < 0:
            return bisect_left(self.keys, due_ms << self.offset_bits, self.start)
        key = due_ms << self.offset_bits | min(offset, self.mask)
        return bisect_right(self.keys, key, self.start)

    def take(self, end: int) -> list[int]:
        """The whole keys up to `end`, which the run then holds no more."""
        taken = self._widen(self.keys[self.start : end])
        self.start = end
        if end > len(self.keys) >> 1:
            del self.keys[:end]
            self.start = 0
        return taken

    def keys_after(self, whole_key: int, limit: int) -> list[int]:
        first = self.end_of(whole_key)
        return self._widen(self.keys[first : first + limit])

    def each_key(self) -> Iterator[int]:
        for index in range(self.start, len(self.keys), _ENTRIES_AT_ONCE):
            yield from self._widen(self.keys[index : index + _ENTRIES_AT_ONCE])

    def whole_keys(self) -> list[int]:
        return self._widen(self.keys[self.start :])

    def _widen(self, keys: Iterable[int]) -> list[int]:
        # The base is added last: a sum of two offsets never carries into the due
        # time, since it is itself an offset that was added.
        base = self.base_due_ms << _OFFSET_BITS | self.base_offset
        offset_bits, mask = self.offset_bits, self.mask
        return [base + ((key >> offset_bits) << _OFFSET_BITS) + (key & mask) for key in keys]


class DueTimes:
    """Offsets by the time at which they fall due.

    An offset added twice is popped twice. Entries may be due in the past; they
    are popped by the next call.
    """

    __slots__ = ("_count", "_heads", "_pending", "_serial")

    def __init__(self) -> None:
        self._pending: list[int] = []
        # The serial decides between runs that begin with equal keys.
        self._heads: list[tuple[int, int, _Run]] = []
        self._serial = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Every (due_ms, offset), in no promised order."""
        for key in self._pending:
            yield key >> _OFFSET_BITS, key & _OFFSET_MASK
        for _, _, run in self._heads:
            for key in run.whole_keys():
                yield key >> _OFFSET_BITS, key & _OFFSET_MASK

    def in_order(self, start: int) -> Iterator[tuple[int, int]]:
        """(due_ms, offset) of offsets from `start` on, in order, for who needs only the
        first few. Nothing may change meanwhile."""
        # A run has mostly neighbours in it, so that older ones are passed over as a whole.
        runs = (r.each_key() for _, _, r in self._heads if r.base_offset + r.mask >= start)
        for key in merge(sorted(self._pending), *runs):
            if key & _OFFSET_MASK >= start:
                yield key >> _OFFSET_BITS, key & _OFFSET_MASK

    def after(self, due_ms: int, offset: int, limit: int) -> list[tuple[int, int]]:
        """The first `limit` entries behind this one, in order. `offset` may be -1
        for all that are due at that time."""
        key = (due_ms << _OFFSET_BITS) + offset
        keys = [pending for pending in self._pending if pending > key]
        for _, _, run in self._heads:
            keys += run.keys_after(key, limit)
        return [(k >> _OFFSET_BITS, k & _OFFSET_MASK) for k in nsmallest(limit, keys)]

    def packed_bytes(self) -> int:
        """The memory of all runs' arrays. What is pending comes on top, and is
        at most RUN_ENTRIES integers."""
        return sum(getsizeof(run.keys) for _, _, run in self._heads)

    def clear(self) -> None:
        self._pending.clear()
        self._heads.clear()
        self._count = 0

    def next_due_ms(self) -> int | None:
        """When the first entry falls due, exactly; None when there is none."""
        if self._pending:
            first = self._pending[0]
            if self._heads and self._heads[0][0] < first:
                first = self._heads[0][0]
            return first >> _OFFSET_BITS
        return self._heads[0][0] >> _OFFSET_BITS if self._heads else None

    def add(self, due_ms: int, offset: int) -> None:
        if not (-TIMESTAMP_MS_MAX <= due_ms <= TIMESTAMP_MS_MAX and 0 <= offset <= _OFFSET_MASK):
            raise _out_of_range(due_ms, offset)
        heappush(self._pending, due_ms << _OFFSET_BITS | offset)
        self._count += 1
        if len(self._pending) >= RUN_ENTRIES:
            self._pack_pending()

    def add_many(self, due_ms: Iterable[int], offsets: Iterable[int]) -> None:
        """Like `add` for each pair, several times faster. All or none: a value
        out of range, or columns of different length, change nothing."""
        dues = due_ms if isinstance(due_ms, (list, tuple, array)) else list(due_ms)
        places = offsets if isinstance(offsets, (list, tuple, array)) else list(offsets)
        if len(dues) != len(places):
            raise InvalidArgument(f"{len(dues)} due times for {len(places)} offsets")
        if not dues:
            return
        for due, place in ((min(dues), min(places)), (max(dues), max(places))):
            if not (-TIMESTAMP_MS_MAX <= due <= TIMESTAMP_MS_MAX and 0 <= place <= _OFFSET_MASK):
                raise _out_of_range(due, place)
        whole = len(dues) - len(dues) % RUN_ENTRIES
        for start in range(0, whole, RUN_ENTRIES):
            end = start + RUN_ENTRIES
            self._keep(_Run(dues[start:end], places[start:end]))
        self._count += len(dues)
        self._suspend(
            [
                due << _OFFSET_BITS | offset
                for due, offset in zip(dues[whole:], places[whole:], strict=True)
            ]
        )

    def shift(self, by_ms: int) -> None:
        """Everything falls due so much later, or earlier. It costs little: what is
        packed is relative to its own beginning."""
        by = by_ms << _OFFSET_BITS
        self._pending[:] = [key + by for key in self._pending]
        self._heads = [(key + by, serial, run) for key, serial, run in self._heads]
        for _, _, run in self._heads:
            run.base_due_ms += by_ms

    def pop_due(self, now_ms: int, limit: int | None = None) -> list[int]:
        """Take the offsets that are due at `now_ms`, at most `limit` of them.

        In order of due time, then of offset; a limit takes the first of that
        order. An empty list means that nothing is due, or that the limit is 0.
        """
        if not self._count:
            return []
        return [key & _OFFSET_MASK for key in self._pop_keys(now_ms, limit)]

    def pop_due_times(self, now_ms: int) -> list[tuple[int, int]]:
        """Like `pop_due` without a limit: (due_ms, offset) of each."""
        if not self._count:
            return []
        keys = self._pop_keys(now_ms, None)
        return [(key >> _OFFSET_BITS, key & _OFFSET_MASK) for key in keys]

    def _pop_keys(self, now_ms: int, limit: int | None) -> list[int]:
        last_key = now_ms << _OFFSET_BITS | _OFFSET_MASK
        if limit is None or limit >= self._count:
            keys = self._take_all(last_key)
        else:
            keys = self._take_first(last_key, limit)
        self._count -= len(keys)
        return keys

    def _take_all(self, last_key: int) -> list[int]:
        """Every key up to the last one: each run gives its part in one piece,
        and the sort at the end has only to merge the pieces."""
        keys = []
        while self._pending and self._pending[0] <= last_key:
            keys.append(heappop(self._pending))
        while self._heads and self._heads[0][0] <= last_key:
            run = self._heads[0][2]
            keys += self._take_from_first_run(run.end_of(last_key))
        keys.sort()
        return keys

    def _take_first(self, last_key: int, limit: int) -> list[int]:
        """The first keys up to the last one, merged from all runs step by step,
        so that the cost follows the limit and not how much is overdue."""
        keys: list[int] = []
        pending, heads = self._pending, self._heads
        while len(keys) < limit:
            if pending and (not heads or pending[0] <= heads[0][0]):
                if pending[0] > last_key:
                    break
                keys.append(heappop(pending))
                continue
            if not heads or heads[0][0] > last_key:
                break
            # Everything else begins at the least of pending and of the heap's
            # next two; up to there the first run can be taken in one piece.
            others = [head[0] for head in heads[1:3]]
            if pending:
                others.append(pending[0])
            run = heads[0][2]
            end = run.end_of(min([last_key, *others]))
            keys += self._take_from_first_run(min(end, run.start + limit - len(keys)))
        return keys

    def _take_from_first_run(self, end: int) -> list[int]:
        _, serial, run = self._heads[0]
        taken = run.take(end)
        if len(run) > _RUN_ENTRIES_LEAST:
            heapreplace(self._heads, (run.head(), serial, run))
        else:
            heappop(self._heads)
            self._suspend(run.whole_keys())
        return taken

    def _suspend(self, whole_keys: list[int]) -> None:
        """Put entries into pending, and pack it when it is full."""
        pending = self._pending
        if len(whole_keys) > 64:
            pending += whole_keys
            heapify(pending)
        else:
            for key in whole_keys:
                heappush(pending, key)
        if len(pending) >= RUN_ENTRIES:
            self._pack_pending()

    def _pack_pending(self) -> None:
        pending = self._pending
        run = _Run(
            [key >> _OFFSET_BITS for key in pending],
            [key & _OFFSET_MASK for key in pending],
        )
        # Emptied in place: a pop in progress holds on to this very list.
        pending.clear()
        self._keep(run)

    def _keep(self, run: _Run) -> None:
        self._serial += 1
        heappush(self._heads, (run.head(), self._serial, run))


def _out_of_range(due_ms: int, offset: int) -> InvalidArgument:
    return InvalidArgument(
        f"due {due_ms} must be within 2**62 ms of 1970 and offset {offset} within 63 bits"
    )
