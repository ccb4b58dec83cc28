"""Leasing: which messages come next, and whose they are for a while.

The lane is chosen across partitions, then the partition, in turn. A lease of many
gives the messages that as many leases of one would give from each lane, in that
order of lanes; only the partition changes with the call and not with the message, so
that a call reads and writes few of them. What one lease reads has a bound: records are
read in the order of lanes, and what was not come to stays ready and costs its lane
nothing. A lease is written down before it is handed out, so that a message that kills
its worker runs out of attempts; that write is not waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import NamedTuple

from headrace.core import limits
from headrace.core.errors import CorruptLog, InvalidArgument, TooManyLeases
from headrace.core.ports import Entropy
from headrace.core.values import Delivery
from headrace.core.wording import counted
from headrace.engine import state as events
from headrace.engine import statistics
from headrace.engine.catalog import Group, Topic
from headrace.engine.delayed import on_delivered
from headrace.engine.fate import Fates
from headrace.engine.grant import Failure, count_attempts
from headrace.engine.groups import Groups, Serving
from headrace.engine.lane import LANE_COUNT
from headrace.engine.latency import on_leased, since_of
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.records import Allowance
from headrace.engine.runs import Runs, count_of, offsets_of, pairs, runs_of
from headrace.record import Record, read_attributes

_offset_of = attrgetter("offset")
_headers_of = attrgetter("headers")


class Wishes(NamedTuple):
    """How a consumer wants its messages."""

    visibility_ms: int | None = None
    # How many wait for the same messages, this one included.
    among: int = 1
    # What its receipts are to prove; a random number unless given.
    nonce: int | None = None
    # What ends its leases beside their deadline (`engine.grant`), if not what ends all that
    # this process gives.
    tie: int | None = None


class Leasing:
    def __init__(self, groups: Groups, fates: Fates, entropy: Entropy, tie: int) -> None:
        """`tie` is that of leases which come without one."""
        self._tie = tie
        self._groups = groups
        self._fates = fates
        self._entropy = entropy

    def lease(
        self,
        group: Group,
        topics: Sequence[Topic],
        consumer: str,
        count: int,
        wishes: Wishes,
        now_ms: int,
    ) -> list[Delivery]:
        """Up to `count` messages, the most urgent first, and up to LEASE_BYTES_MAX of
        them, as far as LEASE_OPENED_BYTES_MAX goes. They are written down as leased
        before they are handed out, and that is not waited for. FencedLeader when other nodes
        lead all that there is."""
        views = self.led_views(group, topics)
        self._fates.tick_for(views, now_ms)
        serving = self._groups.serving(group)
        self._groups.readers.note(group.name, now_ms)
        count = self.within_cap(group, consumer, fair_part(views, count, wishes.among))
        nonce = wishes.nonce
        if nonce is None:
            nonce = int.from_bytes(self._entropy.random_bytes(8), "big")
        tie = self._tie if wishes.tie is None else wishes.tie
        deliveries: list[Delivery] = []
        allowance = Allowance(limits.LEASE_BYTES_MAX, limits.LEASE_OPENED_BYTES_MAX)
        while len(deliveries) < count and not allowance.is_spent:
            plan, taken = self.choose(serving, views, count - len(deliveries), now_ms)
            if not taken:
                break
            found: list[Delivery] = []
            read = _read(plan, taken, allowance)
            if allowance.is_spent:
                served = sum(count_of(runs) for _, runs in read)
                serving.schedule.on_cut_short(served, now_ms)
            for (partition, view, _), (records, runs) in zip(taken, read, strict=True):
                if runs:
                    found += self._grant(
                        partition, view, runs, records, consumer, nonce, tie,
                        wishes.visibility_ms, now_ms,
                    )  # fmt: skip
            deliveries += found if len(plan) == 1 else _in_turn(found, plan)
        for _, view in views:
            statistics.sample(view, now_ms)
        if deliveries:
            serving.consumers.on_leased(consumer, lambda: self._groups.holders(group, now_ms))
        return deliveries

    def led_views(self, group: Group, topics: Sequence[Topic]) -> list[tuple[Partition, QueueView]]:
        """Of the partitions that messages can be had of here."""
        views = self._groups.views(group, topics)
        found = [each for each in views if each[0].stopped is None and each[0].is_leader]
        if not found:
            for partition, _ in views:
                partition.check_here()
        return found

    def within_cap(self, group: Group, consumer: str, count: int) -> int:
        cap = group.settings.leases_per_consumer_max
        held = sum([view.held.get(consumer, 0) for _, view in self._groups.views(group)])
        if held >= cap:
            raise TooManyLeases(
                f"consumer {consumer!r} holds {counted(held, 'message')}, the most allowed; "
                "settle some "
                "first, or raise leases_per_consumer_max of the group"
            )
        return min(count, cap - held)

    def choose(
        self,
        serving: Serving,
        views: Sequence[tuple[Partition, QueueView]],
        count: int,
        now_ms: int,
    ) -> tuple[list[tuple[int, int]], list[tuple[Partition, QueueView, Runs]]]:
        """Decide which messages come next: lanes first, then partitions in turn. Returns
        the schedule's plan, and what of each partition serves it."""
        available = [view.ready() for _, view in views]
        ready = (
            available[0].copy()
            if len(available) == 1
            else [sum(lanes) for lanes in zip(*available, strict=True)] or [0] * LANE_COUNT
        )
        wanted: dict[int, int] = {}
        plan = serving.schedule.plan(ready, count, now_ms)
        for lane, planned in plan:
            wanted[lane] = wanted.get(lane, 0) + planned
        taken: dict[int, Runs] = {}
        for lane, planned in wanted.items():
            for step in range(len(views)):
                number = (serving.turn + step) % len(views)
                if planned and available[number][lane]:
                    view = views[number][1]
                    runs = view.take(lane, within_room(view, planned, taken.get(number, [])))
                    planned -= count_of(runs)
                    taken.setdefault(number, []).extend(runs)
            if planned:
                serving.schedule.on_unserved(lane, planned)
        serving.turn += 1
        return plan, [(*views[number], runs) for number, runs in taken.items() if runs]

    def _grant(
        self,
        partition: Partition,
        view: QueueView,
        runs: Runs,
        records: list[Record],
        consumer: str,
        nonce: int,
        tie: int,
        visibility_ms: int | None,
        now_ms: int,
    ) -> list[Delivery]:
        usual_ms = visibility_ms or view.settings.visibility_ms
        by_deadline: dict[int, list[Record]] = {}
        maxima: dict[int, int] = {}
        due_ms: dict[int, int] = {}
        expired: list[int] = []
        is_plain = not any(map(_headers_of, records))
        if is_plain and records:
            by_deadline[usual_ms] = records
        for record in () if is_plain else records:
            if not record.headers:
                by_deadline.setdefault(usual_ms, []).append(record)
                continue
            wishes = read_attributes(record.headers, record.timestamp_ms)
            if 0 < wishes.expires_at_ms and partition.topic.source_id is None:
                ends_ms = partition.know_attributes().expires_at_ms(record)
                if ends_ms is not None and ends_ms <= now_ms:
                    expired.append(record.offset)
                    continue
            if wishes.deliver_at_ms > record.timestamp_ms and partition.topic.source_id is None:
                due_ms[record.offset] = partition.know_attributes().due_ms(
                    record.offset, wishes.deliver_at_ms, wishes.delay_ms
                )
            if wishes.max_attempts:
                maxima[record.offset] = wishes.max_attempts
            own_ms = visibility_ms or wishes.visibility_ms or usual_ms
            by_deadline.setdefault(own_ms, []).append(record)
        is_whole = len(records) == count_of(runs)
        if not is_whole:
            self._drop_missing(partition, view, runs, records, now_ms)
        if expired:
            self._fates.expire(partition, view, sorted(expired), now_ms)
        changes: list[tuple[QueueView, events.MessageEvent]] = []
        made: list[tuple[events.Granted, list[Record]]] = []
        for own_ms, granted in by_deadline.items():
            own = runs
            if not (is_plain and is_whole and len(runs) == 2):
                granted.sort(key=_offset_of)
                own = runs_of(map(_offset_of, granted))
            split, attempts = count_attempts(view.window, own)
            event = events.Granted(
                view.group_id, view.next_grant, consumer, nonce, now_ms, now_ms + own_ms,
                split, attempts, tie,
            )  # fmt: skip
            view.next_grant += 1
            changes.append((view, event))
            made.append((event, granted))
        if changes:
            partition.write_all(changes, now_ms, wait=False)
        deliveries: list[Delivery] = []
        for event, granted in made:
            if maxima:
                view.grants[event.grant].max_attempts = maxima
            on_leased(view, event, since_of(granted, due_ms, partition.arrivals))
            if due_ms:
                on_delivered(partition, event, due_ms)
            deliveries += self._deliver(partition, view, event, granted, maxima, now_ms)
        if len(made) > 1:
            deliveries.sort(key=_offset_of)
        return deliveries

    @staticmethod
    def _deliver(
        partition: Partition,
        view: QueueView,
        event: events.Granted,
        records: Sequence[Record],
        maxima: Mapping[int, int],
        now_ms: int,
    ) -> list[Delivery]:
        topic, topic_id, index = (
            partition.topic.name,
            partition.topic.id,
            partition.index,
        )
        failures = view.failures
        most = view.settings.max_attempts
        group_id, nonce, until = view.group_id, event.nonce, event.until
        new = tuple.__new__
        mosts: Iterator[int] = repeat(most)
        if maxima:
            mosts = iter([maxima.get(record.offset, most) for record in records])
        attempts: Iterator[int] = repeat(event.attempts[0])
        if event.attempts.count(event.attempts[0]) != len(event.attempts):
            counts = zip(pairs(event.runs), event.attempts, strict=True)
            attempts = chain.from_iterable(
                [repeat(attempt, end - start) for (start, end), attempt in counts]
            )
        lanes = view.window.lanes_of(event.runs)
        view.on_delivered(lanes, now_ms)
        # The tuple is made directly, at half the cost: these are the lines
        # that run once for every message that anybody receives.
        deliveries = [
            new(
                Delivery,
                (
                    topic, index, offset, key, value, headers, created_at_ms, lane, attempt,
                    most, now_ms, until, None, None, topic_id, group_id,
                    nonce,
                ),
            )
            for lane, attempt, (offset, created_at_ms, key, value, headers), most in zip(
                lanes, attempts, records, mosts, strict=False
            )
        ]  # fmt: skip
        if failures:
            deliveries = [_with_failure(made, failures.get(made.offset)) for made in deliveries]
        return deliveries

    @staticmethod
    def _drop_missing(
        partition: Partition, view: QueueView, runs: Runs, records: Sequence[Record], now_ms: int
    ) -> None:
        """Offsets whose records compaction has taken away hold no message."""
        present = {record.offset for record in records}
        missing = [offset for offset in offsets_of(runs) if offset not in present]
        event = events.Purged(view.group_id, "", now_ms, runs_of(sorted(missing)))
        partition.write(view, event, now_ms, wait=False)


