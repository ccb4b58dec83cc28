"""The queue's view: one group on one partition.

The window has a byte for each message; this has the rest: who holds what until
when, what rests before a retry, what failed last time and why. It never decides
alone that a message is given up: it says which ones ran out of attempts, and the
broker, which knows the dead letters, moves them.

A change is an event of the state log. `apply` is the only way an event takes
effect, live and in recovery alike. Live, a settled message waits in SETTLING
between the append of its event and the sync that makes it count, so that nobody
else can have it.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from headrace.core.errors import StaleReceipt
from headrace.core.settings import GroupSettings, Ordering
from headrace.core.values import Receipt
from headrace.engine import state as events
from headrace.engine.clipping import clipped
from headrace.engine.due import DueTimes
from headrace.engine.grant import NOTHING, Failure, Grant, Overdue
from headrace.engine.held_acks import HeldAcks, apply_decision
from headrace.engine.lane import LANE_COUNT
from headrace.engine.latency import Latency, note_returned, since_of_runs
from headrace.engine.order import KeyOrder
from headrace.engine.rates import Rates
from headrace.engine.runs import Runs, below, count_of, offsets_of, pairs, runs_of
from headrace.engine.totals import count_event
from headrace.engine.window import (
    ACKED,
    CANCELLED,
    DEAD,
    DELAYED,
    EXPIRED,
    LEASED,
    MOVING,
    READY,
    RETRYING,
    SETTLING,
    WAITING,
    Window,
    is_done,
)

# Failures are for people to look at: beyond this many at once, the oldest are
# forgotten, and the message keeps its attempts.
FAILURES_MAX = 100_000


class QueueView:
    def __init__(
        self, group_id: int, name: str, settings: GroupSettings, ordering: Ordering, start: int
    ) -> None:
        self.group_id = group_id
        self.name = name
        self.settings = settings
        self.ordering = ordering
        self.window = Window(start)
        self.order = KeyOrder(self.window) if ordering == "key" else None
        self.grants: dict[int, Grant] = {}
        self.held: Counter[str] = Counter()
        self.retries = DueTimes()
        self.failures: dict[int, Failure] = {}
        self.moves: dict[int, events.MoveIntended] = {}
        self.held_acks = HeldAcks()
        # How often messages were redriven in place; also of those that are dead again.
        self.redrives: dict[int, int] = {}
        self.totals: Counter[str] = Counter()
        # The rest is since the view was opened in this process.
        self.stale_receipts = 0
        self.seen_in = [0] * LANE_COUNT
        self.delivered_in = [0] * LANE_COUNT
        self.served_ms: list[int | None] = [None] * LANE_COUNT
        self.rates = Rates()
        self.to_lease = Latency()
        self.to_ack = Latency()
        # Given back unused after their first lease: the next one is no news.
        self.returned: set[int] = set()
        self.next_grant = 1
        self.next_move = 1
        self.deadlines: list[tuple[int, int]] = []
        # Forgetting failures in the order in which they came.
        self._failed: deque[int] = deque()

    @property
    def is_committed(self) -> bool:
        """Whether the group sees messages of a transaction once it was committed."""
        return self.settings.isolation == "read_committed"

    # What can be had.

    def ready(self) -> list[int]:
        """How many messages each lane could give now."""
        if self.ordering != "partition":
            return self.window.ready()
        ready = [0] * LANE_COUNT
        head = self._head()
        if head is not None:
            ready[self.window.value_at(head) >> 4] = 1
        return ready

    def held_back(self) -> list[int]:
        """How many messages of each lane are ready but for others before them: with order
        over the whole partition one goes out at a time."""
        if self.ordering != "partition":
            return [0] * LANE_COUNT
        free = self.ready()
        return [count - free[lane] for lane, count in enumerate(self.window.ready())]

    def take(self, lane: int, count: int) -> Runs:
        """The next `count` ready messages of a lane. They stay ready."""
        if self.ordering != "partition":
            return self.window.find_ready(lane, count)
        head = self._head()
        if head is None or self.window.value_at(head) >> 4 != lane:
            return []
        return [head, head + 1]

    def _head(self) -> int | None:
        """With order over the whole partition: the one message that may go out.
        Anything that was given out and is not done yet keeps all others back."""
        if any(self.window.count_in(state) for state in (LEASED, SETTLING, RETRYING, MOVING)):
            return None
        first = [runs[0] for lane in range(LANE_COUNT) if (runs := self.window.find_ready(lane, 1))]
        return min(first, default=None)

    def next_due_ms(self) -> int | None:
        """When time alone may make something ready: a retry, a lease's end."""
        deadline = self._next_deadline_ms()
        retry = self.retries.next_due_ms()
        return min((due for due in (deadline, retry) if due is not None), default=None)

    def _next_deadline_ms(self) -> int | None:
        while self.deadlines:
            deadline_ms, number = self.deadlines[0]
            if number in self.grants:
                return deadline_ms
            heapq.heappop(self.deadlines)
        return None

    # New messages.

    def extend(self, count: int, lane: int, state: int, keys: Sequence[int] | None) -> None:
        """The next `count` offsets all begin in this lane and state."""
        first = self.window.end
        if not is_done(state):
            self.seen_in[lane] += count
        if self.order is None or keys is None or is_done(state):
            self.window.extend(count, state if is_done(state) else lane << 4 | state)
            return
        self.window.extend(count, lane << 4 | state)
        for offset, key_hash in zip(range(first, first + count), keys, strict=True):
            self.order.set_key(offset, key_hash)
            if state == READY:
                self.order.join(offset)

    def on_due(self, offsets: Iterable[int]) -> None:
        """The delay of these is over (or it is not, and they are done)."""
        due = [o for o in sorted(offsets) if self.is_in(o, DELAYED)]
        if self.order is None:
            self._put(runs_of(due), READY)
            return
        for offset in due:
            self.order.join(offset)

    def expirable(self, offsets: Iterable[int]) -> list[int]:
        """Which of these nobody holds and are not done: their TTL may end them."""
        return [
            o
            for o in sorted(offsets)
            if self.window.start <= o < self.window.end
            and self.window.state_at(o) in (READY, RETRYING, DELAYED, WAITING)
        ]

    def held_in(self, offsets: Iterable[int]) -> set[int]:
        """Which of these are out with a consumer, or about to be settled."""
        return {o for o in offsets if self.is_in(o, LEASED) or self.is_in(o, SETTLING)}

    def is_in(self, offset: int, state: int) -> bool:
        return (
            self.window.start <= offset < self.window.end and self.window.state_at(offset) == state
        )

    # Time.

    def tick(self, now_ms: int) -> Overdue | None:
        """Retries whose time has come are ready. Leases that ran out are
        returned; they stay as they are until their event is applied."""
        if self.retries:
            due = [o for o in sorted(self.retries.pop_due(now_ms)) if self.is_in(o, RETRYING)]
            self._put(runs_of(due), READY)
        over: list[int] = []
        exhausted: list[int] = []
        while self.deadlines and self.deadlines[0][0] <= now_ms:
            _, number = heapq.heappop(self.deadlines)
            grant = self.grants.get(number)
            if grant is not None:
                self._divide(number, grant, over, exhausted)
        if not over and not exhausted:
            return None
        return Overdue(runs_of(sorted(over)), sorted(exhausted))

    def _divide(self, number: int, grant: Grant, over: list[int], exhausted: list[int]) -> None:
        for offset in offsets_of(grant.runs):
            if self.is_in(offset, LEASED) and self.window.grant_at(offset) == number:
                most = grant.max_attempts.get(offset, self.settings.max_attempts)
                spent = self.window.attempts_at(offset) >= most
                (exhausted if spent else over).append(offset)

    def leased_by(self, owner: str | None = None) -> dict[int, Grant]:
        """Offsets under lease, of one owner or of all."""
        return {
            offset: grant
            for number, grant in self.grants.items()
            if owner is None or grant.owner == owner
            for offset in offsets_of(grant.runs)
            if self.is_in(offset, LEASED) and self.window.grant_at(offset) == number
        }

    def holders(self, now_ms: int) -> set[str]:
        """The owners of leases whose time is not over."""
        return {grant.owner for grant in self.grants.values() if grant.until_ms > now_ms}

    def on_delivered(self, lanes: bytes, now_ms: int) -> None:
        """For the statistics: messages of these lanes went out."""
        for lane in set(lanes):
            self.delivered_in[lane] += lanes.count(lane)
            self.served_ms[lane] = now_ms

    # Receipts.

    def check(self, receipt: Receipt) -> StaleReceipt | Grant:
        offset = receipt.offset
        window = self.window
        if window.start <= offset < window.end and window.state_at(offset) == LEASED:
            grant = self.grants[window.grant_at(offset)]
            if grant.nonce == receipt.nonce and window.attempts_at(offset) == receipt.attempt:
                return grant
        return StaleReceipt(
            f"the lease on offset {offset} of partition {receipt.partition} is over: it ended, "
            "was settled already, or the message went to another consumer"
        )

    def max_attempts_of(self, offset: int, grant: Grant) -> int:
        return grant.max_attempts.get(offset, self.settings.max_attempts)

    def is_held(self, start: int, end: int, nonce: int, attempt: int) -> Grant | None:
        """The grant when the whole run lies under one, with this nonce."""
        window = self.window
        if not (window.start <= start and end <= window.end):
            return None
        number = window.uniform_grant(start, end, attempt)
        grant = self.grants.get(number) if number else None
        return grant if grant is not None and grant.nonce == nonce else None

    # Events.

    def reserve(self, runs: Runs, state: int = SETTLING) -> None:
        """Their fate is decided and not yet on disk: nobody else may have them."""
        self._ungrant(runs)
        self._put(runs, state)

    def apply(self, event: events.GroupEvent) -> None:
        """What an event says of messages below the window's start is void: the log lost
        them, while the event waited to be synced or, in a replay, at any time since."""
        count_event(self.totals, event)
        if isinstance(event, events.MessageEvent) and event.runs:
            if isinstance(event, events.AckHeld):
                # Whole: how many were acked is counted when it is decided.
                self.held_acks.hold(event)
            if event.runs[0] < self.window.start and not isinstance(event, events.Revived):
                event = clipped(event, self.window.start)
        match event:
            case events.Granted():
                self.lease(event)
            case events.Acked():
                self._finish(event.runs, ACKED)
            case events.Retried():
                self._on_retried(event)
            case events.LeaseEnded():
                self._ungrant(event.runs)
                self._put(event.runs, READY)
                for offset in offsets_of(event.runs):
                    self.note_failure(
                        offset, Failure(event.at, "the lease ended without an answer")
                    )
            case events.Released():
                note_returned(self, event.runs)
                self._ungrant(event.runs)
                for start, end in pairs(event.runs):
                    self.window.give_back(start, end)
            case events.Extended():
                self._on_extended(event)
            case events.Expired():
                self._finish(event.runs, EXPIRED)
            case events.MoveIntended():
                self._ungrant(event.runs)
                self._put(event.runs, MOVING)
                if event.runs:
                    self.moves[event.move] = event
                self.next_move = max(self.next_move, event.move + 1)
            case events.MoveDone():
                self.moves.pop(event.move, None)
                self._finish(event.runs, event.outcome)
            case events.Purged():
                self._finish(event.runs, CANCELLED)
            case events.AckHeld():
                self.reserve(event.runs)
                self.next_grant = max(self.next_grant, event.grant + 1)
            case events.Revived():
                self._on_revived(event)
            case events.HeldDecided():
                apply_decision(self, event)
            case events.SnapshotGroup():
                self.window.restore(event.start, event.end)
            case events.SnapshotRest():
                self._restore(event)
            case events.SnapshotChunk():
                self.window.restore_piece(event.number, event.state, event.attempts)
            case events.SnapshotKeys():
                if self.order is not None:
                    self.order.restore_piece(event.number, event.keys)
            case events.Opened():
                pass
            case _:
                assert_never(event)

    def cancel(self, runs: Runs) -> None:
        """Delayed messages that were called off, for every group. In a replay
        their time may have come since, so that they look ready."""
        cancelled = [o for o in offsets_of(runs) if self.is_in(o, DELAYED) or self.is_in(o, READY)]
        for start, end in pairs(runs_of(cancelled)):
            self.window.put(start, end, CANCELLED)
        self.totals["cancelled"] += len(cancelled)
        self.window.advance()

    def truncate_to(self, end: int) -> None:
        self.window.truncate_to(end)
        self.moves = {
            move.move: msgspec.structs.replace(move, runs=below(move.runs, end))
            for move in self.moves.values()
            if move.runs[0] < end
        }
        self.held_acks.truncate_to(end)
        if self.order is not None and not self.order.is_asleep:
            self.order.rebuild()
        self.failures = {o: f for o, f in self.failures.items() if o < end}
        self.redrives = {o: times for o, times in self.redrives.items() if o < end}
        self.returned = {o for o in self.returned if o < end}
        resting = [(due, o) for due, o in self.retries if o < end]
        self.retries.clear()
        for due, offset in resting:
            self.retries.add(due, offset)
        kept = {}
        for number, grant in self.grants.items():
            runs = runs_of(o for o in offsets_of(grant.runs) if o < end)
            if runs:
                grant.runs = runs
                kept[number] = grant
        self.grants = kept
        self.held = Counter()
        for number, grant in self.grants.items():
            grant.live = sum(
                1
                for o in offsets_of(grant.runs)
                if self.is_in(o, LEASED) and self.window.grant_at(o) == number
            )
            self.held[grant.owner] += grant.live

    def forget_below(self, start: int) -> None:
        """The log begins here now: what lay before is gone, and nobody owes it."""
        last = min(start, self.window.end)
        if last > self.window.start:
            self._ungrant([self.window.start, last])
        self.window.forget_below(start)
        self.moves = {number: m for number, m in self.moves.items() if m.runs[-1] > start}
        self.failures = {o: f for o, f in self.failures.items() if o >= start}
        self.redrives = {o: times for o, times in self.redrives.items() if o >= start}
        if self.order is not None and not self.order.is_asleep:
            self.order.rebuild()

    def lease(self, event: events.Granted) -> None:
        """Put messages under a grant, however they came to it."""
        grant = Grant(event.owner, event.nonce, event.at, event.until, event.runs, event.tie)
        grant.live = count_of(event.runs)
        first = event.attempts[0] if event.attempts else 0
        if event.attempts.count(first) == len(event.attempts):
            self.window.lease(event.runs, event.grant, first)
        else:
            for run, attempts in zip(pairs(event.runs), event.attempts, strict=True):
                self.window.lease([*run], event.grant, attempts)
        self._add_grant(event.grant, grant)

    def _on_extended(self, event: events.Extended) -> None:
        maxima: dict[int, int] = {}
        tie = NOTHING
        for start, end in pairs(event.runs):
            for number in self.window.grants_in(start, end):
                tie = self.grants[number].tie
                maxima.update(self.grants[number].max_attempts)
        since = since_of_runs(self, event.runs)
        self._ungrant(event.runs)
        grant = Grant(event.owner, event.nonce, event.at, event.until, event.runs, tie)
        grant.max_attempts = maxima
        grant.since = since
        for start, end in pairs(event.runs):
            self.window.regrant(start, end, event.grant)
            grant.live += end - start
        self._add_grant(event.grant, grant)

    def _add_grant(self, number: int, grant: Grant) -> None:
        self.next_grant = max(self.next_grant, number + 1)
        if grant.live:
            self.grants[number] = grant
            self.held[grant.owner] += grant.live
            heapq.heappush(self.deadlines, (grant.until_ms, number))

    def _on_retried(self, event: events.Retried) -> None:
        self._ungrant(event.runs)
        self._put(event.runs, RETRYING)
        for offset in offsets_of(event.runs):
            self.retries.add(event.due, offset)
            self.note_failure(offset, Failure(event.at, event.error))

    def _on_revived(self, event: events.Revived) -> None:
        for (start, end), mark in zip(pairs(event.runs), event.marks, strict=True):
            lane, redrives, key_hash = mark
            self.window.reopen(start)
            self._ungrant([start, end])
            self.window.revive(start, end, lane)
            for offset in range(start, end):
                self.redrives[offset] = redrives
                if self.order is not None:
                    self.order.set_key(offset, key_hash)
                    self.order.rejoin(offset)

    def note_failure(self, offset: int, failure: Failure) -> None:
        if offset not in self.failures:
            self._failed.append(offset)
            while len(self._failed) > FAILURES_MAX:
                self.failures.pop(self._failed.popleft(), None)
        self.failures[offset] = failure

    def _finish(self, runs: Runs, outcome: int) -> None:
        self._ungrant(runs)
        self._put(runs, outcome)
        if self.order is not None and not self.order.is_asleep:
            for offset in offsets_of(runs):
                self.order.on_done(offset)
        if self.failures:
            for offset in offsets_of(runs):
                self.failures.pop(offset, None)
        if self.redrives and outcome != DEAD:
            for offset in offsets_of(runs):
                self.redrives.pop(offset, None)
        if runs and runs[0] == self.window.start:
            self.window.advance()
            if self.order is not None:
                self.order.forget_below(self.window.start)

    def _ungrant(self, runs: Runs) -> None:
        for number, count in self.window.take_grants(runs).items():
            grant = self.grants[number]
            grant.live -= count
            self.held[grant.owner] -= count
            if self.held[grant.owner] <= 0:
                del self.held[grant.owner]
            if grant.live <= 0:
                del self.grants[number]

    def _put(self, runs: Runs, state: int) -> None:
        for start, end in pairs(runs):
            self.window.put(start, end, state)

    # Snapshots.

    def _restore(self, event: events.SnapshotRest) -> None:
        self.next_grant = event.next_grant
        self.next_move = event.next_move
        self.retries.add_many(array("q", event.retry_due), array("q", event.retry_offsets))
        for offset, at_ms, error in event.failures:
            self.note_failure(offset, Failure(at_ms, error))
        for granted in event.grants:
            self.lease(granted)
        self.totals = Counter(event.totals)
        self.moves = {move.move: move for move in event.moves}
        for held in event.held:
            self.held_acks.hold(held)
        self.redrives = dict(event.redrives)
