"""Records that could not be decoded, as dead letters of their topic.

They go to `<topic>.dlq`, where everything that Headrace gives up goes, with the same
headers, so that every tool for dead letters shows them, with the reason. The topic is
made if it is not there. A task that is repeated sends its letters again: at least once.
"""

from __future__ import annotations

import time
from typing import Final

from headrace.client.kafka.cluster import KafkaCluster, KafkaError
from headrace.client.kafka.connection import CREATE_TOPICS
from headrace.client.kafka.producing import KafkaProducer, Records
from headrace.core.errors import InvalidOption
from headrace.engine.dead_letter import Story, bury
from headrace.record import HEADER_BYTES, Record, build_batch
from headrace.spark.splits import OffsetRange
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.generated.create_topics_request import (
    CreatableTopic,
    CreateTopicsRequest,
)

SUFFIX: Final = ".dlq"
REASON: Final = "not decodable"
DEFAULT_GROUP: Final = "spark"
_LETTERS_PER_BATCH: Final = 1_000


def ensure_letters(cluster: KafkaCluster, topics: dict[str, int]) -> None:
    """Make the dead letters' topics that are missing, with as many partitions as their
    topics have. Asked on the driver, before a row is read."""
    names = {f"{topic}{SUFFIX}": count for topic, count in topics.items()}
    missing = names.keys() - cluster.topics(names).keys()
    if not missing:
        return
    request = CreateTopicsRequest(
        tuple(CreatableTopic(name, names[name], -1) for name in sorted(missing)),
        cluster.timeout_ms,
    )
    answer = cluster.any_broker().call(CREATE_TOPICS, request)
    for topic in answer.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise InvalidOption(
                f"option 'badRecords': {topic.name!r} cannot be made: "
                f"{topic.error_message or KafkaError(topic.error_code, 'refused')}; make it, or "
                "use 'column'"
            )


class LetterSender:
    """For one range. Nothing is sent until `flush`."""

    def __init__(self, cluster: KafkaCluster, range: OffsetRange, group: str | None) -> None:
        self._cluster = cluster
        self._range = range
        self._group = group or DEFAULT_GROUP
        self._letters: list[tuple[Record, str]] = []

    def add(self, record: Record, why: str) -> None:
        self._letters.append((record, why))

    def flush(self) -> None:
        letters, self._letters = self._letters, []
        if not letters:
            return
        name = f"{self._range.topic}{SUFFIX}"
        found = self._cluster.topics((name,)).get(name)
        partition = self._range.partition
        if found is not None:
            partition %= len(found.partitions)
        producer = KafkaProducer(self._cluster)
        try:
            producer.begin()
            for start in range(0, len(letters), _LETTERS_PER_BATCH):
                producer.send(name, partition, self._records(letters[start:][:_LETTERS_PER_BATCH]))
            producer.flush()
        finally:
            producer.close()

    def _records(self, letters: list[tuple[Record, str]]) -> Records:
        now_ms = int(time.time() * 1000)
        made = [
            bury(
                record,
                Story(
                    self._range.topic, self._range.partition, self._group, REASON, why, 1, now_ms
                ),
                f"{self._range.id}/{self._range.partition}/spark/0/{record.offset}".encode(),
            )
            for record, why in letters
        ]
        times = [record.timestamp_ms for record in made]
        data = build_batch(made)[HEADER_BYTES:]
        return Records(data, len(made), times[0], max(times))
