"""What pages and health checks show of a node, and no SDK asks for: names, leases by message,
positions of groups, partitions in trouble. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.calls.served import Served
from headrace.core.steps import Steps
from headrace.core.values import MessageId, Receipt
from headrace.engine.catalog import Topic
from headrace.engine.cursor import Cursor
from headrace.engine.window import LEASED


class HeldLease(NamedTuple):
    """In the order in which they end."""

    until_ms: int
    id: MessageId
    consumer: str
    at_ms: int
    attempt: int


class StreamPosition(NamedTuple):
    topic: str
    partition: int
    # None where the group has committed nothing.
    offset: int | None
    end_offset: int
    lag: int


class Trouble(NamedTuple):
    """Of a partition that is stopped, or has batches that cannot be read."""

    topic: str
    partition: int
    # Why it is, or its queues are; empty where neither is.
    stopped: str
    unreadable: int


class LookingCalls(Served):
    def topic_named(self, name: str) -> Topic:
        """As the catalog has it: `topic` describes every partition."""
        with self._reading():
            return self._broker.topics.named(name)

    def is_topic(self, name: str) -> bool:
        with self._reading():
            return name in self._broker.topics.catalog.topics

    def is_queue(self, group: str) -> bool:
        with self._reading():
            return group in self._broker.topics.catalog.groups

    def check_settings(self, topic: str, settings: Mapping[str, Any]) -> None:
        """InvalidArgument when it cannot have them."""
        with self._reading():
            topics = self._broker.topics
            topics.altered_settings(topics.named(topic), settings)

    # Queues.

    def lease_listing(self, group: str, consumer: str | None) -> Steps[list[HeldLease]]:
        """In steps of one partition; of one consumer, or of all."""
        found = []
        with self._reading():
            views = self._broker.groups.views(self._broker.groups.named(group))
            for partition, view in views:
                yield
                if not view.grants:
                    continue
                for offset, grant in view.leased_by(consumer).items():
                    id = MessageId(partition.topic.name, partition.index, offset)
                    attempt = view.window.attempts_at(offset)
                    found.append(HeldLease(grant.until_ms, id, grant.owner, grant.at_ms, attempt))
        return sorted(found)

    def receipts_of(self, group: str, ids: Sequence[MessageId]) -> list[Receipt | None]:
        """Those by which these messages are leased; None for one that is not."""
        with self._reading():
            topics, known = self._broker.topics, self._broker.groups.named(group)
            found: list[Receipt | None] = []
            for id in ids:
                topic = topics.named(id.topic)
                view = topics.partition(topic, id.partition).views.get(known.id)
                if view is None or not view.is_in(id.offset, LEASED):
                    found.append(None)
                    continue
                attempt = view.window.attempts_at(id.offset)
                nonce = view.grants[view.window.grant_at(id.offset)].nonce
                receipt = Receipt(topic.id, id.partition, known.id, id.offset, attempt, nonce)
                found.append(receipt)
            return found

    # Streams.

    def stream_names(self) -> list[str]:
        """Groups that have positions."""
        with self._reading():
            return sorted(self._broker.cursors.groups())

    def cursors_of(self, group: str) -> tuple[list[Cursor], tuple[str, ...]]:
        """Its positions, and the topics that they are in."""
        with self._reading():
            cursors = self._broker.cursors
            return list(cursors.of(group).values()), tuple(cursors.topics_of(group))

    def stream_lag(self, group: str, topics: Sequence[str]) -> Steps[list[StreamPosition]]:
        """In steps of one partition: a topic may have ten thousand."""
        found = []
        with self._reading():
            catalog, cursors = self._broker.topics.catalog, self._broker.cursors
            # Where a Kafka client that has committed nothing begins is its own affair.
            known, table = cursors.topics_of(group), cursors.of(group)
            for name in topics:
                topic = catalog.topics.get(name)
                for each in [] if topic is None else list(self._broker.topics.partitions(topic)):
                    yield
                    cursor = table.get((each.topic.id, each.index))
                    start, end = each.log.start_offset, each.high_watermark
                    begin = start if cursor is None else max(start, cursor.offset)
                    offset = None if cursor is None or cursor.offset < 0 else cursor.offset
                    lag = max(0, end - begin) if name in known else 0
                    found.append(StreamPosition(name, each.index, offset, end, lag))
        return found

    # Transactions, and what is wrong.

    def transaction_names(self, *, ended: bool) -> list[str]:
        """Those under way, or with the ended ones all that are known."""
        with self._reading():
            table = self._broker.transactions
            return [name for name, _ in table.items()] if ended else [*table.unfinished_names()]

    def troubles(self) -> list[Trouble]:
        with self._reading():
            return [
                Trouble(
                    each.topic.name,
                    each.index,
                    str(each.stopped or each.queues_stopped) if each.is_stopped else "",
                    each.records.unreadable.count,
                )
                for each in self._broker.topics.troubled()
            ]
