"""What the SDK needs from whatever serves it, and nothing else.

    Headrace, Queue, Stream, DeadLetters, ...      words for people
                    |
                 Backend                           this page
                    |
           Node, RemoteBackend                     in this process, or elsewhere

Every call may block for as long as the disk takes, is safe from any thread, and
never waits for a message: waiting is the SDK's work, by a listener and
`next_due_ms`. What serves many clients has a line for those who wait: see `Lined`.

Rejected: letting the SDK reach into the node. The words above must stay the same
when what serves them is on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from headrace.core.errors import HeadraceError
from headrace.core.ports import Clock
from headrace.core.settings import OffsetReset
from headrace.core.trace_values import MessageTrace, TracePage, TraceQuery
from headrace.core.values import (
    Acknowledged,
    CursorMove,
    DeadLetter,
    DelayedMessage,
    DelayedTotals,
    Delivery,
    GroupInfo,
    Headers,
    LeaseRequest,
    MessageId,
    MessageStatus,
    Outgoing,
    PlacedBatch,
    Publication,
    Published,
    QueueStatistics,
    Receipt,
    RedriveResult,
    StreamRecord,
    TopicInfo,
    TransactionInfo,
)

# A topic's name and a partition of it.
Place = tuple[str, int]
# What became of each batch; an error alone is about all of them.
BatchOutcomes = Sequence[Published | HeadraceError] | HeadraceError
BatchesAnswered = Callable[[BatchOutcomes], None]
# Called with what returns the messages, or raises.
LeaseAnswered = Callable[[Callable[[], list[Delivery]]], None]
# None where it was done, the reason where it was not.
Outcomes = list[HeadraceError | None]


class Backend(Protocol):
    @property
    def clock(self) -> Clock: ...

    def close(self) -> None: ...

    # Topics.

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 3,
        settings: Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo: ...

    def delete_topic(self, name: str) -> None: ...

    def alter_topic(self, name: str, settings: Mapping[str, Any]) -> TopicInfo: ...

    def grow_topic(
        self, name: str, partitions: int, *, break_key_order: bool = False
    ) -> TopicInfo: ...

    def topic(self, name: str) -> TopicInfo: ...

    def topics(self, *, internal: bool = False) -> list[TopicInfo]: ...

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int: ...

    # Publishing: each returns once it is as durable as the topic says.

    def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[Published]: ...

    def publish_values(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Sequence[Published]: ...

    def new_producer_id(self) -> int:
        """A number that no producer ever had."""
        ...

    def begin_batches(self, batches: Sequence[PlacedBatch], on_answered: BatchesAnswered) -> None:
        """Publish these batches; `on_answered` is called once, now or later, by any
        thread. Unreachable, Disconnected: nothing was sent, and it is not called.

        Of one thread that calls this, batches of one partition arrive in the order of
        the calls, as long as the connection holds."""
        ...

    # Streams.

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        count_max: int = 500,
        topic_id: str | None = None,
    ) -> tuple[list[StreamRecord], int]: ...

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int: ...

    def join_stream(
        self, group: str, topics: Sequence[str], member: str, reset: OffsetReset
    ) -> None: ...

    def leave_stream(self, group: str, member: str) -> None: ...

    def change_stream(self, group: str, member: str, topics: Sequence[str]) -> None: ...

    def assignment(self, group: str, member: str) -> tuple[int, dict[Place, int]]: ...

    def commit(
        self,
        group: str,
        positions: Mapping[Place, int],
        *,
        member: str | None = None,
        generation: int | None = None,
    ) -> None: ...

    def committed(self, group: str, topic: str) -> dict[int, int]: ...

    # Queues.

    def open_queue(
        self,
        group: str,
        topics: Sequence[str],
        consumer: str,
        settings: Mapping[str, Any] | None = None,
    ) -> None: ...

    def lease(
        self,
        group: str,
        topics: Sequence[str],
        consumer: str,
        count: int,
        *,
        visibility_ms: int | None = None,
    ) -> list[Delivery]: ...

    def ack(self, group: str, receipts: Sequence[Receipt]) -> Outcomes: ...

    def nack(
        self,
        group: str,
        receipts: Sequence[Receipt],
        *,
        delay_ms: int | None = None,
        error: str | None = None,
        within_seconds: float | None = None,
    ) -> Outcomes:
        """`within_seconds`: as for `extend`."""
        ...

    def reject(
        self, group: str, receipts: Sequence[Receipt], *, reason: str | None = None
    ) -> Outcomes: ...

    def extend(
        self,
        group: str,
        receipts: Sequence[Receipt],
        *,
        visibility_ms: int | None = None,
        within_seconds: float | None = None,
    ) -> Outcomes:
        """`within_seconds`: a node elsewhere is asked once, and has this long to answer;
        otherwise Unreachable or Disconnected."""
        ...

    def release(self, group: str, receipts: Sequence[Receipt]) -> Outcomes: ...

    def held(self, group: str, consumer: str) -> dict[tuple[str, int, int], Receipt]: ...

    def leave(self, group: str, consumer: str) -> None: ...

    # Groups and messages.

    def groups(self) -> list[GroupInfo]: ...

    def group(self, name: str) -> GroupInfo: ...

    def alter_group(self, name: str, settings: Mapping[str, Any]) -> GroupInfo: ...

    def delete_group(self, name: str) -> None: ...

    def status(self, id: MessageId, group: str) -> MessageStatus: ...

    def queue_statistics(
        self, group: str, topics: Sequence[str] | None = None
    ) -> QueueStatistics: ...

    # Delayed messages and dead letters.

    def delayed(
        self, topic: str, *, after: tuple[int, int, int] | None = None, limit: int = 100
    ) -> list[DelayedMessage]: ...

    def delayed_totals(self, topics: Sequence[str] | None = None) -> list[DelayedTotals]: ...

    def cancel(self, id: MessageId) -> bool: ...

    def dead_letters(
        self,
        topic: str,
        *,
        group: str | None = None,
        after: MessageId | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]: ...

    def dead_letter(self, id: MessageId) -> DeadLetter: ...

    def redrive(
        self, topic: str, ids: Sequence[MessageId], *, dry_run: bool = False, force: bool = False
    ) -> RedriveResult: ...

    def purge(self, topic: str, ids: Sequence[MessageId]) -> int: ...

    # Traces.

    def trace(self, what: str) -> MessageTrace: ...

    def traces(
        self, query: TraceQuery, *, after: str | None = None, limit: int = 100
    ) -> TracePage: ...

    # Transactions.

    def transact(
        self,
        publications: Sequence[Publication],
        moves: Sequence[CursorMove],
        acks: Sequence[Acknowledged],
    ) -> list[list[Published]]:
        """All of it or nothing; the places of what was published."""
        ...

    def transactions(self) -> list[TransactionInfo]: ...

    def transaction(self, name: str) -> TransactionInfo: ...

    def abort_transaction(self, name: str) -> None: ...

    # Waiting.

    def add_listener(self, wake: Callable[[], None], topics: Sequence[str] = ()) -> None:
        """Has `wake` called whenever something may have come to these topics."""
        ...

    def remove_listener(self, wake: Callable[[], None]) -> None: ...

    def next_due_ms(self, group: str | None, topics: Sequence[str]) -> int | None: ...


@runtime_checkable
class Returning(Protocol):
    """What serves us may go away and come back."""

    # Called when it is back.
    on_returned: Callable[[], None] | None


@runtime_checkable
class Lined(Protocol):
    """What serves us has a line in which all who wait for a group's messages stand,
    whatever they came by."""

    def lease_in_line(self, wanted: LeaseRequest) -> list[Delivery]:
        """As `lease`, and waits for the first message. The nonce is ours to choose."""
        ...

    def begin_lease(self, wanted: LeaseRequest, on_answered: LeaseAnswered) -> None:
        """As `lease_in_line`, without a thread that waits: `on_answered` gets what returns
        or raises the answer. The nonce is the caller's, to give the messages back by."""
        ...

    def give_back(self, group: str, consumer: str, nonces: Sequence[int]) -> None:
        """End leases of which the caller knows nothing but their nonces, waiting or not."""
        ...
