"""DescribeLogDirs, versions 1 to 5: how large partitions are on disk.

A node has one directory. Sizes are those of the partitions' logs; nothing lags and
nothing is being moved. Topics and partitions that do not exist are left out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Coroutine, Sequence
from typing import Any

from headrace.core.steps import Steps
from headrace.engine.catalog import Topic
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import find_topic, kafka_name
from headrace.server.slices import answer
from headrace.wire.kafka.generated.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.kafka.generated.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    call: Call, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse | Coroutine[Any, Any, DescribeLogDirsResponse]:
    catalog = call.broker.topics.catalog
    wanted: list[tuple[Topic, Sequence[int]]]
    if request.topics is None:
        wanted = [(topic, range(topic.partitions)) for _, topic in sorted(catalog.topics.items())]
    else:
        named = ((find_topic(catalog, name), indexes) for name, indexes in request.topics)
        wanted = [(topic, indexes) for topic, indexes in named if topic is not None]
    size = sum(1 + len(partitions) for _, partitions in wanted)
    return answer(size, _describe_all(call, wanted))


def _describe_all(
    call: Call, wanted: Sequence[tuple[Topic, Sequence[int]]]
) -> Steps[DescribeLogDirsResponse]:
    topics = []
    for topic, partitions in wanted:
        topics.append((yield from _describe(call, topic, partitions)))
    path = log_directory(call)
    total, _, free = shutil.disk_usage(path)
    result = DescribeLogDirsResult(Error.NONE, path, topics, total, free)
    return DescribeLogDirsResponse(results=(result,))


def log_directory(call: Call) -> str:
    return os.path.abspath(call.door.settings.data)


def _describe(call: Call, topic: Topic, wanted: Sequence[int]) -> Steps[DescribeLogDirsTopic]:
    found = []
    for index in wanted:
        partition = call.broker.topics.find(topic.id, index)
        if partition is not None:
            found.append(DescribeLogDirsPartition(index, partition.log.size_bytes))
        yield
    return DescribeLogDirsTopic(kafka_name(topic), found)
