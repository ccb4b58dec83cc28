"""The SDK's backend on a node elsewhere: every call is a request over one link.

    Headrace, Queue, Stream, ...
               |
            Backend
               |
         RemoteBackend ---- link ---- node

Many messages travel in parts, so that no request keeps the node from others for
long. When a part is refused, those before it are published.

Rejected: a pool of connections. A node gives back what a connection holds when it
breaks for good, so what a handle holds should hang on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from headrace.client.backend import BatchesAnswered, BatchOutcomes, Outcomes, Place
from headrace.client.lease_calls import LeaseCaller
from headrace.client.link import Pending
from headrace.core.errors import (
    Disconnected,
    HeadraceError,
    MalformedMessage,
    StaleGeneration,
    StaleReceipt,
)
from headrace.core.overview_values import NodeFigures, Overview, UnreadableBatch
from headrace.core.settings import OffsetReset
from headrace.core.trace_values import MessageTrace, TracePage, TraceQuery
from headrace.core.values import (
    Acknowledged,
    CursorMove,
    DeadLetter,
    DelayedMessage,
    DelayedTotals,
    GroupInfo,
    Headers,
    MessageId,
    MessageStatus,
    Outgoing,
    PlacedBatch,
    Publication,
    Published,
    PublishedRuns,
    QueueStatistics,
    Receipt,
    RedriveResult,
    StreamRecord,
    TopicInfo,
    TransactionInfo,
)
from headrace.core.wording import counted
from headrace.wire.remote.codec import decode_answer, error_of
from headrace.wire.remote.methods import DelayedPage, LetterPage, Runs, Stored

Item = TypeVar("Item")

# What goes into one request of many messages, and of many receipts or ids.
PART_MESSAGES = 2_000
PART_BYTES = 1024 * 1024
PART_RECEIPTS = 5_000
# Generations of a group begin anew with each node; those of another link are others.
_GENERATION_BITS = 32


class RemoteBackend(LeaseCaller):
    # Topics.

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 3,
        settings: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        info: TopicInfo = self._call("create_topic", name, partitions, settings, exist_ok)
        return info

    def delete_topic(self, name: str) -> None:
        self._call("delete_topic", name)

    def alter_topic(self, name: str, settings: Mapping[str, Any]) -> TopicInfo:
        info: TopicInfo = self._call("alter_topic", name, settings)
        return info

    def grow_topic(self, name: str, partitions: int, *, break_key_order: bool = False) -> TopicInfo:
        info: TopicInfo = self._call("grow_topic", name, partitions, break_key_order)
        return info

    def topic(self, name: str) -> TopicInfo:
        info: TopicInfo = self._call("topic", name)
        return info

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        found: list[TopicInfo] = self._call("topics", internal)
        return found

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        start: int = self._call("delete_records", topic, partition, before_offset)
        return start

    # Publishing.

    def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[Published]:
        parts = ((topic, part) for part in _parts(messages, _size_of))
        return _joined(self._call_in_parts("publish", parts))

    def publish_values(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Sequence[Published]:
        parts = ((topic, part, headers, partition) for part in _parts(values, len))
        return _joined(self._call_in_parts("publish_values", parts))

    def new_producer_id(self) -> int:
        number: int = self._call("new_producer_id")
        return number

    def begin_batches(self, batches: Sequence[PlacedBatch], on_answered: BatchesAnswered) -> None:
        def decode(pending: Pending) -> None:
            on_answered(_batch_outcomes(batches, pending))

        self._begin("publish_batches", (batches,), decode)

    # Streams.

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        count_max: int = 500,
        topic_id: str | None = None,
    ) -> tuple[list[StreamRecord], int]:
        found: tuple[list[StreamRecord], int] = self._call(
            "read", topic, partition, offset, count_max, topic_id
        )
        return found

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        offset: int = self._call("offset_at", topic, partition, timestamp_ms)
        return offset

    def join_stream(
        self, group: str, topics: Sequence[str], member: str, reset: OffsetReset
    ) -> None:
        self._call("join_stream", group, topics, member, reset)
        with self._lock:
            self._members[group, member] = (tuple(topics), reset)

    def leave_stream(self, group: str, member: str) -> None:
        with self._lock:
            self._members.pop((group, member), None)
        self._call("leave_stream", group, member)

    def change_stream(self, group: str, member: str, topics: Sequence[str]) -> None:
        self._call("change_stream", group, member, topics)
        with self._lock:
            if (group, member) in self._members:
                _, reset = self._members[group, member]
                self._members[group, member] = (tuple(topics), reset)

    def assignment(self, group: str, member: str) -> tuple[int, dict[Place, int]]:
        generation, places = self._call("assignment", group, member)
        return self._links_made << _GENERATION_BITS | generation, places

    def commit(
        self,
        group: str,
        positions: Mapping[Place, int],
        *,
        member: str | None = None,
        generation: int | None = None,
    ) -> None:
        self._call("commit", group, positions, member, self._of_node(group, generation))

    def _of_node(self, group: str, generation: int | None) -> int | None:
        """The generation as the node knows it; ours also counts connections."""
        if generation is None:
            return None
        link, generation = divmod(generation, 1 << _GENERATION_BITS)
        if link != self._links_made:
            raise StaleGeneration(
                f"group {group!r} was joined anew since the connection broke; look again"
            )
        return generation

    def committed(self, group: str, topic: str) -> dict[int, int]:
        offsets: dict[int, int] = self._call("committed", group, topic)
        return offsets

    # Queues.

    def open_queue(
        self,
        group: str,
        topics: Sequence[str],
        consumer: str,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._call("open_queue", group, topics, consumer, settings)
        with self._lock:
            known = self._queues.get((group, consumer), ())
            self._queues[group, consumer] = tuple(dict.fromkeys((*known, *topics)))
        if not self.is_linked:
            # It ended before it was known that there is something to come back for.
            self._on_link_ended()

    def ack(self, group: str, receipts: Sequence[Receipt]) -> Outcomes:
        return self._settle("ack", group, receipts)

    def nack(
        self,
        group: str,
        receipts: Sequence[Receipt],
        *,
        delay_ms: int | None = None,
        error: str | None = None,
        within_seconds: float | None = None,
    ) -> Outcomes:
        return self._settle("nack", group, receipts, delay_ms, error, within_seconds=within_seconds)

    def reject(
        self, group: str, receipts: Sequence[Receipt], *, reason: str | None = None
    ) -> Outcomes:
        return self._settle("reject", group, receipts, reason)

    def extend(
        self,
        group: str,
        receipts: Sequence[Receipt],
        *,
        visibility_ms: int | None = None,
        within_seconds: float | None = None,
    ) -> Outcomes:
        return self._settle("extend", group, receipts, visibility_ms, within_seconds=within_seconds)

    def release(self, group: str, receipts: Sequence[Receipt]) -> Outcomes:
        return self._settle("release", group, receipts)

    def _settle(
        self,
        name: str,
        group: str,
        receipts: Sequence[Receipt],
        *options: Any,
        within_seconds: float | None = None,
    ) -> Outcomes:
        def settle() -> Outcomes:
            parts = ((group, part, *options) for part in _slices(receipts))
            return [
                None if refusal is None else error_of(refusal)
                for outcomes in self._call_in_parts(name, parts, within_seconds=within_seconds)
                for refusal in outcomes
            ]

        try:
            return settle()
        except Disconnected as error:
            if within_seconds is not None or self._closed.is_set():
                raise
            # The node keeps our leases for a moment, so it is said again over a new link.
            # A lease that is over by now was settled by the first call or is lost: which
            # of them is not known.
            return [error if isinstance(each, StaleReceipt) else each for each in settle()]

    def held(self, group: str, consumer: str) -> dict[tuple[str, int, int], Receipt]:
        found: dict[tuple[str, int, int], Receipt] = self._call("held", group, consumer)
        return found

    def leave(self, group: str, consumer: str) -> None:
        with self._lock:
            self._queues.pop((group, consumer), None)
        if not self.is_linked:
            # Whoever is not there has left: the node knows it already, or will not know
            # us when it is back.
            return
        self._call("leave", group, consumer)

    def next_due_ms(self, group: str | None, topics: Sequence[str]) -> int | None:
        due_ms: int | None = self._call("next_due_ms", group, topics)
        return due_ms

    # Groups and messages.

    def groups(self) -> list[GroupInfo]:
        found: list[GroupInfo] = self._call("groups")
        return found

    def group(self, name: str) -> GroupInfo:
        info: GroupInfo = self._call("group", name)
        return info

    def alter_group(self, name: str, settings: Mapping[str, Any]) -> GroupInfo:
        info: GroupInfo = self._call("alter_group", name, settings)
        return info

    def delete_group(self, name: str) -> None:
        self._call("delete_group", name)

    def status(self, id: MessageId, group: str) -> MessageStatus:
        status: MessageStatus = self._call("status", id, group)
        return status

    def queue_statistics(self, group: str, topics: Sequence[str] | None = None) -> QueueStatistics:
        statistics: QueueStatistics = self._call("queue_statistics", group, topics)
        return statistics

    # Delayed messages and dead letters.

    def delayed(
        self, topic: str, *, after: tuple[int, int, int] | None = None, limit: int = 100
    ) -> list[DelayedMessage]:
        found: list[DelayedMessage] = []
        while True:
            page: DelayedPage = self._call("delayed", topic, after, limit - len(found))
            found += page.items
            after = page.next
            if after is None or len(found) >= limit:
                return found

    def delayed_totals(self, topics: Sequence[str] | None = None) -> list[DelayedTotals]:
        totals: list[DelayedTotals] = self._call("delayed_totals", topics)
        return totals

    def cancel(self, id: MessageId) -> bool:
        is_cancelled: bool = self._call("cancel", id)
        return is_cancelled

    def dead_letters(
        self,
        topic: str,
        *,
        group: str | None = None,
        after: MessageId | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        found: list[DeadLetter] = []
        while True:
            page: LetterPage = self._call("dead_letters", topic, group, after, limit - len(found))
            found += page.items
            after = page.next
            if after is None or len(found) >= limit:
                return found

    def dead_letter(self, id: MessageId) -> DeadLetter:
        letter: DeadLetter = self._call("dead_letter", id)
        return letter

    def redrive(
        self, topic: str, ids: Sequence[MessageId], *, dry_run: bool = False, force: bool = False
    ) -> RedriveResult:
        total = RedriveResult(0, 0, 0, None)
        for part in _slices(ids):
            done: RedriveResult = self._call("redrive", topic, part, dry_run, force)
            total = total.plus(done)
            if done.stopped is not None:
                break
        return total

    def purge(self, topic: str, ids: Sequence[MessageId]) -> int:
        return sum(self._call("purge", topic, part) for part in _slices(ids))

    # Traces.

    def trace(self, what: str) -> MessageTrace:
        found: MessageTrace = self._call("trace", what)
        return found

    def traces(self, query: TraceQuery, *, after: str | None = None, limit: int = 100) -> TracePage:
        page: TracePage = self._call("traces", query, after, limit)
        return page

    # Transactions: one call, since it has to be one on the node too.

    def transact(
        self,
        publications: Sequence[Publication],
        moves: Sequence[CursorMove],
        acks: Sequence[Acknowledged],
    ) -> list[list[Published]]:
        of_node = [
            move._replace(generation=self._of_node(move.group, move.generation)) for move in moves
        ]
        places: list[list[Published]] = self._call("transact", publications, of_node, acks)
        return places

    def transactions(self) -> list[TransactionInfo]:
        found: list[TransactionInfo] = self._call("transactions")
        return found

    def transaction(self, name: str) -> TransactionInfo:
        found: TransactionInfo = self._call("transaction", name)
        return found

    def abort_transaction(self, name: str) -> None:
        self._call("abort_transaction", name)

    # The node at a glance.

    def overview(self) -> Overview:
        found: Overview = self._call("overview")
        return found

    def figures(self) -> NodeFigures | None:
        """None where the node is part of another program, which has its own."""
        found: NodeFigures | None = self._call("figures")
        return found

    def unreadable_batches(self) -> list[UnreadableBatch]:
        found: list[UnreadableBatch] = self._call("unreadable_batches")
        return found


def _batch_outcomes(batches: Sequence[PlacedBatch], pending: Pending) -> BatchOutcomes:
    try:
        answers: list[Stored] = decode_answer("publish_batches", pending.wait())
        if len(answers) != len(batches):
            raise MalformedMessage(
                f"the node answered {len(answers)} of {counted(len(batches), 'batch')}"
            )
    except HeadraceError as error:
        return error
    return [
        Published(placed.partition, stored.offset, stored.duplicate)
        if stored.refusal is None
        else error_of(stored.refusal)
        for placed, stored in zip(batches, answers, strict=True)
    ]


def _parts(items: Sequence[Item], size_of: Callable[[Item], int]) -> Iterator[Sequence[Item]]:
    """One part at least, so that a call about nothing is still refused or answered."""
    start = size = 0
    for number, item in enumerate(items):
        added = size_of(item)
        if number > start and (size + added > PART_BYTES or number - start >= PART_MESSAGES):
            yield items[start:number]
            start, size = number, 0
        size += added
    yield items[start:]


def _size_of(message: Outgoing) -> int:
    size = 32 + len(message.value or b"") + len(message.key or b"")
    for name, value in message.headers:
        size += len(name) + len(value or b"") + 8
    return size


def _slices(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items) or 1, PART_RECEIPTS):
        yield items[start : start + PART_RECEIPTS]


def _joined(answers: list[list[Published] | Runs]) -> Sequence[Published]:
    if len(answers) == 1 and not isinstance(answers[0], Runs):
        return answers[0]
    if all(isinstance(each, Runs) for each in answers):
        return PublishedRuns(
            [run for each in answers if isinstance(each, Runs) for run in each.runs]
        )
    places: list[Published] = []
    for each in answers:
        places += PublishedRuns(each.runs) if isinstance(each, Runs) else each
    return places
