"""The window against a plain dictionary.

Chunks are made 16 offsets small, so that every history crosses their borders.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.engine import window as states
from headrace.engine.lane import LANE_COUNT
from headrace.engine.runs import offsets_of, runs_of
from headrace.engine.window import Window

CHUNK_BITS = 4
LIVE = (
    states.READY,
    states.LEASED,
    states.SETTLING,
    states.RETRYING,
    states.DELAYED,
    states.MOVING,
    states.WAITING,
)
DONE = (states.ACKED, states.DEAD, states.EXPIRED, states.CANCELLED, states.ABSENT)
# How a message ended is remembered, but for what never was one.
UNKNOWN = (states.ACKED, states.ABSENT)


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("headrace.engine.") and hasattr(module, "CHUNK_BITS"):
                patch.setattr(module, "CHUNK_BITS", CHUNK_BITS)
                patch.setattr(module, "CHUNK", 1 << CHUNK_BITS)
        yield


class Cell:
    """The twin's picture of one message."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.attempts = 0
        self.grant = 0

    @property
    def state(self) -> int:
        return self.value & states.STATE_MASK

    def become(self, state: int) -> None:
        self.value = state if state >= states.ACKED else self.value & 0xF0 | state


class WindowAgainstDictionary(RuleBasedStateMachine):
    @initialize(start=st.integers(0, 40))
    def begin(self, start: int) -> None:
        self.window = Window(start)
        self.first = self.start = self.end = start
        self.cells: dict[int, Cell] = {}
        self.next_grant = 1

    def run_in(self, data: st.DataObject, *wanted: int) -> tuple[int, int] | None:
        """A run of offsets from start on that are all in one of these states."""
        allowed = [o for o in range(self.start, self.end) if self.cells[o].state in wanted]
        if not allowed:
            return None
        first = data.draw(st.sampled_from(allowed))
        last = first
        while last + 1 in allowed and last - first < 20:
            last += 1
        return first, data.draw(st.integers(first + 1, last + 1))

    # Changes.

    @rule(count=st.integers(1, 40), lane=st.integers(0, 4), state=st.sampled_from(LIVE + DONE))
    def extend(self, count: int, lane: int, state: int) -> None:
        value = state if state in DONE else lane << 4 | state
        if state in (states.LEASED, states.SETTLING):
            return
        self.window.extend(count, value)
        for offset in range(self.end, self.end + count):
            self.cells[offset] = Cell(value)
        self.end += count

    @rule(data=st.data(), state=st.sampled_from(LIVE + DONE))
    def put(self, data: st.DataObject, state: int) -> None:
        found = self.run_in(data, *LIVE)
        if found is None or state == states.LEASED:
            return
        self.window.put(*found, state)
        self.window.take_grants([*found])
        for offset in range(*found):
            self.cells[offset].become(state)
            self.cells[offset].grant = 0

    @rule(data=st.data(), attempts=st.integers(1, 255))
    def lease(self, data: st.DataObject, attempts: int) -> None:
        found = self.run_in(data, states.READY)
        if found is None:
            return
        self.window.lease([*found], self.next_grant, attempts)
        for offset in range(*found):
            cell = self.cells[offset]
            cell.become(states.LEASED)
            cell.attempts, cell.grant = attempts, self.next_grant
        assert self.window.uniform_grant(found[0], found[0] + 1, attempts) == self.next_grant
        self.next_grant += 1

    @rule(data=st.data())
    def regrant(self, data: st.DataObject) -> None:
        found = self.run_in(data, states.LEASED)
        if found is None:
            return
        self.window.regrant(*found, self.next_grant)
        for offset in range(*found):
            self.cells[offset].grant = self.next_grant
        self.next_grant += 1

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        found = self.run_in(data, states.LEASED)
        if found is None:
            return
        expected: dict[int, int] = {}
        for offset in range(*found):
            cell = self.cells[offset]
            expected[cell.grant] = expected.get(cell.grant, 0) + 1
            cell.become(states.READY)
            cell.attempts, cell.grant = max(0, cell.attempts - 1), 0
        assert self.window.take_grants([*found]) == expected
        self.window.give_back(*found)

    @rule()
    def advance(self) -> None:
        before = self.start
        while self.start < self.end and self.cells[self.start].state in DONE:
            self.start += 1
        assert self.window.advance() == (self.start != before)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.first, self.end + 3))
        self.window.truncate_to(end)
        if end < self.end:
            self.end = end
            self.start = min(self.start, end)
            self.cells = {o: cell for o, cell in self.cells.items() if o < end}

    @rule(data=st.data())
    def forget_below(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.first, self.end + 20))
        self.window.forget_below(offset)
        if offset <= self.start:
            # What was forgotten may be told as acked from here on.
            for below in range(self.first, offset):
                if below in self.cells and (below >> CHUNK_BITS) < offset >> CHUNK_BITS:
                    self.cells[below].become(states.ABSENT)
            return
        for missing in range(self.end, offset):
            self.cells[missing] = Cell(states.ABSENT)
        self.end = max(self.end, offset)
        for below in range(self.first, offset):
            if below in self.cells:
                self.cells[below].become(states.ABSENT)
        while self.start < self.end and self.cells[self.start].state in DONE:
            self.start += 1

    @rule()
    def pack_idle(self) -> None:
        self.window.pack_idle()

    @precondition(lambda self: not self.leased())
    @rule()
    def restore_from_a_snapshot(self) -> None:
        # Grants are not in a window's snapshot: the group writes them again.
        restored = Window(0)
        restored.restore(self.window.start, self.window.end)
        for piece in self.window.pieces():
            restored.restore_piece(*piece)
        self.window = restored

    def leased(self) -> list[int]:
        return [o for o, cell in self.cells.items() if cell.state == states.LEASED]

    # What must hold.

    @invariant()
    def every_message_is_as_the_twin_says(self) -> None:
        if not hasattr(self, "window"):
            return
        window = self.window
        assert (window.start, window.end) == (self.start, self.end)
        for offset, cell in self.cells.items():
            if offset >= self.start:
                assert window.value_at(offset) == cell.value
                assert window.attempts_at(offset) == cell.attempts
            elif cell.state in UNKNOWN:
                assert window.state_at(offset) in UNKNOWN
            else:
                assert window.state_at(offset) == cell.state
            if cell.state == states.LEASED:
                assert window.grant_at(offset) == cell.grant

    @invariant()
    def counts_of_live_messages_are_exact(self) -> None:
        if not hasattr(self, "window"):
            return
        live = [cell.value for cell in self.cells.values() if cell.state in LIVE]
        for state in LIVE:
            assert self.window.count_in(state) == sum(
                1 for value in live if value & states.STATE_MASK == state
            )
        for lane in range(LANE_COUNT):
            assert self.window.ready_in(lane) == live.count(lane << 4)

    @invariant()
    def ready_messages_come_in_order(self) -> None:
        if not hasattr(self, "window"):
            return
        for lane in range(LANE_COUNT):
            ready = [o for o in sorted(self.cells) if self.cells[o].value == lane << 4]
            for count in (1, 3, 1_000):
                assert self.window.find_ready(lane, count) == runs_of(ready[:count])

    @rule(data=st.data(), state=st.sampled_from(LIVE))
    def a_state_is_found_wherever_it_is(self, data: st.DataObject, state: int) -> None:
        start = data.draw(st.integers(self.first, self.end + 1))
        found = list(self.window.find_state(state, start))
        assert found == [
            o for o in sorted(self.cells) if o >= start and self.cells[o].state == state
        ]

    @rule(data=st.data())
    def columns_are_read_over_borders(self, data: st.DataObject) -> None:
        found = self.run_in(data, *LIVE)
        if found is None:
            return
        cells = [self.cells[o] for o in offsets_of(list(found))]
        assert self.window.attempts_of([*found]) == bytes(cell.attempts for cell in cells)
        assert self.window.grants_in(*found) == {cell.grant for cell in cells if cell.grant}


TestWindow = pytest.mark.timeout(3_600)(WindowAgainstDictionary.TestCase)
# A history takes a few milliseconds, so there may be more of them.
TestWindow.settings = settings(max_examples=4 * settings().max_examples)
