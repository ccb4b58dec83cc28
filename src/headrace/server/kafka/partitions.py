"""Partitions as requests name them, and which leader the asker believes in."""

from __future__ import annotations

from headrace.engine.partition import Partition
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import topic_named
from headrace.server.service import Service

UNKNOWN_EPOCH = (-1, -1)


def partition_of(service: Service, name: str, index: int) -> Partition:
    """UnknownTopic, InvalidName or UnknownPartition when there is none."""
    topics = service.broker.topics
    return topics.partition(topic_named(topics, name), index)


def led_partition_of(service: Service, name: str, index: int) -> Partition:
    """As `partition_of`; FencedLeader where another node leads it."""
    partition = partition_of(service, name, index)
    partition.check_here()
    return partition


def epoch_error(partition: Partition, epoch: int) -> Error:
    """A client that knows an older or a newer leader than us has to look again."""
    if epoch in (-1, partition.epoch):
        return Error.NONE
    return Error.FENCED_LEADER_EPOCH if epoch < partition.epoch else Error.UNKNOWN_LEADER_EPOCH


def epoch_end(partition: Partition, epoch: int) -> tuple[int, int]:
    """The last epoch up to this one that wrote here, and where it ended."""
    log = partition.log
    if not 0 <= epoch <= partition.epoch:
        return UNKNOWN_EPOCH
    if epoch == partition.epoch:
        return epoch, log.end_offset
    found = log.epoch_end(epoch)
    if found != UNKNOWN_EPOCH:
        return found
    entries = log.epochs.entries
    return epoch, entries[0][1] if entries else log.end_offset
