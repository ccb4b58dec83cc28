"""A share group against a plain table of what every message is."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.engine.conftest import Bench
from tests.unit.engine.share_bench import Shares, offsets_in

from headrace.core.errors import StaleReceipt
from headrace.core.limits import SHARE_RANGES_MAX
from headrace.engine.sharing import ACCEPT, GAP, REJECT, RELEASE, RENEW

MAX_ATTEMPTS = 3
MEMBERS = ("m1", "m2")
READY, DONE, DEAD = "ready", "done", "dead"

members = st.sampled_from(MEMBERS)
kinds = st.sampled_from((GAP, ACCEPT, RELEASE, REJECT, RENEW))


class SharedGroup(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.bench.make(group={"backoff_ms": 0, "max_attempts": MAX_ATTEMPTS})
        self.shares = Shares(self.bench)
        # What each message is (ready, done, dead, or whose), and its deliveries.
        self.status: list[str] = []
        self.attempts: list[int] = []
        # Something to begin with, most of it held: few examples have time to get
        # here by themselves.
        self.publish(20, False)
        self.publish(3, True)
        self.acquire("m1", 8)
        self.acquire("m2", 8)

    def teardown(self) -> None:
        self.bench.close()

    def start(self) -> int:
        over = (n for n, status in enumerate(self.status) if status not in (DONE, DEAD))
        return next(over, len(self.status))

    def fail(self, offset: int) -> None:
        self.status[offset] = DEAD if self.attempts[offset] >= MAX_ATTEMPTS else READY

    def held_by(self, member: str) -> list[int]:
        return [n for n, status in enumerate(self.status) if status == member]

    @rule(count=st.integers(1, 40), urgent=st.booleans())
    def publish(self, count: int, urgent: bool) -> None:
        self.bench.publish(*[b"x"] * count, priority="critical" if urgent else "normal")
        self.status += [READY] * count
        self.attempts += [0] * count

    @rule(member=members, count=st.integers(1, 60))
    def acquire(self, member: str, count: int) -> None:
        ready = self.status.count(READY)
        found = self.shares.acquire_all(member, count)
        ranges = found[0].ranges if found else []
        assert ranges == sorted(ranges) and len(ranges) <= SHARE_RANGES_MAX
        given = [o for start, end, _ in ranges for o in range(start, end)]
        if len(ranges) < SHARE_RANGES_MAX // 2:
            assert len(given) == min(count, ready)
        for start, end, deliveries in ranges:
            for offset in range(start, end):
                assert self.status[offset] == READY
                self.attempts[offset] += 1
                assert self.attempts[offset] == deliveries
                self.status[offset] = member
        assert set(given) <= set(offsets_in(found[0]) if found else ())

    @rule(member=members, data=st.data())
    def settle_some(self, member: str, data: st.DataObject) -> None:
        held = self.held_by(member)
        if held:
            chosen = sorted(data.draw(st.sets(st.sampled_from(held), min_size=1, max_size=20)))
            types = data.draw(st.lists(kinds, min_size=len(chosen), max_size=len(chosen)))
            self.shares.settle(
                *[(o, o, [kind]) for o, kind in zip(chosen, types, strict=True)], member=member
            )
            for offset, kind in zip(chosen, types, strict=True):
                self.take_note(offset, kind)

    @rule(member=members, first=st.integers(0, 40), size=st.integers(1, 12), kind=kinds)
    def settle_a_range(self, member: str, first: int, size: int, kind: int) -> None:
        """Whoever holds it: all of it is taken, or nothing."""
        last = min(first + size, len(self.status)) - 1
        if last < first:
            return
        start = self.start()
        asked = [o for o in range(first, last + 1) if o >= start]
        if kind == GAP:
            asked = [o for o in asked if self.status[o] in MEMBERS]
        if all(self.status[offset] == member for offset in asked):
            self.shares.settle((first, last, [kind]), member=member)
            for offset in asked:
                self.take_note(offset, kind)
            return
        with suppress(StaleReceipt):
            self.shares.settle((first, last, [kind]), member=member)
            raise AssertionError("what others hold cannot be settled")

    def take_note(self, offset: int, kind: int) -> None:
        if kind == ACCEPT:
            self.status[offset] = DONE
        elif kind == REJECT:
            self.status[offset] = DEAD
        elif kind in (RELEASE, GAP):
            self.fail(offset)

    @rule(member=members)
    def close_session(self, member: str) -> None:
        self.shares.close(member)
        for offset in self.held_by(member):
            self.status[offset] = READY
            self.attempts[offset] -= 1

    @rule(member=members)
    def lose(self, member: str) -> None:
        self.shares.lose(member)
        for offset in self.held_by(member):
            self.fail(offset)

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        if kill:
            self.bench.crash()
        else:
            self.bench.reopen()
        for offset, status in enumerate(self.status):
            if status in MEMBERS:
                self.fail(offset)

    @invariant()
    def the_start_is_the_first_that_is_not_over(self) -> None:
        view = next(iter(self.bench.partition().views.values()))
        assert view.window.start == self.start()
        assert view.held.total() == sum(status in MEMBERS for status in self.status)

    @invariant()
    def every_dead_one_is_a_letter_once(self) -> None:
        if DEAD in self.status:
            letters = self.bench.node.dead_letters(self.bench.topic, limit=1_000)
            dead = [n for n, status in enumerate(self.status) if status == DEAD]
            assert sorted(letter.source.offset for letter in letters) == dead


SharedGroup.TestCase.settings = settings(stateful_step_count=40)
TestSharedGroup = SharedGroup.TestCase