def _read(
    plan: Sequence[tuple[int, int]],
    taken: Sequence[tuple[Partition, QueueView, Runs]],
    allowance: Allowance,
) -> list[tuple[list[Record], Runs]]:
    """The records of each partition that serve the plan, in its order as far as the
    allowance goes, and the runs that were gone over."""
    # Where several lanes are ready, messages of others lie between those of one.
    are_scattered = [sum(map(bool, view.window.ready())) > 1 for _, view, _ in taken]
    found: list[tuple[list[Record], Runs]] = [([], []) for _ in taken]
    for number, runs in _steps(plan, taken):
        if allowance.is_spent:
            break
        partition = taken[number][0]
        try:
            records, gone_over = partition.records.read_some(
                runs, partition.high_watermark, allowance, is_scattered=are_scattered[number]
            )
        except CorruptLog as error:
            partition.stop(error)
            raise
        found[number][0].extend(records)
        found[number][1].extend(gone_over)
    return found


def _steps(
    plan: Sequence[tuple[int, int]], taken: Sequence[tuple[Partition, QueueView, Runs]]
) -> list[tuple[int, Runs]]:
    """Which runs of which partition serve the plan, in its order."""
    if len(plan) == 1:
        return [(number, runs) for number, (_, _, runs) in enumerate(taken)]
    lanes: list[deque[tuple[int, int, int]]] = [deque() for _ in range(LANE_COUNT)]
    for number, (_, view, runs) in enumerate(taken):
        for start, end in pairs(runs):
            lanes[view.window.value_at(start) >> 4].append((number, start, end))
    steps: list[tuple[int, Runs]] = []
    for lane, planned in plan:
        left = lanes[lane]
        while planned and left:
            number, start, end = left.popleft()
            if end - start > planned:
                left.appendleft((number, start + planned, end))
                end = start + planned
            planned -= end - start
            if not steps or steps[-1][0] != number:
                steps.append((number, []))
            steps[-1][1].extend((start, end))
    return steps


