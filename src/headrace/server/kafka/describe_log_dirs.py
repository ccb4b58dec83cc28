"""DescribeLogDirs, versions 1 to 5: how large partitions are on disk.

A node has one directory. Sizes are those of the partitions' logs; nothing lags and
nothing is being moved. Topics and partitions that do not exist are left out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from headrace.engine.catalog import Topic
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.kafka.generated.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    catalog = call.service.broker.topics.catalog
    topics = []
    if request.topics is None:
        for _, topic in sorted(catalog.topics.items()):
            topics.append(_describe(call, topic, range(topic.partitions)))
    else:
        for name, partitions in request.topics:
            found = catalog.topics.get(name)
            if found is not None:
                topics.append(_describe(call, found, partitions))
    path = log_directory(call)
    total, _, free = shutil.disk_usage(path)
    result = DescribeLogDirsResult(Error.NONE, path, topics, total, free)
    return DescribeLogDirsResponse(results=(result,))


def log_directory(call: Call) -> str:
    return os.path.abspath(call.door.settings.data)


def _describe(call: Call, topic: Topic, wanted: Sequence[int]) -> DescribeLogDirsTopic:
    partitions = call.service.broker.topics.partitions(topic)
    return DescribeLogDirsTopic(
        topic.name,
        [
            DescribeLogDirsPartition(index, partitions[index].log.size_bytes)
            for index in wanted
            if 0 <= index < len(partitions)
        ],
    )
