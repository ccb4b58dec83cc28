"""Sharing: a queue group as a share group of Kafka's wire sees it (KIP-932).

The group is the same, and so are its leases: a worker here and one there share its
work. What differs is how they talk. A share consumer gets whole batches with the
ranges that are its own, has no receipts (who holds a message is known by the
member's id), and acknowledges ranges; those of one partition hold together or not
at all, and are one batch of the state log.

    accept    ack
    release   nack, with the group's backoff (none in a group that was made on Kafka's
              port); out of attempts, to the dead letters
    reject    to the dead letters
    renew     extend
    gap       nothing there: done; a message that is there is released

Everything goes by runs: a member mostly acknowledges what it was given, as it was
given it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from typing import Final, NamedTuple

from headrace.core import limits
from headrace.core.errors import CorruptLog, HeadraceError, InvalidArgument, StaleReceipt
from headrace.core.ports import Buffer, Entropy
from headrace.engine import state as events
from headrace.engine import statistics
from headrace.engine.catalog import Group
from headrace.engine.commit import Commit
from headrace.engine.cutting import Cutter, Opening
from headrace.engine.delayed import on_delivered
from headrace.engine.fate import Fates
from headrace.engine.grant import SHARE, count_attempts
from headrace.engine.groups import Groups
from headrace.engine.lane import LANE_COUNT
from headrace.engine.latency import Since, on_acked, on_leased
from headrace.engine.leasing import Leasing, fair_part, within_room
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.runs import Runs, below, count_of, merged, offsets_of, pairs, runs_of
from headrace.engine.settling import Held, plan_retries
from headrace.engine.window import CHUNK, LEASED, READY

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4

Range = tuple[int, int, int]
Change = tuple[QueueView, events.MessageEvent]


class Acquired(NamedTuple):
    """Ranges of one partition that a member now holds, (start, end, deliveries),
    and batches that hold their records; or why there are none: they cannot be read, or
    another node leads the partition."""

    partition: Partition
    ranges: list[Range]
    batches: list[Buffer]
    error: HeadraceError | None = None


class Acknowledgement(NamedTuple):
    """Offsets from first to last, with one type for all or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Sharing:
    def __init__(self, groups: Groups, fates: Fates, leasing: Leasing, entropy: Entropy) -> None:
        self._groups = groups
        self._fates = fates
        self._leasing = leasing
        self._entropy = entropy
        self._cutter = Cutter()

    # Acquiring.

    def acquire(
        self,
        group: Group,
        partitions: Sequence[Partition],
        member: str,
        count: int,
        bytes_max: int,
        now_ms: int,
        more: int = 0,
        among: int = 1,
        *,
        of_one: bool = False,
    ) -> list[Acquired]:
        """Up to `count` messages of these partitions, in batches of about
        `bytes_max` together, as far as LEASE_OPENED_BYTES_MAX goes; those of one
        partition in ascending order. Up to `more`
        together where that makes a batch whole. Where several wait for the same messages
        it is at most one's part of what is ready. With `of_one`, of one partition alone."""
        views = [
            (partition, partition.views[group.id])
            for partition in partitions
            if group.id in partition.views and partition.stopped is None and partition.is_leader
        ]
        away = [partition for partition in partitions if partition.is_led_elsewhere]
        self._fates.tick_for(views, now_ms)
        serving = self._groups.serving(group)
        serving.consumers.stay(member)
        self._groups.readers.note(group.name, now_ms)
        if among > 1:
            count, more = fair_part(views, count, among), 0
        room = self._leasing.within_cap(group, member, count + more)
        count = min(count, room)
        more = room - count
        nonce = int.from_bytes(self._entropy.random_bytes(8), "big")
        acquired = [Acquired(partition, [], [], partition.not_led()) for partition in away]
        opening = Opening(limits.LEASE_OPENED_BYTES_MAX)
        _, chosen = self._leasing.choose(serving, views, count, now_ms)
        for partition, view, taken in chosen:
            granted = 0
            if bytes_max > 0:
                longer = _longer(view, taken, within_room(view, more, taken))
                found = self._acquire_in(
                    partition, view, longer, taken[-1], member, nonce, bytes_max, opening, now_ms
                )
                acquired.append(found)
                bytes_max -= sum(map(len, found.batches))
                if found.ranges and (of_one or opening.is_spent):
                    bytes_max = 0
                granted = sum(end - start for start, end, _ in found.ranges)
            beyond = granted - count_of(taken)
            if beyond > 0:
                serving.schedule.on_more(view.window.value_at(taken[0]) >> 4, beyond)
                more -= beyond
            elif beyond < 0:
                # What was planned for and stays ready did not cost its lane anything.
                for lane, unserved in _ready_in(view, taken).items():
                    serving.schedule.on_unserved(lane, unserved)
        return [found for found in acquired if found.ranges or found.error]

    def _acquire_in(
        self,
        partition: Partition,
        view: QueueView,
        taken: Runs,
        enough: int,
        member: str,
        nonce: int,
        bytes_max: int,
        opening: Opening,
        now_ms: int,
    ) -> Acquired:
        ranges = _few(view, taken)
        runs = merged([offset for start, end, _ in ranges for offset in (start, end)])
        enough = min(enough, runs[-1]) if len(taken) == 2 else runs[-1]
        try:
            covered = self._cutter.cover(partition, runs, bytes_max, enough, opening)
            if opening.is_spent and not covered.reaches(taken[0]):
                # Others that lie before the most urgent would keep it waiting.
                urgent = self._cutter.cover(partition, taken[:2], bytes_max, None, opening)
                if urgent.held:
                    covered = urgent
            batches, held, missing, since = covered
        except CorruptLog as error:
            partition.stop(error)
            return Acquired(partition, [], [], error)
        if missing:
            # Compaction has taken their records away.
            gone = events.Purged(view.group_id, "", now_ms, missing)
            partition.write(view, gone, now_ms, wait=False)
        if held != runs:
            ranges = _within(ranges, held)
        if ranges:
            self._grant(partition, view, ranges, held, since, member, nonce, now_ms)
        return Acquired(partition, ranges, batches)

    @staticmethod
    def _grant(
        partition: Partition,
        view: QueueView,
        ranges: Sequence[Range],
        runs: Runs,
        since: Since,
        member: str,
        nonce: int,
        now_ms: int,
    ) -> None:
        wishes = {} if partition.scanner is None else partition.scanner.wishes_in(runs)
        usual_ms = view.settings.visibility_ms
        by_deadline: dict[int, Runs] = {}
        if not any(wish.visibility_ms for wish in wishes.values()):
            by_deadline[usual_ms] = runs
        else:
            each: dict[int, list[int]] = {}
            for offset in offsets_of(runs):
                wish = wishes.get(offset)
                own_ms = (wish.visibility_ms if wish is not None else 0) or usual_ms
                each.setdefault(own_ms, []).append(offset)
            by_deadline = {own_ms: runs_of(offsets) for own_ms, offsets in each.items()}
        changes: list[tuple[QueueView, events.Granted]] = []
        first_grant = view.next_grant
        for own_ms, granted in by_deadline.items():
            if granted is runs:
                split = [offset for start, end, _ in ranges for offset in (start, end)]
                attempts = [attempt for _, _, attempt in ranges]
            else:
                split, attempts = count_attempts(view.window, granted)
            event = events.Granted(
                view.group_id, view.next_grant, member, nonce, now_ms, now_ms + own_ms,
                split, attempts, SHARE,
            )  # fmt: skip
            view.next_grant += 1
            changes.append((view, event))
        partition.write_all(changes, now_ms, wait=False)
        maxima = {o: wish.max_attempts for o, wish in wishes.items() if wish.max_attempts}
        if maxima:
            for number in range(first_grant, view.next_grant):
                view.grants[number].max_attempts = maxima
        view.on_delivered(view.window.lanes_of(runs), now_ms)
        statistics.sample(view, now_ms)
        for _, event in changes:
            on_leased(view, event, since)
            if since.delayed:
                on_delivered(partition, event, since.delayed)

    # Acknowledging.

    def acknowledge(
        self,
        group: Group,
        partition: Partition,
        member: str,
        batches: Sequence[Acknowledgement],
        now_ms: int,
        commit: Commit,
    ) -> None:
        """All of it or nothing: InvalidArgument for ranges that make no sense,
        StaleReceipt when one of the messages is not this member's."""
        partition.check_here()
        view = partition.views.get(group.id)
        if view is None:
            raise StaleReceipt(f"group {group.name!r} does not read {partition.path}")
        self._fates.tick_for([(partition, view)], now_ms)
        by_type = _sort_out(view, member, batches)
        renewed = by_type.get(RENEW)
        if renewed:
            _renew(partition, view, renewed, now_ms)
        changes: list[Change] = []
        if ACCEPT in by_type:
            on_acked(view, by_type[ACCEPT], now_ms)
            acked = _runs(by_type[ACCEPT])
            changes.append((view, events.Acked(view.group_id, member, now_ms, acked)))
        given_up: list[events.Purged | events.MoveIntended] = []
        if RELEASE in by_type:
            retried, spent = plan_retries(view, by_type[RELEASE], None, None, now_ms)
            changes += retried
            if spent:
                given_up += self._fates.plan_to_give_up(
                    partition, view, spent, "max-attempts", now_ms, who=member
                )
        if REJECT in by_type:
            offsets = list(offsets_of(_runs(by_type[REJECT])))
            given_up += self._fates.plan_to_give_up(
                partition, view, offsets, "rejected", now_ms, who=member
            )
        changes += [(view, event) for event in given_up]
        if changes:
            end = partition.write_all(changes, now_ms, wait=True)
            commit.state.append((partition, end))
            self._fates.on_given_up(partition, view, given_up, end, commit)

    # Members that go.

    def release_all(self, group: Group, member: str, now_ms: int) -> list[Partition]:
        """A member closed its session: what it holds goes back and costs no
        attempt. Returns where there was something."""
        freed = []
        for partition, view in self._leave(group, member):
            runs = runs_of(sorted(view.leased_by(member)))
            event = events.Released(view.group_id, member, now_ms, runs)
            partition.write(view, event, now_ms, wait=False)
            freed.append(partition)
        return freed

    def end_leases(self, group: Group, member: str, now_ms: int, commit: Commit) -> list[Partition]:
        """A member is gone without a word, perhaps because of what it was given:
        its leases are over, and each was a delivery."""
        freed = []
        for partition, view in self._leave(group, member):
            ended: list[int] = []
            spent: list[int] = []
            for offset, grant in sorted(view.leased_by(member).items()):
                is_last = view.window.attempts_at(offset) >= view.max_attempts_of(offset, grant)
                (spent if is_last else ended).append(offset)
            if ended:
                event = events.LeaseEnded(view.group_id, now_ms, runs_of(ended))
                partition.write(view, event, now_ms, wait=False)
            if spent:
                self._fates.give_up(
                    partition, view, spent, "max-attempts", now_ms, who=member, commit=commit
                )
            freed.append(partition)
        return freed

    def _leave(self, group: Group, member: str) -> list[tuple[Partition, QueueView]]:
        self._groups.serving(group).consumers.leave(member)
        views = self._groups.views(group)
        return [each for each in views if each[1].held.get(member) and each[0].is_leader]