def _in_turn(deliveries: Sequence[Delivery], plan: Sequence[tuple[int, int]]) -> list[Delivery]:
    """The deliveries in the order of lanes in which they were planned."""
    lanes: list[list[Delivery]] = [[] for _ in range(LANE_COUNT)]
    for delivery in deliveries:
        lanes[delivery.lane].append(delivery)
    reached = [0] * LANE_COUNT
    ordered: list[Delivery] = []
    for lane, count in plan:
        ordered += lanes[lane][reached[lane] : reached[lane] + count]
        reached[lane] += count
    return ordered


def within_room(view: QueueView, count: int, chosen: Runs) -> int:
    """How many of `count` more of one partition may be out at a time, beside those that
    are chosen already."""
    most = view.settings.leases_per_partition_max
    if most is None:
        return count
    return max(0, min(count, most - count_of(chosen) - sum(view.held.values())))


def fair_part(views: Sequence[tuple[Partition, QueueView]], count: int, among: int) -> int:
    """Up to `count`: the part of what is ready that one of so many may take at once."""
    if among <= 1:
        return count
    ready = sum([sum(view.ready()) for _, view in views])
    return max(1, min(count, -(-ready // among)))


def _with_failure(delivery: Delivery, failure: Failure | None) -> Delivery:
    if failure is None:
        return delivery
    return delivery._replace(failed_at_ms=failure.at_ms, error=failure.error)


def check_lease(consumer: str, count: int, visibility_ms: int | None) -> None:
    if not isinstance(consumer, str) or not consumer:
        raise InvalidArgument(f"a consumer id is a non-empty string, not {consumer!r}")
    if isinstance(count, bool) or not isinstance(count, int):
        raise InvalidArgument(f"the number of messages is a number, not {count!r}")
    if not 1 <= count <= limits.LEASE_MESSAGES_MAX:
        raise InvalidArgument(
            f"lease 1 to {limits.LEASE_MESSAGES_MAX} messages at a time, not {count}"
        )
    if visibility_ms is not None and not 1 <= visibility_ms <= limits.VISIBILITY_MS_MAX:
        raise InvalidArgument(
            f"a lease lasts 1 to {limits.VISIBILITY_MS_MAX} ms, not {visibility_ms}"
        )
