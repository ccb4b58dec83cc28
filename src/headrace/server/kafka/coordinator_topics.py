"""Kafka's internal topics, shown from what the node keeps in a format of its own.

    stored as              shown as               records
    __cursors              __consumer_offsets     committed offsets, and those forgotten
    __transaction_state    __transaction_state    what transactional ids are doing

Read-only. Partitions, offsets, timestamps, transactions and their markers are those of the
stored topic, so a reader comes back to where it was, follows live, and may ask for committed
records only. A batch is opened, each key and value is written in Kafka's format, and the batch
is closed again, in parts of bounded size. Positions in a topic that was deleted are left out;
that they are forgotten is told with the topic's name.

What is stored about the members of groups is left out: Kafka writes a record for each group,
and here there is one for each member.

Rejected: to store Kafka's format. It names topics, and what is deleted and made again under its
name would inherit the positions; and every directory there is would have to be converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from headrace.core.errors import CorruptBatch, CorruptLog
from headrace.core.limits import COORDINATOR_PART_BYTES
from headrace.core.ports import Buffer
from headrace.core.steps import Steps
from headrace.engine.broker import Broker
from headrace.engine.catalog import CONSUMER_OFFSETS, CURSOR_TOPIC, TRANSACTION_TOPIC, Catalog
from headrace.engine.coordinator.transaction import NO_PRODUCER, State, Transaction
from headrace.engine.cursor import decode_cursor
from headrace.engine.memberships import is_membership
from headrace.engine.partition import Partition
from headrace.engine.transactions import decode_transaction
from headrace.record import BatchHeader, BatchParts, Record, build_sparse_batch, check_batch
from headrace.server.kafka.fetch_session import Key
from headrace.server.kafka.names import kafka_name
from headrace.server.service import Service
from headrace.wire.kafka.coordinator_records import (
    TransactionValue,
    encode_offset_key,
    encode_offset_value,
    encode_transaction_key,
    encode_transaction_value,
)

_SHOWN: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_TOPIC))
# What a client of KIP-890 speaks.
_BUMPING: Final = 2

# A record in Kafka's format; none if there is nothing to show.
_Rewrite = Callable[[Catalog, Record], Record | None]


def make_topic(broker: Broker, name: str, now_ms: int) -> bool:
    """Make what is shown under this name; False if nothing ever is."""
    if name == CONSUMER_OFFSETS:
        broker.cursors.ensure_topic(now_ms)
    elif name == TRANSACTION_TOPIC:
        broker.transactions.ensure_topic(now_ms)
    return name in _SHOWN


def is_any_rewritten(catalog: Catalog, keys: Iterable[Key]) -> bool:
    """Whether records of one of these partitions go out in another format than they lie in."""
    cursors = catalog.topics.get(CURSOR_TOPIC)
    transactions = catalog.topics.get(TRANSACTION_TOPIC)
    if cursors is None and transactions is None:
        return False
    ids = (cursors and cursors.id, transactions and transactions.id)
    # Asked of every Fetch: a generator would cost more than what it looks for.
    for name, topic_id, _ in keys:
        if name in _SHOWN or topic_id in ids:
            return True
    return False


def is_rewritten(stored_name: str) -> bool:
    return stored_name in _REWRITES


def sync_soon(service: Service, partition: Partition) -> None:
    """Sync what was written and is not waited for, such as that a transaction is complete:
    somebody wants to read it."""
    end = partition.log.end_offset
    if partition.high_watermark < end:
        commit = service.commit()
        commit.data.append((partition, end))
        service.finish_later(commit)


def rewriting(
    catalog: Catalog, stored_name: str, batches: Buffer, start: int, size_max: int, *, force: bool
) -> Steps[tuple[bytes, int]]:
    """Stored batches from the offset `start` on, in Kafka's format, and the offset behind them.

    As many as fit into `size_max`; with `force` at least one. CorruptLog if one is damaged:
    its checksum would be made anew, and nobody could tell any more.
    """
    rewrite = _REWRITES[stored_name]
    made: list[Buffer] = []
    size, behind, position = 0, start, 0
    while position < len(batches):
        try:
            header = check_batch(batches, position)
            batch = batches[position : position + header.size_bytes]
            for part, next_offset in _parts(catalog, rewrite, batch, header, start):
                if size + len(part) > size_max and not (force and not made):
                    return b"".join(made), behind
                made.append(part)
                size += len(part)
                behind = next_offset
                yield
        except CorruptBatch as error:
            raise CorruptLog(
                f"{stored_name}: the batch at or after offset {behind} is damaged ({error}); "
                "run `headrace log verify` to see where"
            ) from error
        position += header.size_bytes
    return b"".join(made), behind


def _parts(
    catalog: Catalog, rewrite: _Rewrite, batch: Buffer, header: BatchHeader, start: int
) -> Iterator[tuple[Buffer, int]]:
    """The batch as one or several, each with the offset behind it. One without a record is
    made as well: it takes its reader past what is left out."""
    if header.is_control or not header.count:
        yield batch, header.next_offset
        return
    parts = BatchParts(batch, header)
    first = header.base_offset
    while not parts.is_over:
        found = (rewrite(catalog, record) for record in parts.read(start, COORDINATOR_PART_BYTES))
        records = [record for record in found if record is not None]
        extent = header._replace(base_offset=first, last_offset_delta=parts.next_offset - first - 1)
        first = parts.next_offset
        yield build_sparse_batch(records, extent), first


def _rewrite_cursor(catalog: Catalog, record: Record) -> Record | None:
    if is_membership(record):
        return None
    group, (topic_id, index), cursor, name = decode_cursor(record)
    topic = catalog.topics_by_id.get(topic_id)
    if topic is not None:
        name = kafka_name(topic)
    if not name:
        return None
    value = None
    if cursor is not None:
        value = encode_offset_value(
            cursor.offset, cursor.leader_epoch, cursor.metadata, cursor.at_ms
        )
    return record._replace(key=encode_offset_key(group, name, index), value=value, headers=())


def _rewrite_transaction(catalog: Catalog, record: Record) -> Record:
    key = encode_transaction_key((record.key or b"").decode())
    value = None
    if record.value is not None:
        value = encode_transaction_value(_value_of(catalog, decode_transaction(record.value)))
    return record._replace(key=key, value=value)


def _value_of(catalog: Catalog, transaction: Transaction) -> TransactionValue:
    partitions: dict[str, list[int]] = {}
    for topic_id, index in sorted(transaction.partitions):
        topic = catalog.topics_by_id.get(topic_id)
        if topic is not None:
            partitions.setdefault(kafka_name(topic), []).append(index)
    previous = transaction.previous_producer_id
    if previous == NO_PRODUCER:
        # Kafka has the present one there.
        previous = transaction.producer_id
    return TransactionValue(
        transaction.producer_id,
        transaction.epoch,
        transaction.timeout_ms,
        transaction.state,
        None if transaction.state is State.EMPTY else partitions,
        transaction.changed_at_ms,
        transaction.started_at_ms,
        previous,
        transaction.next_producer_id,
        _BUMPING if transaction.bumps else 0,
    )


_REWRITES: Final[dict[str, _Rewrite]] = {
    CURSOR_TOPIC: _rewrite_cursor,
    TRANSACTION_TOPIC: _rewrite_transaction,
}
