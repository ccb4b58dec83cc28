"""What Fetch says of one partition where it gives no records, or of those that it gives."""

from __future__ import annotations

from headrace.core.ports import Buffer
from headrace.engine.partition import Partition
from headrace.record import read_header
from headrace.server.kafka.errors import Error
from headrace.server.kafka.partitions import epoch_end
from headrace.wire.kafka.generated.fetch_request import FetchPartition
from headrace.wire.kafka.generated.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
)


def failed(index: int, code: int, start: int = -1, end: int = -1) -> PartitionData:
    return PartitionData(index, code, end, end, start, aborted_transactions=None, records=b"")


def check_epoch(partition: Partition, epoch: int, node_id: int) -> PartitionData | None:
    """A client that knows an older or a newer leader than us has to look again."""
    if epoch < 0 or epoch == partition.epoch:
        return None
    code = Error.FENCED_LEADER_EPOCH if epoch < partition.epoch else Error.UNKNOWN_LEADER_EPOCH
    return failed(partition.index, code)._replace(
        current_leader=LeaderIdAndEpoch(node_id, partition.epoch)
    )


def find_divergence(partition: Partition, wanted: FetchPartition) -> PartitionData | None:
    """Where the log that the client has read from left ours; None where it did not."""
    start, end = partition.log.start_offset, partition.high_watermark
    epoch, epoch_ends = epoch_end(partition, wanted.last_fetched_epoch)
    if epoch < 0 or wanted.fetch_offset < start:
        return failed(partition.index, Error.OFFSET_OUT_OF_RANGE, start, end)
    if epoch == wanted.last_fetched_epoch and wanted.fetch_offset <= epoch_ends:
        return None
    return PartitionData(
        partition.index, 0, end, partition.last_stable_offset, start,
        EpochEndOffset(epoch, epoch_ends), aborted_transactions=None, records=b"",
    )  # fmt: skip


def aborted_in(partition: Partition, first: int, records: Buffer) -> list[AbortedTransaction]:
    """The aborted transactions that may have records among these."""
    if not records or not partition.log.aborted:
        return []
    position = 0
    end = first
    while position < len(records):
        header = read_header(records, position)
        end = header.next_offset
        position += header.size_bytes
    return [
        AbortedTransaction(found.producer_id, found.first_offset)
        for found in partition.aborted_between(first, end)
    ]
