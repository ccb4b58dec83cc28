"""Which partition a message goes to, decided by the producer.

    with a key       the partition that the node, and every Kafka client, would choose
    without one      one partition until its parcel is closed, then the next
    round robin      each to the next, on topics with that partitioner
    dedup            the node's to decide: it has to look at each message

What a producer knows of a topic is looked up once and then now and then, since topics
grow. Keys move to other partitions when they do, at the moment when a producer hears
of it.
"""

from __future__ import annotations

import secrets

from headrace.client.backend import Backend
from headrace.core.errors import UnknownPartition
from headrace.core.values import Outgoing, TopicInfo
from headrace.engine.partitioner import partition_of_key
from headrace.record.checking import check_message

REFRESH_SECONDS = 30.0


class Route:
    def __init__(self, info: TopicInfo, now: float) -> None:
        self.topic = info.name
        # Publishers that begin at different places do not all fill the same partition first.
        # The chance is the system's: a program that seeds Python's own, or forks, still has
        # publishers that differ, and gets back the numbers it seeded for.
        self._current = secrets.randbelow(len(info.partitions))
        self.learn(info, now)

    def learn(self, info: TopicInfo, now: float) -> None:
        self.partitions = len(info.partitions)
        self.record_bytes_max = int(info.settings["record_bytes_max"])
        self.is_node_choosing = bool(info.settings["dedup"])
        self._is_round_robin = info.settings["partitioner"] == "round-robin"
        self.is_stale_at = now + REFRESH_SECONDS
        self.is_doubtful = False

    def check(self, message: Outgoing) -> int:
        """The message's size as a record; raises what is wrong with it for this topic."""
        return check_message(
            message, self.topic, self.record_bytes_max, dedup=self.is_node_choosing
        )

    def choose(self, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            if not 0 <= partition < self.partitions:
                raise UnknownPartition(
                    f"{self.topic!r} has partitions 0 to {self.partitions - 1}, not {partition}"
                )
            return partition
        if key is not None:
            return partition_of_key(key, self.partitions)
        if self._is_round_robin:
            self._current += 1
        return self._current % self.partitions

    def on_closed(self, partition: int) -> None:
        """A parcel of this partition gets no more messages."""
        if partition == self._current % self.partitions:
            self._current += 1


def look_up(backend: Backend, topic: str) -> TopicInfo:
    """What a producer has to know. UnknownTopic, InvalidName, ReadOnly when nothing
    can be published there; a topic is made where the handle makes topics."""
    # Publishing nothing asks whether something could be published.
    backend.publish(topic, ())
    return backend.topic(topic)
