"""Transactions of the SDK and of the doors that share its calls.

A caller says all of it at once: what to publish, which cursors to move, what to ack.
Three calls, one behind the other, make it one:

    begin    where the messages go, and the coordinator's note of those partitions
      | synced
    write    the batches, the positions, the acks: none of them counts yet
      | synced
    end      the decision, and when that is synced the markers

A crash before the decision is an abort: the coordinator ends what is left open when
its time is over. Whatever the write finds wrong, a lease that is over or a generation
that is not the group's, aborts it.

Producers are used again, each by one transaction at a time. Every end brings the
next epoch, so nothing of one transaction can be taken for the next.

Rejected: a transaction that is open while the caller's block runs. It would hold back
every reader of its partitions for as long, and gain nothing that is seen: until the
end nobody may see any of it anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.calls.served import Served
from headrace.core import limits
from headrace.core.errors import (
    FencedLeader,
    FencedProducer,
    HeadraceError,
    InvalidArgument,
    InvalidTransactionState,
    RecordTooLarge,
    UnknownPartition,
    UnknownTransaction,
)
from headrace.core.settings import TopicSettings
from headrace.core.values import (
    Acknowledged,
    CursorMove,
    Outgoing,
    Publication,
    Published,
    TransactionInfo,
    TransactionPlace,
    check_name,
)
from headrace.core.wording import counted
from headrace.engine.commit import Commit
from headrace.engine.coordinator.transaction import (
    NEVER_MS,
    Place,
    State,
    Transaction,
    TransactionError,
)
from headrace.engine.cursor import Commitment
from headrace.engine.transactions import OWN_PREFIX

TIMEOUT_MS = 60_000


class Begun(NamedTuple):
    """A transaction that was noted, and the messages with their places."""

    name: str
    producer_id: int
    epoch: int
    publications: list[Publication]


class TransactionCalls(Served):
    def begin_transaction(
        self,
        publications: Sequence[Publication],
        moves: Sequence[CursorMove],
        acks: Sequence[Acknowledged],
    ) -> Begun:
        with self._writing() as (now_ms, commit):
            table = self._broker.transactions
            for group, receipts in acks:
                # A lease that is over is found before any other is given up for it.
                _raise_first(
                    self._broker.settling.check(self._broker.groups.named(group), receipts, now_ms)
                )
            placed = self._place(publications, now_ms)
            places = self._places(placed, moves, acks, now_ms)
            if not places:
                raise InvalidArgument("a transaction without messages, positions or acks")
            transaction, name = self._take_producer(now_ms)
            added = table.add(name, transaction.producer_id, transaction.epoch, places, now_ms)
            if isinstance(added, TransactionError):
                raise _refused(added)
            commit.data += table.depends(name)
            return Begun(name, added.producer_id, added.epoch, placed)

    def write_transaction(
        self, begun: Begun, moves: Sequence[CursorMove], acks: Sequence[Acknowledged]
    ) -> list[list[Published]]:
        broker = self._broker
        producer = begun.producer_id, begun.epoch
        with self._writing() as (now_ms, commit):
            published = []
            for topic, messages in begun.publications:
                size = sum(len(message.value or b"") + 128 for message in messages)
                broker.check_space(size)
                published.append(
                    broker.publisher.publish_in_transaction(
                        broker.topics.named(topic), messages, producer, now_ms, commit
                    )
                )
            for move in moves:
                self._move(move, producer, now_ms, commit)
            for group, receipts in acks:
                outcomes = broker.settling.ack_in_transaction(
                    broker.groups.named(group), receipts, *producer, now_ms, commit
                )
                _raise_first(outcomes)
        return published

    def end_transaction(self, begun: Begun, *, commits: bool) -> None:
        with self._writing() as (now_ms, commit):
            table = self._broker.transactions
            ended = table.end(
                begun.name, begun.producer_id, begun.epoch,
                commit=commits, bumps=True, now_ms=now_ms,
            )  # fmt: skip
            if isinstance(ended, TransactionError):
                raise _refused(ended)
            commit.data += table.depends(begun.name)
            ending = table.ending_of(begun.name)
            if ending is not None:
                commit.endings.append(ending)
            table.idle.append(begun.name)
        self._notify_published()
        self._notify_changed()

    # Looking, and an operator's way out.

    def transactions(self) -> list[TransactionInfo]:
        with self._reading():
            return [
                self._describe_transaction(name, transaction)
                for name, transaction in sorted(self._broker.transactions.items())
            ]

    def transaction(self, name: str) -> TransactionInfo:
        with self._reading():
            return self._describe_transaction(name, self._find(name))

    def abort_transaction(self, name: str) -> None:
        """End what this id has open, and shut its producer out."""
        with self._writing() as (now_ms, commit):
            table = self._broker.transactions
            self._find(name)
            outcome = table.abort(name, now_ms)
            if isinstance(outcome, TransactionError):
                raise _refused(outcome)
            commit.data += table.depends(name)
            ending = table.ending_of(name)
            if ending is not None:
                commit.endings.append(ending)
        self._notify_published()

    def _find(self, name: str) -> Transaction:
        found = self._broker.transactions.find(name)
        if found is None:
            raise UnknownTransaction(f"there is no transactional id {name!r}")
        return found

    def _describe_transaction(self, name: str, transaction: Transaction) -> TransactionInfo:
        places = []
        for topic_id, index in sorted(transaction.partitions):
            partition = self._broker.topics.find(topic_id, index)
            if partition is None:
                continue
            first = next(
                (
                    each.first_offset
                    for each in partition.open_transactions()
                    if each.producer_id == transaction.producer_id
                ),
                None,
            )
            places.append(TransactionPlace(partition.topic.name, index, first))
        started_ms = transaction.started_at_ms
        return TransactionInfo(
            name,
            str(transaction.state),
            transaction.producer_id,
            transaction.epoch,
            transaction.timeout_ms,
            None if started_ms == NEVER_MS else started_ms,
            tuple(places),
        )

    # The parts.

    def _place(self, publications: Sequence[Publication], now_ms: int) -> list[Publication]:
        """One for each topic, since each topic is written to once."""
        by_topic: dict[str, list[Outgoing]] = {}
        for topic, messages in publications:
            by_topic.setdefault(topic, []).extend(messages)
        if len(by_topic) != len(publications):
            raise InvalidArgument("name each topic of a transaction once")
        topics = self._broker.topics.catalog.topics
        auto_partitions = self._broker.topics.auto_create_partitions
        if self._auto_create and auto_partitions:
            # Everything that can be wrong is found before a topic is made.
            for topic, messages in by_topic.items():
                if topic not in topics:
                    check_name("topic", topic)
                    for message in messages:
                        _check_for_new_topic(topic, message, auto_partitions)
        known = sorted(by_topic, key=lambda topic: topic not in topics)
        placed = {
            topic: self._broker.publisher.place(
                self._topic_to_write(topic, now_ms), by_topic[topic], now_ms
            )
            for topic in known
        }
        return [Publication(topic, placed[topic]) for topic in by_topic]

    def _places(
        self,
        publications: Sequence[Publication],
        moves: Sequence[CursorMove],
        acks: Sequence[Acknowledged],
        now_ms: int,
    ) -> set[Place]:
        places: set[Place] = set()
        for topic, messages in publications:
            topic_id = self._broker.topics.named(topic).id
            places |= {(topic_id, message.partition or 0) for message in messages}
        if moves:
            places.add(self._broker.cursors.place(now_ms))
        for _, receipts in acks:
            places |= {(receipt.topic_id, receipt.partition) for receipt in receipts}
        if len(places) > limits.TRANSACTION_PARTITIONS_MAX:
            raise InvalidArgument(
                f"a transaction reaches at most {limits.TRANSACTION_PARTITIONS_MAX} partitions, "
                f"not {len(places)}; make several of it"
            )
        return places

    def _take_producer(self, now_ms: int) -> tuple[Transaction, str]:
        table = self._broker.transactions
        idle = table.idle
        for _ in range(len(idle)):
            name = idle.popleft()
            found = table.find(name)
            if found is None:
                continue
            if found.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
                return found, name
            # Its end is still being written, perhaps because the disk is full.
            idle.append(name)
        name = f"{OWN_PREFIX}{self._broker.new_producer_id(now_ms)}"
        made = table.init(name, TIMEOUT_MS, None, now_ms)
        if isinstance(made, TransactionError):
            raise _refused(made)
        return made, name

    def _move(
        self, move: CursorMove, producer: tuple[int, int], now_ms: int, commit: Commit
    ) -> None:
        broker = self._broker
        if move.member is not None and move.generation is not None:
            broker.cursors.check_generation(move.group, move.member, move.generation)
        positions: dict[Place, Commitment | None] = {}
        for name, index, offset in move.positions:
            partition = broker.topics.partition(broker.topics.named(name), index)
            # Where another node leads, the log may be longer by now.
            if offset < 0 or not (offset <= partition.high_watermark or partition.is_led_elsewhere):
                raise InvalidArgument(
                    f"offset {offset} of {name}:{index} is outside of 0 to "
                    f"{partition.high_watermark}"
                )
            positions[partition.topic.id, index] = Commitment(offset)
        if positions:
            broker.cursors.check_room(move.group)
            commit.data.append(broker.cursors.commit(move.group, positions, now_ms, producer))


def _check_for_new_topic(topic: str, message: Outgoing, partitions: int) -> None:
    if (message.partition or 0) >= partitions:
        raise UnknownPartition(
            f"topic {topic!r} would be made with {counted(partitions, 'partition')}, and "
            f"{message.partition} is none of them"
        )
    size = len(message.value or b"") + len(message.key or b"")
    if size > TopicSettings().record_bytes_max:
        raise RecordTooLarge(
            f"the record has {size} bytes and topic {topic!r} would be made for at most "
            f"{TopicSettings().record_bytes_max}; make the topic first, with record_bytes_max"
        )


def _raise_first(outcomes: Sequence[HeadraceError | None]) -> None:
    failed = next((each for each in outcomes if each is not None), None)
    if failed is not None:
        raise failed


def _refused(error: TransactionError) -> HeadraceError:
    if error is TransactionError.NOT_COORDINATOR:
        return FencedLeader("another node coordinates transactions now; try again")
    if error is TransactionError.PRODUCER_FENCED:
        return FencedProducer("the transaction was ended by somebody else; begin another one")
    return InvalidTransactionState(
        f"the coordinator refuses: {error.name.lower().replace('_', ' ')}; begin another one"
    )
