"""Partitions as requests name them, and which leader the asker believes in."""

from __future__ import annotations

from headrace.engine.partition import Partition
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import topic_named
from headrace.server.service import Service


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
