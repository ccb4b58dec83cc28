"""Batches to partitions: each once and in order, alone or as one transaction.

    producer.send("orders", 0, batch)     a few requests to each broker are under way
    producer.flush()                      all of them are answered

    producer.commit({("orders", 0): 41}, group="done")      with a transactional id: what
    producer.abort()                                        was sent, and these offsets,
                                                            at once or not at all

The broker knows each batch by producer id, epoch and sequence. Whatever happens to a
connection, everything that was not answered is sent again, in the same order with the
same numbers, and what is there already is recognised. A producer with the same
transactional id that begins later fences this one: from then on everything raises.

Rejected: a batch that grows while others are under way. The caller has whole columns
and makes batches of the right size at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.client.kafka.cluster import (
    GROUP,
    TRANSACTION,
    KafkaCluster,
    KafkaError,
    Place,
)
from headrace.client.kafka.connection import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    KafkaConnection,
)
from headrace.core.errors import BrokerUnreachable, InvalidArgument
from headrace.core.ports import Buffer
from headrace.record import Codec, seal_records
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.generated.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.kafka.generated.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.kafka.generated.end_txn_request import EndTxnRequest
from headrace.wire.kafka.generated.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.kafka.generated.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

# Brokers remember so many batches of a producer, and recognise those.
IN_FLIGHT_MAX: Final = 5
TRANSACTION_TIMEOUT_MS: Final = 600_000
_SEQUENCES: Final = 2**31
_ALL: Final = -1
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 2.0


class Records(NamedTuple):
    """Records that are encoded and not yet a batch: only the producer knows its own
    id and the sequence."""

    data: bytes | bytearray
    count: int  # type: ignore[assignment]
    base_timestamp_ms: int
    max_timestamp_ms: int


class _Sent(NamedTuple):
    place: Place
    batch: Buffer


class KafkaProducer:
    def __init__(
        self,
        cluster: KafkaCluster,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        codec: Codec = Codec.NONE,
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._codec = codec
        self._id = -1
        self._epoch = -1
        self._sequences: dict[Place, int] = {}
        # What has no answer yet, in the order in which it was sent: of one broker each.
        self._unanswered: dict[tuple[str, int], deque[_Sent]] = {}
        self._connections: dict[tuple[str, int], KafkaConnection] = {}
        self._added: set[Place] = set()

    def begin(self) -> None:
        """Get an id. With a transactional id this waits until what an earlier producer
        of that id left behind is decided, and fences it."""
        request = InitProducerIdRequest(
            self._transactional_id, self._transaction_timeout_ms if self._transactional_id else 0
        )

        def attempt() -> Any:
            if self._transactional_id is None:
                answer = self._cluster.any_broker().call(INIT_PRODUCER_ID, request)
            else:
                answer = self._ask_coordinator(INIT_PRODUCER_ID, request)
            self._check(answer.error_code, "getting a producer id")
            return answer

        answer = self._cluster.persist(attempt, self._cluster.forget)
        self._id, self._epoch = answer.producer_id, answer.producer_epoch

    def close(self) -> None:
        """Lets go of connections. What was not flushed may or may not be there; an open
        transaction stays open until its id begins again or its time is over."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Sending.

    def send(self, topic: str, partition: int, records: Records) -> None:
        if self._id < 0:
            raise InvalidArgument("a producer has to begin before it sends")
        place = (topic, partition)
        if self._transactional_id is not None and place not in self._added:
            self._add_partition(place)
        # A broker that knows nothing of us takes any sequence as the first: a second
        # batch must not overtake one that is refused and comes again.
        in_flight_max = IN_FLIGHT_MAX if place in self._sequences else 0
        sequence = self._sequences.get(place, 0)
        batch = seal_records(
            records.data,
            records.count,
            records.base_timestamp_ms,
            records.max_timestamp_ms,
            codec=self._codec,
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=self._transactional_id is not None,
        )
        self._sequences[place] = (sequence + records.count) % _SEQUENCES
        sent = _Sent(place, batch)
        try:
            address = self._cluster.leader_address(place)
            waiting = self._unanswered.setdefault(address, deque())
            waiting.append(sent)
            self._transmit(address, sent)
            while len(waiting) > in_flight_max:
                self._take_answer(address)
        except (BrokerUnreachable, KafkaError) as error:
            if not any(sent in each for each in self._unanswered.values()):
                self._unanswered.setdefault(("", 0), deque()).append(sent)
            self._send_again(error)

    def flush(self) -> None:
        """Everything that was sent is in the log when this returns."""
        while any(self._unanswered.values()):
            try:
                for address, waiting in list(self._unanswered.items()):
                    while waiting:
                        self._take_answer(address)
            except (BrokerUnreachable, KafkaError) as error:
                self._send_again(error)

    def _transmit(self, address: tuple[str, int], sent: _Sent) -> None:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self._cluster.connect(address)
        (topic, partition), batch = sent
        data = TopicProduceData(topic, partition_data=(PartitionProduceData(partition, batch),))
        request = ProduceRequest(self._transactional_id, _ALL, self._cluster.timeout_ms, (data,))
        connection.send(PRODUCE, request)

    def _take_answer(self, address: tuple[str, int]) -> None:
        waiting = self._unanswered[address]
        connection = self._connections.get(address)
        if connection is None or not connection.waiting:
            raise BrokerUnreachable(f"the connection to {address[0]}:{address[1]} is gone")
        answer = connection.receive()
        [topic] = answer.responses
        [partition] = topic.partition_responses
        code = partition.error_code
        if code and code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            (name, index), batch = waiting[0]
            raise KafkaError(code, f"writing a batch of {len(batch)} bytes to {name}:{index}")
        waiting.popleft()

    def _send_again(self, error: BrokerUnreachable | KafkaError) -> None:
        """All that has no answer, to whoever leads now, until one attempt succeeds or
        the time is over."""
        deadline = time.monotonic() + self._cluster.timeout_ms / 1000
        pause = _PAUSE_S
        failure: BrokerUnreachable | KafkaError = error
        while True:
            # A number out of order is what follows a failure, and no failure itself.
            if isinstance(failure, KafkaError) and not (
                failure.passes or failure.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            ):
                raise failure
            if time.monotonic() > deadline:
                raise failure
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_S_MAX)
            try:
                self._repeat()
                return
            except (BrokerUnreachable, KafkaError) as again:
                failure = again

    def _repeat(self) -> None:
        """One at a time: order matters more than speed now."""
        self.close()
        self._cluster.forget()
        waiting = [sent for each in self._unanswered.values() for sent in each]
        self._unanswered = {("", 0): deque(waiting)}
        while self._unanswered[("", 0)]:
            sent = self._unanswered[("", 0)][0]
            address = self._cluster.leader_address(sent.place)
            self._unanswered[address] = deque((sent,))
            try:
                self._transmit(address, sent)
                self._take_answer(address)
            finally:
                del self._unanswered[address]
            self._unanswered[("", 0)].popleft()
        self._unanswered = {}

    # Transactions.

    def _add_partition(self, place: Place) -> None:
        topic = AddPartitionsToTxnTopic(place[0], (place[1],))
        request = AddPartitionsToTxnRequest(
            self._transactional_id or "", self._id, self._epoch, (topic,)
        )

        def attempt() -> None:
            answer = self._ask_coordinator(ADD_PARTITIONS_TO_TXN, request)
            for each in answer.results_by_topic_v3_and_below:
                for partition in each.results_by_partition:
                    self._check(partition.partition_error_code, f"adding {place[0]}:{place[1]}")

        self._cluster.persist(attempt, self._cluster.forget)
        self._added.add(place)

    def commit(self, offsets: Mapping[Place, int], *, group: str, metadata: str = "") -> None:
        """Everything sent so far, and these offsets of a group, as one. `metadata` is
        written beside each of them."""
        self.flush()
        self._add_group(group)
        self._commit_offsets(offsets, group, metadata)
        self._end(commit=True)

    def abort(self) -> None:
        """Nothing that was sent since the last commit counts."""
        for waiting in self._unanswered.values():
            waiting.clear()
        self.close()
        if self._added:
            self._end(commit=False)

    def _add_group(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(self._transactional_id or "", self._id, self._epoch, group)

        def attempt() -> None:
            answer = self._ask_coordinator(ADD_OFFSETS_TO_TXN, request)
            self._check(answer.error_code, f"adding group {group!r} to the transaction")

        self._cluster.persist(attempt, self._cluster.forget)

    def _commit_offsets(self, offsets: Mapping[Place, int], group: str, metadata: str) -> None:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (name, index), offset in offsets.items():
            topics.setdefault(name, []).append(
                TxnOffsetCommitRequestPartition(index, offset, committed_metadata=metadata)
            )
        request = TxnOffsetCommitRequest(
            self._transactional_id or "",
            group,
            self._id,
            self._epoch,
            topics=tuple(
                TxnOffsetCommitRequestTopic(name, tuple(each)) for name, each in topics.items()
            ),
        )

        def attempt() -> None:
            answer = self._cluster.ask_coordinator(GROUP, group, TXN_OFFSET_COMMIT, request)
            for topic in answer.topics:
                for partition in topic.partitions:
                    self._check(partition.error_code, f"committing offsets of {group!r}")

        self._cluster.persist(attempt, self._cluster.forget)

    def _end(self, *, commit: bool) -> None:
        request = EndTxnRequest(self._transactional_id or "", self._id, self._epoch, commit)

        def attempt() -> None:
            answer = self._ask_coordinator(END_TXN, request)
            self._check(answer.error_code, "ending the transaction")

        self._cluster.persist(attempt, self._cluster.forget)
        self._added.clear()

    def _ask_coordinator(self, key: int, request: Any) -> Any:
        assert self._transactional_id is not None
        return self._cluster.ask_coordinator(TRANSACTION, self._transactional_id, key, request)

    def _check(self, code: int, doing: str) -> None:
        if code:
            raise KafkaError(code, doing)