# Ranges on their way out.


def _longer(view: QueueView, taken: Runs, more: int) -> Runs:
    """The same, up to `more` longer, where that is simply what comes next: one run of
    one lane, and what lies behind it is ready in the same lane."""
    if len(taken) > 2 or more <= 0 or view.ordering == "partition":
        return taken
    start, end = taken
    value = view.window.value_at(start)
    behind = view.window.find(value, end, more)
    return [start, behind[1]] if behind and behind[0] == end else taken


def _few(view: QueueView, taken: Runs) -> list[Range]:
    """Ascending ranges of the runs, not too many. The runs come by lane, the most
    urgent first: those at the end are left for another time."""
    split, attempts = count_attempts(view.window, taken)
    ranges = [(*pair, attempt) for pair, attempt in zip(pairs(split), attempts, strict=True)]
    few: list[Range] = []
    for start, end, attempt in sorted(ranges[: limits.SHARE_RANGES_MAX]):
        if few and few[-1][1:] == (start, attempt):
            start = few.pop()[0]
        few.append((start, end, attempt))
    return few


def _within(ranges: Sequence[Range], runs: Runs) -> list[Range]:
    """The part of the ranges that lies in the runs; both ascend."""
    held: list[Range] = []
    for start, end, attempt in ranges:
        # The run that it begins in, or the next one.
        at = bisect_right(runs, start) & ~1
        while at < len(runs) and runs[at] < end:
            held.append((max(start, runs[at]), min(end, runs[at + 1]), attempt))
            at += 2
    return held


