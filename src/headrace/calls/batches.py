"""Record batches that a client made: appended as they are, after checks.

The checksum and the header are looked at, the records are not opened, so what was
compressed stays compressed. Batches of transactions are refused: who decides them
has to be told of them first, which Kafka's protocol does.
"""

from __future__ import annotations

from headrace.calls.served import Served
from headrace.core.errors import CorruptBatch, InvalidArgument, RecordTooLarge
from headrace.core.values import Published
from headrace.engine.commit import Commit
from headrace.record import BatchHeader, check_batch
from headrace.record.batch import HEADER_BYTES


class BatchCalls(Served):
    def publish_batch(self, topic: str, partition: int, batch: bytearray) -> Published:
        """The place of the batch's first record. The bytes are ours from now on:
        they are given their offsets in place."""

        def append(now_ms: int, commit: Commit) -> Published:
            found = self._topic_to_write(topic, now_ms)
            place = self._broker.topics.partition(found, partition)
            if found.is_internal:
                raise InvalidArgument(f"{topic} is ours; internal topics are not written to")
            if not batch:
                raise CorruptBatch("there is no record batch; send one of Kafka's format")
            header = check_batch(memoryview(batch))
            _check_header(header, len(batch))
            bytes_max = found.settings.record_bytes_max
            if header.size_bytes > bytes_max + HEADER_BYTES:
                raise RecordTooLarge(
                    f"the batch has {header.size_bytes} bytes and this topic takes {bytes_max}; "
                    "send smaller batches"
                )
            self._broker.check_space(header.size_bytes)
            appended = place.append(batch, header, now_ms)
            commit.data.append((place, appended.next_offset))
            if not appended.duplicate:
                commit.published.append((place, header.count, len(batch)))
            return Published(partition, appended.first_offset, appended.duplicate)

        published = self._write(append)
        self._notify_published()
        return published


def _check_header(header: BatchHeader, size: int) -> None:
    """What a producer may not send, though it is a batch."""
    if header.size_bytes != size:
        raise InvalidArgument("there is something behind the batch; send one batch at a time")
    if header.is_control:
        raise InvalidArgument("control batches are the node's own to write")
    if header.is_transactional:
        raise InvalidArgument("batches of transactions are published over Kafka's protocol")
    if not header.count or not header.is_dense:
        raise InvalidArgument(
            f"the batch has {header.count} records for {header.last_offset_delta + 1} offsets"
        )
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidArgument("a producer with an id numbers its records")
    if header.has_log_append_time or header.has_delete_horizon:
        raise InvalidArgument("the time of appending is not a producer's to set")
