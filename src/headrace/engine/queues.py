"""Queue groups: leasing and settling over the partitions of their topics.

The lane is chosen across partitions, then the partition, in turn. What a call
changed is collected in a Commit: the caller answers once that is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.core import limits
from headrace.core.errors import (
    CorruptLog,
    GroupKindMismatch,
    HeadraceError,
    InvalidArgument,
    InvalidName,
    InvalidReceipt,
    LimitExceeded,
    TooManyLeases,
    UnknownGroup,
)
from headrace.core.ports import Entropy
from headrace.core.settings import GroupSettings
from headrace.core.values import Delivery, QueueStatistics, Receipt, check_name
from headrace.engine import state as events
from headrace.engine import statistics
from headrace.engine.catalog import (
    DEAD_LETTER_GROUP,
    Group,
    GroupAltered,
    GroupCreated,
    GroupDeleted,
    GroupSubscribed,
    Topic,
)
from headrace.engine.commit import Commit
from headrace.engine.lane import LANE_COUNT, LaneSchedule
from headrace.engine.move import Moves
from headrace.engine.partition import Partition
from headrace.engine.queue import Grant, QueueView
from headrace.engine.runs import Runs, count_of, runs_of
from headrace.engine.statistics import Rates
from headrace.engine.topics import Topics
from headrace.engine.window import DEAD, EXPIRED
from headrace.record import Record, read_attributes

Outcome = HeadraceError | None
Held = tuple[int, Receipt, Grant]


class Serving:
    """What a group keeps in memory while it is served: whose turn it is."""

    def __init__(self, settings: GroupSettings) -> None:
        self.schedule = LaneSchedule(settings.starvation_ms)
        self.rates = Rates()
        self.turn = 0
        self.consumers: set[str] = set()


class Queues:
    def __init__(self, topics: Topics, moves: Moves, entropy: Entropy) -> None:
        self._topics = topics
        self._moves = moves
        self._entropy = entropy
        self._serving: dict[int, Serving] = {}

    # Groups.

    def named(self, name: str) -> Group:
        group = self._topics.catalog.groups.get(name) if isinstance(name, str) else None
        if group is None:
            check_name("group", name)
            raise UnknownGroup(
                f"there is no queue group {name!r}; a group is made by the first queue(..., "
                f"group={name!r})"
            )
        return group

    def serving(self, group: Group) -> Serving:
        found = self._serving.get(group.id)
        if found is None:
            found = self._serving[group.id] = Serving(group.settings)
        return found

    def open(
        self,
        name: str,
        topics: Sequence[Topic],
        settings: Mapping[str, Any],
        now_ms: int,
        commit: Commit,
        *,
        internal: bool = False,
    ) -> Group:
        """Make the group where needed and let it read these topics."""
        check_name("group", name)
        if name.startswith("__") and not internal:
            raise InvalidName(f"{name!r}: names that begin with two underscores are ours")
        catalog = self._topics.catalog
        group = catalog.groups.get(name)
        if group is None:
            if len(catalog.groups) >= limits.GROUPS_MAX:
                raise LimitExceeded(f"there are {limits.GROUPS_MAX} groups, the most allowed")
            wanted = GroupSettings.from_mapping(settings)
            event = GroupCreated(catalog.next_group, name, "queue", wanted.to_mapping())
            self._topics.change([event], now_ms)
        elif group.kind != "queue":
            raise GroupKindMismatch(f"group {name!r} reads as a stream; choose another name")
        elif settings:
            self.alter(group, settings, now_ms)
        group = self.named(name)
        for topic in topics:
            if topic.id not in group.topics:
                self._topics.change([GroupSubscribed(group.id, topic.id)], now_ms)
                group = self.named(name)
            self.open_views(group, self._topics.partitions(topic), now_ms, commit)
        return group

    def open_views(
        self, group: Group, partitions: Sequence[Partition], now_ms: int, commit: Commit
    ) -> None:
        for partition in partitions:
            if group.id not in partition.views:
                earliest = group.settings.start == "earliest"
                start = partition.log.start_offset if earliest else partition.high_watermark
                partition.open_view(group, start, now_ms)
                assert partition.state is not None
                commit.state.append((partition, partition.state.log.end_offset))

    def alter(self, group: Group, settings: Mapping[str, Any], now_ms: int) -> Group:
        changed = group.settings.changed(settings)
        if changed != group.settings:
            self._topics.change([GroupAltered(group.id, changed.to_mapping())], now_ms)
            self.serving(group).schedule = LaneSchedule(changed.starvation_ms)
            for _, view in self._views(group):
                view.settings = changed
        return self.named(group.name)

    def delete(self, group: Group, now_ms: int, commit: Commit) -> None:
        self._topics.change([GroupDeleted(group.id)], now_ms)
        for partition, _ in self._views(group):
            partition.close_view(group.id, now_ms)
            assert partition.state is not None
            commit.state.append((partition, partition.state.log.end_offset))
        self._serving.pop(group.id, None)

    def _views(
        self, group: Group, topics: Sequence[Topic] | None = None
    ) -> list[tuple[Partition, QueueView]]:
        catalog = self._topics.catalog
        if topics is None:
            topics = [catalog.topics_by_id[i] for i in group.topics if i in catalog.topics_by_id]
        return [
            (partition, partition.views[group.id])
            for topic in topics
            for partition in self._topics.partitions(topic)
            if group.id in partition.views
        ]

    # Time.

    def tick(
        self, partitions: Sequence[Partition], now_ms: int, commit: Commit | None = None
    ) -> None:
        """Whatever time alone brings: ends of delays, leases, lives."""
        for partition in partitions:
            for group_id, offsets in partition.tick_delays(now_ms).items():
                self._expire(partition, partition.views[group_id], offsets, now_ms)
            for view in partition.views.values():
                overdue = view.tick(now_ms)
                if overdue is None:
                    continue
                if overdue.ended:
                    event = events.LeaseEnded(view.group_id, now_ms, overdue.ended)
                    partition.write(view, event, now_ms, wait=False)
                if overdue.exhausted:
                    self.give_up(
                        partition, view, overdue.exhausted, "max-attempts", now_ms, commit=commit
                    )

    def _expire(
        self, partition: Partition, view: QueueView, offsets: list[int], now_ms: int
    ) -> None:
        if partition.topic.settings.dead_letter_expired and partition.topic.source_id is None:
            self.give_up(partition, view, offsets, "expired", now_ms, outcome=EXPIRED)
        else:
            event = events.Expired(view.group_id, now_ms, runs_of(offsets))
            partition.write(view, event, now_ms, wait=False)

    def give_up(
        self,
        partition: Partition,
        view: QueueView,
        offsets: list[int],
        reason: str,
        now_ms: int,
        *,
        who: str = "",
        error: str | None = None,
        outcome: int = DEAD,
        commit: Commit | None = None,
    ) -> None:
        """To the dead letters. Messages of a dead-letter topic have nowhere to
        go: they end where they are."""
        if partition.topic.source_id is not None:
            done = events.Purged(view.group_id, who, now_ms, runs_of(offsets))
            end = partition.write(view, done, now_ms, wait=commit is not None)
            if commit is not None:
                commit.state.append((partition, end))
            return
        letters = self.dead_letters(partition.topic, now_ms)
        target = self._topics.partition(letters, partition.index % letters.partitions)
        event = self._moves.intend(
            partition, view, offsets, target,
            who=who, reason=reason, error=error, now_ms=now_ms, outcome=outcome,
        )  # fmt: skip
        end = partition.write(view, event, now_ms, wait=True)
        move = self._moves.begin(partition, view, event, end)
        if commit is not None:
            commit.state.append((partition, end))
            commit.moves.append(move)

    def dead_letters(self, topic: Topic, now_ms: int) -> Topic:
        """The topic's dead letters, held by the group that keeps them."""
        letters = self._topics.ensure_dead_letters(topic, now_ms)
        group = self._topics.catalog.groups.get(DEAD_LETTER_GROUP)
        if group is None or letters.id not in group.topics:
            commit = Commit(self._topics.metadata)
            self.open(DEAD_LETTER_GROUP, [letters], {}, now_ms, commit, internal=True)
        return letters

    # Leasing.

    def lease(
        self,
        group: Group,
        topics: Sequence[Topic],
        consumer: str,
        count: int,
        visibility_ms: int | None,
        now_ms: int,
    ) -> list[Delivery]:
        """Up to `count` messages. They are written down as leased before they
        are handed out, and that is not waited for."""
        views = [pair for pair in self._views(group, topics) if pair[0].stopped is None]
        self.tick([partition for partition, _ in views], now_ms)
        serving = self.serving(group)
        serving.consumers.add(consumer)
        count = self._within_cap(group, consumer, count)
        nonce = int.from_bytes(self._entropy.random_bytes(8), "big")
        deliveries: list[Delivery] = []
        while len(deliveries) < count:
            taken = self._take(serving, views, count - len(deliveries), now_ms)
            if not taken:
                break
            for partition, view, runs in taken:
                deliveries += self._grant(
                    partition, view, runs, consumer, nonce, visibility_ms, now_ms
                )
        serving.rates.sample(now_ms, *self._flow(views))
        return deliveries

    def _within_cap(self, group: Group, consumer: str, count: int) -> int:
        cap = group.settings.leases_per_consumer_max
        held = sum(view.held[consumer] for _, view in self._views(group))
        if held >= cap:
            raise TooManyLeases(
                f"consumer {consumer!r} holds {held} messages, the most allowed; settle some "
                "first, or raise leases_per_consumer_max of the group"
            )
        return min(count, cap - held)

    def _take(
        self,
        serving: Serving,
        views: Sequence[tuple[Partition, QueueView]],
        count: int,
        now_ms: int,
    ) -> list[tuple[Partition, QueueView, Runs]]:
        """Decide which messages come next: lanes first, then partitions in turn."""
        available = [view.ready() for _, view in views]
        ready = [sum(lanes) for lanes in zip(*available, strict=True)] or [0] * LANE_COUNT
        wanted: dict[int, int] = {}
        for lane, planned in serving.schedule.plan(ready, count, now_ms):
            wanted[lane] = wanted.get(lane, 0) + planned
        taken: dict[int, Runs] = {}
        for lane, planned in wanted.items():
            for step in range(len(views)):
                number = (serving.turn + step) % len(views)
                if planned and available[number][lane]:
                    runs = views[number][1].take(lane, planned)
                    planned -= count_of(runs)
                    taken.setdefault(number, []).extend(runs)
            if planned:
                serving.schedule.on_unserved(lane, planned)
        serving.turn += 1
        return [(*views[number], runs) for number, runs in taken.items() if runs]

    def _grant(
        self,
        partition: Partition,
        view: QueueView,
        runs: Runs,
        consumer: str,
        nonce: int,
        visibility_ms: int | None,
        now_ms: int,
    ) -> list[Delivery]:
        try:
            records = partition.read(runs)
        except CorruptLog as error:
            partition.stopped = error
            raise
        usual_ms = visibility_ms or view.settings.visibility_ms
        by_deadline: dict[int, list[Record]] = {}
        maxima: dict[int, int] = {}
        expired: list[int] = []
        plain: list[Record] = []
        for record in records:
            if not record.headers:
                plain.append(record)
                continue
            wishes = read_attributes(record.headers, record.timestamp_ms)
            if 0 < wishes.expires_at_ms <= now_ms and partition.topic.source_id is None:
                expired.append(record.offset)
                continue
            if wishes.max_attempts:
                maxima[record.offset] = wishes.max_attempts
            own_ms = visibility_ms or wishes.visibility_ms or usual_ms
            by_deadline.setdefault(own_ms, []).append(record)
        if plain:
            by_deadline.setdefault(usual_ms, []).extend(plain)
        if len(records) != count_of(runs):
            self._drop_missing(partition, view, runs, records, now_ms)
        if expired:
            self._expire(partition, view, sorted(expired), now_ms)
        changes: list[tuple[QueueView, events.GroupEvent]] = []
        made: list[tuple[events.Granted, list[Record]]] = []
        for own_ms, granted in by_deadline.items():
            granted.sort()
            split, attempts = view.count_attempts(runs_of(record.offset for record in granted))
            event = events.Granted(
                view.group_id, view.next_grant, consumer, nonce, now_ms, now_ms + own_ms,
                split, attempts,
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
            deliveries += self._deliver(partition, view, event, granted, maxima, now_ms)
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
        topic, topic_id, index = partition.topic.name, partition.topic.id, partition.index
        window, failures = view.window, view.failures
        most = view.settings.max_attempts
        group_id, nonce, until = view.group_id, event.nonce, event.until
        attempts = iter(
            [
                count
                for start, end, count in zip(
                    event.runs[::2], event.runs[1::2], event.attempts, strict=True
                )
                for _ in range(end - start)
            ]
        )
        deliveries = []
        for record in records:
            offset = record.offset
            lane = window.value_at(offset) >> 4
            view.delivered_in[lane] += 1
            failure = failures.get(offset) if failures else None
            deliveries.append(
                Delivery(
                    topic,
                    index,
                    offset,
                    record.key,
                    record.value,
                    record.headers,
                    record.timestamp_ms,
                    lane,
                    next(attempts),
                    maxima.get(offset, most) if maxima else most,
                    now_ms,
                    until,
                    None if failure is None else failure.at_ms,
                    None if failure is None else failure.error,
                    topic_id,
                    group_id,
                    nonce,
                )
            )
        return deliveries

    @staticmethod
    def _drop_missing(
        partition: Partition, view: QueueView, runs: Runs, records: Sequence[Record], now_ms: int
    ) -> None:
        """Offsets whose records compaction has taken away hold no message."""
        present = {record.offset for record in records}
        missing = [
            offset
            for start, end in zip(runs[::2], runs[1::2], strict=True)
            for offset in range(start, end)
            if offset not in present
        ]
        event = events.Purged(view.group_id, "", now_ms, runs_of(sorted(missing)))
        partition.write(view, event, now_ms, wait=False)

    # Settling.

    def ack(
        self, group: Group, receipts: Sequence[Receipt], now_ms: int, commit: Commit
    ) -> list[Outcome]:
        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            runs = runs_of(sorted(receipt.offset for _, receipt, _ in held))
            event = events.Acked(view.group_id, held[0][2].owner, now_ms, runs)
            commit.state.append((partition, partition.write(view, event, now_ms, wait=True)))

        return self._settle(group, receipts, now_ms, settle)

    def nack(
        self,
        group: Group,
        receipts: Sequence[Receipt],
        delay_ms: int | None,
        error: str | None,
        now_ms: int,
        commit: Commit,
    ) -> list[Outcome]:
        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            by_due: dict[int, list[int]] = {}
            spent: list[int] = []
            owner = held[0][2].owner
            for _, receipt, grant in held:
                if receipt.attempt >= view.max_attempts_of(receipt.offset, grant):
                    spent.append(receipt.offset)
                    continue
                rest_ms = delay_ms
                if rest_ms is None:
                    rest_ms = view.settings.backoff_after_ms(receipt.attempt)
                by_due.setdefault(now_ms + rest_ms, []).append(receipt.offset)
            changes: list[tuple[QueueView, events.GroupEvent]] = [
                (
                    view,
                    events.Retried(
                        view.group_id, owner, now_ms, due_ms, error, runs_of(sorted(offsets))
                    ),
                )
                for due_ms, offsets in by_due.items()
            ]
            if changes:
                commit.state.append((partition, partition.write_all(changes, now_ms, wait=True)))
            if spent:
                self.give_up(
                    partition, view, sorted(spent), "max-attempts", now_ms,
                    who=owner, error=error, commit=commit,
                )  # fmt: skip

        return self._settle(group, receipts, now_ms, settle)

    def reject(
        self,
        group: Group,
        receipts: Sequence[Receipt],
        reason: str | None,
        now_ms: int,
        commit: Commit,
    ) -> list[Outcome]:
        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            self.give_up(
                partition, view, sorted(receipt.offset for _, receipt, _ in held), "rejected",
                now_ms, who=held[0][2].owner, error=reason, commit=commit,
            )  # fmt: skip

        return self._settle(group, receipts, now_ms, settle)

    def extend(
        self,
        group: Group,
        receipts: Sequence[Receipt],
        visibility_ms: int | None,
        now_ms: int,
        commit: Commit,
    ) -> list[Outcome]:
        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            until = now_ms + (visibility_ms or view.settings.visibility_ms)
            by_grant: dict[tuple[str, int], list[int]] = {}
            for _, receipt, grant in held:
                by_grant.setdefault((grant.owner, grant.nonce), []).append(receipt.offset)
            for (owner, nonce), offsets in by_grant.items():
                event = events.Extended(
                    view.group_id, view.next_grant, owner, nonce, now_ms, until,
                    runs_of(sorted(offsets)),
                )  # fmt: skip
                view.next_grant += 1
                commit.state.append((partition, partition.write(view, event, now_ms, wait=False)))

        return self._settle(group, receipts, now_ms, settle)

    def release(
        self, group: Group, receipts: Sequence[Receipt], now_ms: int
    ) -> list[Outcome]:
        """Back to the queue as if it had not been leased. Not waited for: when
        it is lost, the lease simply ends."""

        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            runs = runs_of(sorted(receipt.offset for _, receipt, _ in held))
            event = events.Released(view.group_id, held[0][2].owner, now_ms, runs)
            partition.write(view, event, now_ms, wait=False)

        return self._settle(group, receipts, now_ms, settle)

    def _settle(
        self,
        group: Group,
        receipts: Sequence[Receipt],
        now_ms: int,
        settle: Callable[[Partition, QueueView, Sequence[Held]], None],
    ) -> list[Outcome]:
        """Check each receipt and settle the good ones, a partition at a time."""
        outcomes: list[Outcome] = [None] * len(receipts)
        places: dict[tuple[bytes, int], list[tuple[int, Receipt]]] = {}
        for number, receipt in enumerate(receipts):
            places.setdefault((receipt.topic_id, receipt.partition), []).append((number, receipt))
        for (topic_id, index), wanted in places.items():
            partition = self._topics.find(topic_id, index)
            view = None if partition is None else partition.views.get(group.id)
            if partition is None or view is None:
                for number, _ in wanted:
                    outcomes[number] = InvalidReceipt(
                        "the receipt is of a topic that is gone or that this group does not read"
                    )
                continue
            self.tick([partition], now_ms)
            held: list[Held] = []
            seen: set[int] = set()
            for number, receipt in wanted:
                found = self._check(group, view, receipt)
                if isinstance(found, HeadraceError):
                    outcomes[number] = found
                elif receipt.offset not in seen:
                    seen.add(receipt.offset)
                    held.append((number, receipt, found))
            if held:
                settle(partition, view, held)
        return outcomes

    @staticmethod
    def _check(group: Group, view: QueueView, receipt: Receipt) -> HeadraceError | Grant:
        if receipt.group_id != group.id:
            return InvalidReceipt(f"the receipt is not of group {group.name!r}")
        return view.check(receipt)

    # Consumers.

    def held(self, group: Group, consumer: str) -> dict[tuple[str, int, int], Receipt]:
        return {
            (partition.topic.name, partition.index, offset): Receipt(
                partition.topic.id,
                partition.index,
                group.id,
                offset,
                view.window.attempts_at(offset),
                grant.nonce,
            )
            for partition, view in self._views(group)
            for offset, grant in view.leased_by(consumer).items()
        }

    def leave(self, group: Group, consumer: str, now_ms: int) -> None:
        """Give back everything that a consumer holds."""
        self.serving(group).consumers.discard(consumer)
        self.release(group, list(self.held(group, consumer).values()), now_ms)

    # Numbers.

    def next_due_ms(self, group: Group, topics: Sequence[Topic]) -> int | None:
        dues = [partition.next_due_ms(group.id) for partition, _ in self._views(group, topics)]
        return min((due for due in dues if due is not None), default=None)

    @staticmethod
    def _flow(views: Sequence[tuple[Partition, QueueView]]) -> tuple[int, int]:
        return (
            sum(view.window.end for _, view in views),
            sum(view.totals["acked"] for _, view in views),
        )

    def statistics(
        self, group: Group, topics: Sequence[Topic] | None, now_ms: int
    ) -> QueueStatistics:
        views = self._views(group, topics)
        serving = self.serving(group)
        flow = self._flow(views)
        serving.rates.sample(now_ms, *flow)
        names = sorted({partition.topic.name for partition, _ in views})
        return statistics.of_group(
            group.name,
            names,
            [statistics.of_partition(*pair, serving.schedule) for pair in views],
            [view for _, view in views],
            serving.schedule,
            serving.rates.per_second(now_ms, *flow),
        )

    def check_lease(self, consumer: str, count: int, visibility_ms: int | None) -> None:
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