def _ready_in(view: QueueView, taken: Runs) -> Counter[int]:
    """How many of the runs are still ready, by lane."""
    ready: Counter[int] = Counter()
    for start, end in pairs(taken):
        for lane in range(LANE_COUNT):
            found = view.window.find(lane << 4 | READY, start, end - start)
            ready[lane] += count_of(below(found, end))
    return +ready


# Ranges on their way back.


def _sort_out(
    view: QueueView, member: str, batches: Sequence[Acknowledgement]
) -> dict[int, list[Held]]:
    """What is acknowledged in which way; nothing is changed yet."""
    by_type: dict[int, list[Held]] = {}
    window = view.window
    reached = -1
    for first, last, types in batches:
        if first <= reached or last < first:
            raise InvalidArgument("acknowledged ranges must ascend and not overlap")
        if len(types) not in (1, last - first + 1):
            raise InvalidArgument("one type for the range, or one for each offset")
        if not GAP <= min(types) <= max(types) <= RENEW:
            raise InvalidArgument(f"unknown acknowledgement types: {sorted(set(types))}")
        reached = last
        if last < window.start:
            # What lies below the start offset was done long ago.
            continue
        if last >= window.end:
            raise StaleReceipt(f"offset {last} was not given to anybody")
        for start, end, kind in _by_type(first, last + 1, types):
            start = max(start, window.start)
            if start >= end:
                continue
            if kind == GAP:
                # A client that passed over a message calls it a gap.
                kind = RELEASE
                for leased, stop in pairs(_leased(view, start, end)):
                    by_type.setdefault(kind, []).extend(_held(view, member, leased, stop))
            else:
                by_type.setdefault(kind, []).extend(_held(view, member, start, end))
    return {kind: held for kind, held in by_type.items() if held}


