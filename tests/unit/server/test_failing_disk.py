"""What the disk refuses is told in the same words at every door, whatever it was asked for."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import closing
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run

from headrace.calls import Face
from headrace.core.errors import (
    DiskFull,
    FencedLeader,
    HeadraceError,
    SyncFailed,
    TooManyFiles,
)
from headrace.core.values import Outgoing
from headrace.node import Node
from headrace.server.kafka.errors import Error
from headrace.server.loop_calls import Calls
from headrace.testing import FaultDisk
from headrace.wire.kafka.generated import create_partitions_request, create_topics_request

CREATE_TOPICS, CREATE_PARTITIONS = 19, 37


def fail(disk: FaultDisk, number: int, below: str = "") -> None:
    def before(_: int, name: str, path: str) -> None:
        if name in ("write", "create", "make_directory") and path.startswith(below):
            raise OSError(number, os.strerror(number), path)

    disk.on_operation = before


async def create_topic(asking: Asking) -> Any:
    wanted = create_topics_request.CreatableTopic("more", 1, 1)
    request = create_topics_request.CreateTopicsRequest((wanted,), 1_000)
    return (await asking.ask(CREATE_TOPICS, 7, request)).topics[0]


async def create_partitions(asking: Asking) -> Any:
    wanted = create_partitions_request.CreatePartitionsTopic("orders", 2, None)
    request = create_partitions_request.CreatePartitionsRequest((wanted,), 1_000)
    return (await asking.ask(CREATE_PARTITIONS, 3, request)).results[0]


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.ENOSPC, DiskFull, "No space left"),
        (errno.EDQUOT, DiskFull, "quota exceeded"),
        (errno.EMFILE, TooManyFiles, "ulimit -n"),
        (errno.EIO, SyncFailed, "check the disk"),
    ],
)
def test_a_disk_that_fails_is_told_as_what_it_is(
    number: int, kind: type[HeadraceError], says: str
) -> None:
    async def scenario() -> None:
        disk = FaultDisk()
        asking = Asking(disk)
        calls = Calls(asking.service)
        await calls.run(Face.create_topic, "orders", partitions=1)
        fail(disk, number)
        for ask in (create_topic, create_partitions):
            answer = await ask(asking)
            assert answer.error_code == Error.KAFKA_STORAGE_ERROR
            assert says in answer.error_message
        with pytest.raises(kind, match=says):
            await calls.run(Face.create_topic, "another", partitions=1)
        disk.on_operation = None

    run(scenario)


def messages() -> list[Outgoing]:
    return [Outgoing(b"first", partition=0), Outgoing(b"second", partition=1)]


def test_what_a_publish_wrote_before_the_disk_failed_is_not_kept_from_readers() -> None:
    """Nobody knows that it is there, and whoever publishes next would show it."""

    async def scenario() -> None:
        disk = FaultDisk()
        asking = Asking(disk)
        calls = Calls(asking.service)
        await calls.run(Face.create_topic, "orders", partitions=2)
        topics = asking.broker.topics
        first, second = topics.partitions(topics.named("orders"))
        fail(disk, errno.EIO, below=second.path)
        with pytest.raises(SyncFailed):
            await calls.run(Face.publish, "orders", messages())
        while not asking.service.commits.is_idle:
            await asyncio.sleep(0)
        assert (first.high_watermark, second.log.end_offset) == (1, 0)
        disk.on_operation = None

    run(scenario)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_what_a_handle_wrote_before_the_disk_failed_is_not_kept_from_readers(number: int) -> None:
    disk = FaultDisk()
    with closing(Node.open(":memory:", disk=disk)) as node:
        node.create_topic("orders", partitions=2)
        topics = node._broker.topics
        first, second = topics.partitions(topics.named("orders"))
        fail(disk, number, below=second.path)
        with pytest.raises((DiskFull, TooManyFiles)):
            node.publish("orders", messages())
        disk.on_operation = None
        assert (first.high_watermark, second.log.end_offset) == (1, 0)


def test_nothing_is_published_where_one_of_the_partitions_is_led_elsewhere() -> None:
    with closing(Node.open(":memory:", disk=FaultDisk())) as node:
        node.create_topic("orders", partitions=2)
        topics = node._broker.topics
        first, second = topics.partitions(topics.named("orders"))
        second.resign()
        with pytest.raises(FencedLeader):
            node.publish("orders", messages())
        assert first.log.end_offset == 0
