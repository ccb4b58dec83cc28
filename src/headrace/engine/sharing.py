"""Sharing: a queue group as a share group of Kafka's wire sees it (KIP-932).

The group is the same, and so are its leases: a worker here and one there share its
work. What differs is how they talk. A share consumer gets whole batches with the
ranges that are its own, has no receipts (who holds a message is known by the
member's id), and acknowledges ranges; those of one partition hold together or not
at all.

    accept    ack
    release   nack, with the group's backoff; out of attempts, to the dead letters
    reject    to the dead letters
    renew     extend
    gap       nothing there: done; a message that is there is released
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.core.errors import InvalidArgument, StaleReceipt
from headrace.core.ports import Entropy
from headrace.core.values import Receipt
from headrace.engine import state as events
from headrace.engine.catalog import Group
from headrace.engine.commit import Commit
from headrace.engine.fate import Fates
from headrace.engine.groups import Groups
from headrace.engine.leasing import Leasing
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.runs import Runs, offsets_of, pairs, runs_of
from headrace.engine.settling import Settling
from headrace.engine.window import ABSENT, LEASED, SETTLING

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4

# A share consumer takes what it is given in ascending order; more ranges than this
# in one answer would be more trouble than a second answer.
RANGES_MAX: Final = 64


class Acquired(NamedTuple):
    """Ranges of one partition that a member now holds: (start, end, deliveries)."""

    partition: Partition
    ranges: list[tuple[int, int, int]]


class Acknowledgement(NamedTuple):
    """Offsets from first to last, with one type for all or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Sharing:
    def __init__(
        self, groups: Groups, fates: Fates, leasing: Leasing, settling: Settling, entropy: Entropy
    ) -> None:
        self._groups = groups
        self._fates = fates
        self._leasing = leasing
        self._settling = settling
        self._entropy = entropy

    # Acquiring.

    def acquire(
        self,
        group: Group,
        partitions: Sequence[Partition],
        member: str,
        count: int,
        now_ms: int,
    ) -> list[Acquired]:
        """Up to `count` messages of these partitions; those of one partition in
        ascending order."""
        views = [
            (partition, partition.views[group.id])
            for partition in partitions
            if group.id in partition.views and partition.stopped is None
        ]
        self._fates.tick([partition for partition, _ in views], now_ms)
        serving = self._groups.serving(group)
        count = self._leasing.within_cap(group, member, count)
        nonce = int.from_bytes(self._entropy.random_bytes(8), "big")
        acquired = []
        for partition, view, runs in self._leasing.take(serving, views, count, now_ms):
            ranges = self._grant(partition, view, _ascending(runs), member, nonce, now_ms)
            if ranges:
                acquired.append(Acquired(partition, ranges))
        return acquired

    def _grant(
        self,
        partition: Partition,
        view: QueueView,
        runs: Runs,
        member: str,
        nonce: int,
        now_ms: int,
    ) -> list[tuple[int, int, int]]:
        wishes = {} if partition.scanner is None else partition.scanner.wishes_in(runs)
        by_deadline: dict[int, Runs] = {}
        if not wishes:
            by_deadline[view.settings.visibility_ms] = runs
        else:
            each: dict[int, list[int]] = {}
            for offset in offsets_of(runs):
                wish = wishes.get(offset)
                own_ms = view.settings.visibility_ms
                if wish is not None and wish.visibility_ms:
                    own_ms = wish.visibility_ms
                each.setdefault(own_ms, []).append(offset)
            by_deadline = {own_ms: runs_of(offsets) for own_ms, offsets in each.items()}
        changes: list[tuple[QueueView, events.MessageEvent]] = []
        ranges: list[tuple[int, int, int]] = []
        grants: list[int] = []
        for own_ms, granted in by_deadline.items():
            split, attempts = view.count_attempts(granted)
            grants.append(view.next_grant)
            event = events.Granted(
                view.group_id, view.next_grant, member, nonce, now_ms, now_ms + own_ms,
                split, attempts,
            )  # fmt: skip
            view.next_grant += 1
            changes.append((view, event))
            ranges += [
                (start, end, attempt)
                for (start, end), attempt in zip(pairs(split), attempts, strict=True)
            ]
        partition.write_all(changes, now_ms, wait=False)
        maxima = {o: wish.max_attempts for o, wish in wishes.items() if wish.max_attempts}
        for number in grants if maxima else ():
            view.grants[number].max_attempts = maxima
        for start, end, _ in ranges:
            view.on_delivered(start, end, now_ms)
        ranges.sort()
        return ranges

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
        view = partition.views.get(group.id)
        if view is None:
            raise StaleReceipt(f"group {group.name!r} does not read {partition.path}")
        self._fates.tick([partition], now_ms)
        by_type = self._sort_out(view, member, batches)
        settle = self._settling
        for kind, offsets in by_type.items():
            receipts = self._receipts(group, partition, view, offsets)
            if kind == ACCEPT:
                settle.ack(group, receipts, now_ms, commit)
            elif kind == RELEASE:
                settle.nack(group, receipts, None, None, now_ms, commit)
            elif kind == REJECT:
                settle.reject(group, receipts, None, now_ms, commit)
            elif kind == RENEW:
                settle.extend(group, receipts, None, now_ms, commit)

    def _sort_out(
        self, view: QueueView, member: str, batches: Sequence[Acknowledgement]
    ) -> dict[int, list[int]]:
        by_type: dict[int, list[int]] = {}
        reached = -1
        for first, last, types in batches:
            if first <= reached or last < first:
                raise InvalidArgument("acknowledged ranges must ascend and not overlap")
            if len(types) not in (1, last - first + 1):
                raise InvalidArgument("one type for the range, or one for each offset")
            if not all(GAP <= kind <= RENEW for kind in types):
                raise InvalidArgument(f"unknown acknowledgement types: {set(types)}")
            reached = last
            # What lies below the start offset was done long ago.
            start = max(first, view.window.start)
            if start > last:
                continue
            if last >= view.window.end:
                raise StaleReceipt(f"offset {last} was not given to anybody")
            self._sort_range(view, member, start, first, last, types, by_type)
        return by_type

    @staticmethod
    def _sort_range(
        view: QueueView,
        member: str,
        start: int,
        first: int,
        last: int,
        types: Sequence[int],
        by_type: dict[int, list[int]],
    ) -> None:
        window, grants = view.window, view.grants
        for offset in range(start, last + 1):
            kind = types[0] if len(types) == 1 else types[offset - first]
            state = window.state_at(offset)
            if kind == GAP:
                if state in (ABSENT, SETTLING) or state != LEASED:
                    continue
                # A client that passed over a message calls it a gap.
                kind = RELEASE
            if state != LEASED or grants[window.grant_at(offset)].owner != member:
                raise StaleReceipt(f"offset {offset} is not held by this member")
            by_type.setdefault(kind, []).append(offset)

    @staticmethod
    def _receipts(
        group: Group, partition: Partition, view: QueueView, offsets: Sequence[int]
    ) -> list[Receipt]:
        topic_id, index, group_id = partition.topic.id, partition.index, group.id
        window, grants = view.window, view.grants
        return [
            Receipt(
                topic_id,
                index,
                group_id,
                offset,
                window.attempts_at(offset),
                grants[window.grant_at(offset)].nonce,
            )
            for offset in offsets
        ]

    def release_all(self, group: Group, member: str, now_ms: int) -> None:
        """A member is gone: what it holds goes back and costs no attempt."""
        self._settling.leave(group, member, now_ms)


def _ascending(runs: Runs) -> Runs:
    """Runs of several lanes, in order of offset and not too many."""
    ordered: Runs = []
    for start, end in sorted(pairs(runs)):
        if ordered and ordered[-1] == start:
            ordered[-1] = end
        elif len(ordered) < 2 * RANGES_MAX:
            ordered += (start, end)
    return ordered
