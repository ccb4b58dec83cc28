"""The window: what one queue group knows of every message of one partition.

One byte a message says its lane and state; two more columns exist only in chunks
where something was leased:

    chunk of 64Ki offsets    state     lane << 4 | state      1 byte
                             attempts  deliveries so far      1 byte   once leased
                             grants    row of the lease       4 bytes  once leased

    below start              done: no bytes while everything was acked, else packed
    start .. end             chunks: dense, or packed when nothing in them can move soon
    from end                 not seen yet

The states, and every way from one to another:

    DELAYED --due--> READY --grant--> LEASED --reserve--> SETTLING --> ACKED
       |              ^ ^ ^              |                   |-------> RETRYING --due--> READY
     cancel           | | +-- lease over-+                   +-------> MOVING ---> DEAD
       v              | +---- released --+                                          |
    CANCELLED    WAITING (behind its key's head)            READY or WAITING <--revived
    EXPIRED: READY, WAITING, RETRYING or DELAYED for longer than its TTL
    ABSENT: an offset without a message for this group (a control record, a gap)

A search for the next ready message of a lane is a search for one byte, and a
change of a run is one `translate`, so both run at memory speed.

Rejected: an object per message (240 bytes each, and a stall to expire many), and
numpy, which is slower than `bytes` for the short runs that consumers make.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from headrace.engine.chunk import Chunk, is_uniform
from headrace.engine.lane import LANE_COUNT
from headrace.engine.runs import Runs, pairs

READY: Final = 0
LEASED: Final = 1
SETTLING: Final = 2
RETRYING: Final = 3
DELAYED: Final = 4
MOVING: Final = 5
WAITING: Final = 6
# From here on a message is done, and its byte has no lane.
ACKED: Final = 8
DEAD: Final = 9
EXPIRED: Final = 10
CANCELLED: Final = 11
ABSENT: Final = 12

STATE_MASK: Final = 0x0F
CHUNK_BITS: Final = 16
CHUNK: Final = 1 << CHUNK_BITS


def is_done(state: int) -> bool:
    return state >= ACKED


def _table(state: int) -> bytes:
    if is_done(state):
        return bytes([state]) * 256
    return bytes((value & 0xF0) | state for value in range(256))


_TO: Final = {state: _table(state) for state in (*range(7), *range(8, 13))}
_LANE_OF: Final = bytes(value >> 4 for value in range(256))
_ONE_LESS: Final = bytes(max(value - 1, 0) for value in range(256))


def _class_of(states: tuple[int, ...]) -> re.Pattern[bytes]:
    values = b"".join(
        re.escape(bytes([lane << 4 | state])) for lane in range(16) for state in states
    )
    return re.compile(b"[" + values + b"]")


_LIVE: Final = _class_of(tuple(range(8)))
# What a chunk must not hold to be packed: anything that moves at any moment.
_ACTIVE: Final = _class_of((READY, LEASED, SETTLING, MOVING, WAITING))


class Window:
    def __init__(self, start: int) -> None:
        self.restore(start, start)

    def restore(self, start: int, end: int) -> None:
        """Empty, for a new group or for a snapshot whose pieces follow."""
        # Everything below start is done; everything from end on is not seen yet.
        self.start = start
        self.end = end
        self.counts = [0] * 256
        self._chunks: dict[int, Chunk] = {}
        # Outcomes of chunks that are done but were not simply acked, packed.
        self._outcomes: dict[int, bytes] = {}
        # No ready message of the lane lies below its hint.
        self._hints = [start] * LANE_COUNT

    # Growing at the end.

    def extend(self, count: int, value: int) -> None:
        """The next `count` offsets all begin with this byte."""
        self.counts[value] += count
        if value & STATE_MASK == READY and self.counts[value] == count:
            self._hints[value >> 4] = self.end
        while count > 0:
            chunk = self._chunk_at_end()
            room = min(count, CHUNK - (self.end & (CHUNK - 1)))
            chunk.state += bytes((value,)) * room
            if len(chunk.state) == CHUNK:
                chunk.share_state()
            self.end += room
            count -= room

    def _chunk_at_end(self) -> Chunk:
        number = self.end >> CHUNK_BITS
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = Chunk()
            # A window that starts inside a chunk knows nothing of what is before.
            chunk.state += bytes((ABSENT,)) * (self.end & (CHUNK - 1))
        else:
            chunk.unpack()
        return chunk

    # Reading.

    def value_at(self, offset: int) -> int:
        """The byte of one offset; ACKED for what is done and forgotten."""
        chunk = self._chunks.get(offset >> CHUNK_BITS)
        if chunk is not None and chunk.packed is None:
            return chunk.state[offset & (CHUNK - 1)]
        column = self._column(offset >> CHUNK_BITS)
        return column[offset & (CHUNK - 1)] if column else ACKED

    def state_at(self, offset: int) -> int:
        return self.value_at(offset) & STATE_MASK

    def states_at(self, offsets: Iterable[int]) -> list[int]:
        """As `state_at`, of ascending offsets: what is packed is opened once."""
        states: list[int] = []
        for number, group in groupby(offsets, lambda offset: offset >> CHUNK_BITS):
            column = self._column(number)
            states += [
                column[each & (CHUNK - 1)] & STATE_MASK if column else ACKED for each in group
            ]
        return states

    def _column(self, number: int) -> bytes | bytearray:
        """The bytes of a chunk; empty when it is done and all of it was acked."""
        chunk = self._chunks.get(number)
        if chunk is not None:
            return chunk.read_state()
        outcomes = self._outcomes.get(number)
        return b"" if outcomes is None else zlib.decompress(outcomes)

    def lanes_of(self, runs: Runs) -> bytes:
        """The lane of each message of these runs, none of which is done."""
        columns = [chunk.state[first:last] for chunk, first, last in self._slices(runs)]
        return b"".join(columns).translate(_LANE_OF)

    def attempts_at(self, offset: int) -> int:
        chunk = self._chunks.get(offset >> CHUNK_BITS)
        if chunk is None:
            return 0
        attempts = chunk.attempts
        if chunk.packed is not None:
            packed = chunk.packed[1]
            attempts = None if packed is None else bytearray(zlib.decompress(packed))
        index = offset & (CHUNK - 1)
        return attempts[index] if attempts is not None and index < len(attempts) else 0

    def grant_at(self, offset: int) -> int:
        """The grant that a LEASED message is under."""
        chunk = self._chunks[offset >> CHUNK_BITS]
        assert chunk.grants is not None
        return chunk.grants[offset & (CHUNK - 1)]

    def grants_in(self, start: int, end: int) -> set[int]:
        """The grants that messages of this run are under."""
        return {
            grant
            for chunk, first, last in self._slices([start, end])
            if chunk.grants is not None
            for grant in chunk.grants[first:last]
            if grant
        }

    def uniform_grant(self, start: int, end: int, attempts: int) -> int:
        """The one grant that the whole run is leased under, at this delivery
        count; 0 when there is no such grant."""
        chunk = self._chunks.get(start >> CHUNK_BITS)
        first = start & (CHUNK - 1)
        last = first + end - start
        if chunk is None or chunk.grants is None or chunk.attempts is None:
            return 0
        state = chunk.state[first:last]
        grants = chunk.grants[first:last]
        size = end - start
        if (
            len(grants) == size
            and state.translate(_TO[LEASED]) == state
            and chunk.attempts.count(attempts, first, last) == size
            and is_uniform(grants)
        ):
            return grants[0]
        return 0

    def ready(self) -> list[int]:
        """How many messages of each lane are ready."""
        return self.counts[READY : LANE_COUNT << 4 : 1 << 4]

    def ready_in(self, lane: int) -> int:
        return self.counts[lane << 4]

    def count_in(self, state: int) -> int:
        if is_done(state):
            return self.counts[state]
        return sum(self.counts[lane << 4 | state] for lane in range(LANE_COUNT))

    def find(self, value: int, start: int, count: int) -> Runs:
        """Up to `count` offsets at or after `start` that have this byte."""
        runs: Runs = []
        number = start >> CHUNK_BITS
        last = (self.end - 1) >> CHUNK_BITS
        index = start & (CHUNK - 1)
        if not self.counts[value]:
            return runs
        stripped = bytes((value,))
        while count > 0 and number <= last:
            chunk = self._chunks.get(number)
            state = b"" if chunk is None else chunk.read_state()
            base = number << CHUNK_BITS
            while count > 0:
                index = state.find(value, index)
                if index < 0:
                    break
                piece = state[index : index + count]
                length = len(piece) - len(piece.lstrip(stripped))
                if runs and runs[-1] == base + index:
                    runs[-1] += length
                else:
                    runs += (base + index, base + index + length)
                index += length
                count -= length
            number += 1
            index = 0
        return runs

    def find_ready(self, lane: int, count: int) -> Runs:
        """The first `count` ready messages of a lane, in order of offset."""
        runs = self.find(lane << 4, max(self._hints[lane], self.start), count)
        if runs:
            self._hints[lane] = runs[0]
        return runs

    def find_state(self, state: int, start: int = 0) -> Iterator[int]:
        """Every offset in this state, whatever its lane; for rare paths."""
        pattern = _class_of((state,))
        for number in sorted(self._chunks):
            base = number << CHUNK_BITS
            column = self._chunks[number].read_state()
            for match in pattern.finditer(column, max(0, start - base)):
                yield base + match.start()

    # Changing.

    def put(self, start: int, end: int, state: int) -> None:
        """Every message of the run goes to this state and keeps its lane."""
        table = _TO[state]
        counts = self.counts
        while start < end:
            number, first = start >> CHUNK_BITS, start & (CHUNK - 1)
            last = min(CHUNK, first + end - start)
            chunk = self._chunks[number]
            if chunk.packed is not None:
                chunk.unpack()
            column = chunk.own_state()
            old = column[first:last]
            column[first:last] = old.translate(table)
            size = last - first
            values = (old[0],) if old.count(old[0]) == size else tuple(set(old))
            for value in values:
                moved = size if len(values) == 1 else old.count(value)
                counts[value] -= moved
                counts[table[value]] += moved
                if state == READY and start < self._hints[value >> 4]:
                    self._hints[value >> 4] = start
            start += size

    def lease(self, runs: Runs, grant: int, attempts: int) -> None:
        """To LEASED under this grant, being the `attempts`-th delivery."""
        for start, end in pairs(runs):
            self.put(start, end, LEASED)
        for chunk, first, last in self._slices(runs):
            column, grants = chunk.columns(last)
            column[first:last] = bytes((attempts,)) * (last - first)
            grants[first:last] = array("I", (grant,)) * (last - first)

    def regrant(self, start: int, end: int, grant: int) -> None:
        for chunk, first, last in self._slices([start, end]):
            _, grants = chunk.columns(last)
            grants[first:last] = array("I", (grant,)) * (last - first)

    def take_grants(self, runs: Runs) -> dict[int, int]:
        """How many of the runs lay under which grant; none does any more."""
        taken: dict[int, int] = {}
        for chunk, first, last in self._slices(runs):
            chunk.take_grants(first, last, taken)
        return taken

    def give_back(self, start: int, end: int) -> None:
        """To READY, as if the last delivery had not been."""
        self.put(start, end, READY)
        for chunk, first, last in self._slices([start, end]):
            attempts, _ = chunk.columns(last)
            attempts[first:last] = attempts[first:last].translate(_ONE_LESS)

    def reopen(self, offset: int) -> None:
        """Begin here again, if the window begins later: one that is done will be live.
        What lies between stays done, packed as far as its chunks were dropped."""
        if offset >= self.start:
            return
        acked: bytes | None = None
        for number in range(offset >> CHUNK_BITS, (self.start - 1 >> CHUNK_BITS) + 1):
            if number in self._chunks:
                continue
            chunk = self._chunks[number] = Chunk()
            size = min(CHUNK, self.end - (number << CHUNK_BITS))
            if size < CHUNK:
                chunk.state += bytes((ACKED,)) * size
                continue
            packed = self._outcomes.pop(number, None)
            if packed is None:
                acked = packed = acked or zlib.compress(bytes((ACKED,)) * CHUNK, 1)
            chunk.packed = (packed, None)
        self.start = offset

    def revive(self, start: int, end: int, lane: int) -> None:
        """To READY in this lane, as if never delivered. Done states have no lane, so it
        has to be given; the window is open at `start`."""
        value = lane << 4 | READY
        for chunk, first, last in self._slices([start, end]):
            attempts, _ = chunk.columns(last)
            state = chunk.own_state()
            for old in state[first:last]:
                self.counts[old] -= 1
            state[first:last] = bytes((value,)) * (last - first)
            attempts[first:last] = bytes(last - first)
        self.counts[value] += end - start
        self._hints[lane] = min(self._hints[lane], start)

    def attempts_of(self, runs: Runs) -> bytes:
        slices = self._slices(runs)
        return b"".join([chunk.columns(last)[0][first:last] for chunk, first, last in slices])

    def _slices(self, runs: Runs) -> Iterator[tuple[Chunk, int, int]]:
        for start, end in pairs(runs):
            while start < end:
                first = start & (CHUNK - 1)
                last = first + end - start
                chunk = self._chunks[start >> CHUNK_BITS]
                if chunk.packed is not None:
                    chunk.unpack()
                yield chunk, first, last if last < CHUNK else CHUNK
                start += CHUNK - first

    def advance(self) -> bool:
        """Move start over what is done and drop chunks that lie below it."""
        before = self.start
        while self.start < self.end:
            number, index = self.start >> CHUNK_BITS, self.start & (CHUNK - 1)
            chunk = self._chunks[number]
            column = chunk.read_state()
            live = _LIVE.search(column, index)
            if live is not None:
                self.start = (number << CHUNK_BITS) + live.start()
                break
            self.start = min(self.end, (number + 1) << CHUNK_BITS)
            if self.start & (CHUNK - 1) == 0:
                if column.count(ACKED) != len(column):
                    self._outcomes[number] = zlib.compress(bytes(column), 1)
                del self._chunks[number]
        return self.start != before

    def truncate_to(self, end: int) -> None:
        """Forget everything at and above `end`: the log was cut there."""
        if end >= self.end:
            return
        for number in [n for n in self._chunks if n << CHUNK_BITS >= end]:
            del self._chunks[number]
        for number in [n for n in self._outcomes if (n + 1) << CHUNK_BITS > end]:
            outcomes = zlib.decompress(self._outcomes.pop(number))
            if number << CHUNK_BITS < end:
                chunk = self._chunks[number] = Chunk()
                chunk.state += outcomes
        chunk_at = self._chunks.get(end >> CHUNK_BITS)
        if chunk_at is None and end & (CHUNK - 1):
            # It was all acked and dropped; what is left of it still is.
            chunk_at = self._chunks[end >> CHUNK_BITS] = Chunk()
            chunk_at.state += bytes((ACKED,)) * (end & (CHUNK - 1))
        if chunk_at is not None:
            chunk_at.unpack()
            size = end & (CHUNK - 1)
            del chunk_at.own_state()[size:]
            if chunk_at.attempts is not None:
                del chunk_at.attempts[size:]
            if chunk_at.grants is not None:
                del chunk_at.grants[size:]
        self.end = end
        self.start = min(self.start, end)
        self._recount()

    def forget_below(self, offset: int) -> None:
        """The log no longer has what lies below: everything there is done, and
        how it ended is not remembered any more."""
        if offset > self.start:
            if offset > self.end:
                self.extend(offset - self.end, ABSENT)
            for number in sorted(self._chunks):
                base = number << CHUNK_BITS
                if base < offset:
                    chunk = self._chunks[number]
                    if base + CHUNK <= offset and not _LIVE.search(chunk.read_state()):
                        # Done throughout, and about to be dropped as it is.
                        continue
                    chunk.unpack()
                    size = min(len(chunk.state), offset - base)
                    self.put(base, base + size, ABSENT)
            self.advance()
        for number in [n for n in self._outcomes if (n + 1) << CHUNK_BITS <= offset]:
            del self._outcomes[number]

    def pack_idle(self) -> None:
        """Pack every chunk in which only far-away due times are left."""
        current = self.end >> CHUNK_BITS
        for number, chunk in self._chunks.items():
            if (
                number != current
                and chunk.packed is None
                and not _ACTIVE.search(chunk.state, max(0, self.start - (number << CHUNK_BITS)))
            ):
                chunk.pack()

    # Snapshots.

    def pieces(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """(chunk number, packed states, packed attempts) for every chunk."""
        for number, outcomes in self._outcomes.items():
            yield number, outcomes, None
        for number in sorted(self._chunks):
            chunk = self._chunks[number]
            if chunk.packed is not None:
                yield number, *chunk.packed
            else:
                attempts = None if chunk.attempts is None else zlib.compress(chunk.attempts, 1)
                yield number, zlib.compress(chunk.state, 1), attempts

    def restore_piece(self, number: int, state: bytes, attempts: bytes | None) -> None:
        if (number + 1) << CHUNK_BITS <= self.start:
            self._outcomes[number] = state
            return
        chunk = self._chunks[number] = Chunk()
        chunk.packed = (state, attempts)
        chunk.unpack()
        if len(chunk.state) == CHUNK:
            chunk.share_state()
        self._count(chunk)

    def _recount(self) -> None:
        self.counts = [0] * 256
        for chunk in self._chunks.values():
            self._count(chunk)
        self._hints = [self.start] * LANE_COUNT

    def _count(self, chunk: Chunk) -> None:
        column = chunk.read_state()
        for value in set(column):
            self.counts[value] += column.count(value)