def _by_type(first: int, end: int, types: Sequence[int]) -> Iterable[Range]:
    if types.count(types[0]) == len(types):
        return ((first, end, types[0]),)
    ranges = []
    for kind, same in groupby(types):
        size = sum(1 for _ in same)
        ranges.append((first, first + size, kind))
        first += size
    return ranges


def _leased(view: QueueView, start: int, end: int) -> Runs:
    return runs_of(takewhile(lambda offset: offset < end, view.window.find_state(LEASED, start)))


def _held(view: QueueView, member: str, start: int, end: int) -> list[Held]:
    """The whole range as runs under one grant each; StaleReceipt unless all of it
    is the member's."""
    window, grants = view.window, view.grants
    held: list[Held] = []
    while start < end:
        if window.state_at(start) != LEASED:
            raise StaleReceipt(f"offset {start} is not held by this member")
        number, attempt = window.grant_at(start), window.attempts_at(start)
        grant = grants[number]
        if grant.owner != member:
            raise StaleReceipt(f"offset {start} is not held by this member")
        # Mostly what one grant gave is settled in one piece.
        stop = min(end, (start | (CHUNK - 1)) + 1)
        if window.uniform_grant(start, stop, attempt) != number:
            stop = min(stop, _run_end(grant.runs, start))
            if window.uniform_grant(start, stop, attempt) != number:
                stop = start + 1
        held.append(Held(start, stop, attempt, grant))
        start = stop
    return held


def _run_end(runs: Runs, offset: int) -> int:
    at = bisect_right(runs, offset)
    if at % 2 and runs[at - 1] <= offset < runs[at]:
        return runs[at]
    return next((end for start, end in pairs(runs) if start <= offset < end), offset + 1)


def _runs(held: Sequence[Held]) -> Runs:
    return merged([offset for run in held for offset in run[:2]])


def _renew(partition: Partition, view: QueueView, held: Sequence[Held], now_ms: int) -> None:
    """A new deadline. When it is lost the lease ends as it would have."""
    by_nonce: dict[int, list[Held]] = {}
    for run in held:
        by_nonce.setdefault(run.grant.nonce, []).append(run)
    changes: list[Change] = []
    for nonce, same in by_nonce.items():
        event = events.Extended(
            view.group_id, view.next_grant, same[0].grant.owner, nonce, now_ms,
            now_ms + view.settings.visibility_ms, _runs(same),
        )  # fmt: skip
        view.next_grant += 1
        changes.append((view, event))
    partition.write_all(changes, now_ms, wait=False)
