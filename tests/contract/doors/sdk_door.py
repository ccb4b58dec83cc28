"""The SDK as a door: in this process, or connected to a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.contract.doors.door import Act, Counts, Leased, Letter, New, Place, Refused, Seen

import headrace
from headrace.client.queue import Queue
from headrace.client.views import RecordView
from headrace.core.values import Outgoing


class SdkDoor:
    def __init__(self, handle: headrace.Headrace) -> None:
        self._handle = handle
        # The queue that a receipt came from settles it.
        self._queues: dict[str, Queue[Any]] = {}
        self._messages: dict[str, Any] = {}
        self._last: Queue[Any] | None = None

    # Topics.

    def create_topic(self, name: str, partitions: int = 1, **settings: Any) -> None:
        with _refusing():
            self._handle.create_topic(name, partitions, **settings)

    def topics(self) -> list[str]:
        return [each.name for each in self._handle.topics()]

    def bounds(self, topic: str) -> list[tuple[int, int]]:
        with _refusing():
            return [
                (each.start_offset, each.high_watermark)
                for each in self._handle.topic(topic).partitions
            ]

    def grow(self, topic: str, partitions: int) -> None:
        with _refusing():
            self._handle.grow_topic(topic, partitions)

    def delete_topic(self, name: str) -> None:
        with _refusing():
            self._handle.delete_topic(name)

    # Messages.

    def publish(self, topic: str, *messages: New) -> list[Place]:
        with _refusing():
            places = self._handle.publish_many(topic, [_new(each) for each in messages])
            return [Place(each.partition, each.offset, each.duplicate) for each in places]

    def publish_headers(self, topic: str, headers: Mapping[str, bytes]) -> None:
        """As any Kafka client may: the SDK itself keeps some names for its own use."""
        self._handle.connection.reach().publish(
            topic, [Outgoing(b"v", headers=tuple(headers.items()))]
        )

    def transact(self, messages: Sequence[tuple[str, New]], acks: Sequence[str]) -> list[Place]:
        with _refusing():
            with self._handle.transaction() as transaction:
                for topic, message in messages:
                    transaction.publish_many(topic, [_new(message)])
                transaction.ack(*(self._messages[receipt] for receipt in acks))
            return [Place(each.partition, each.offset) for each in transaction.published]

    def read(self, topic: str, partition: int, offset: int, count: int) -> tuple[list[Seen], int]:
        with (
            _refusing(),
            self._handle.stream(topic, partitions=[partition], start=offset) as stream,
        ):
            found = [_seen(each) for each in stream.poll(count, wait=0)]
            return found, stream.position()[topic, partition]

    # Queues.

    def lease(
        self,
        topics: str | Sequence[str],
        group: str,
        count: int = 10,
        *,
        visibility: float | None = None,
        settings: Mapping[str, Any] = {},
    ) -> list[Leased]:
        with _refusing():
            queue = self._handle.queue(topics, group, visibility=visibility, **settings)
            self._last = queue
            leased = queue.lease(count)
        for each in leased:
            self._queues[each.receipt] = queue
            self._messages[each.receipt] = each
        return [
            Leased(_seen(each), each.receipt, each.attempt, each.max_attempts, each.error)
            for each in leased
        ]

    def settle(self, act: Act, receipts: Sequence[str], **options: Any) -> list[str | None]:
        if "visibility" in options:
            options["seconds"] = options.pop("visibility")
        if "reason" in options:
            options["error"] = options.pop("reason")
        outcomes = []
        with _refusing():
            for receipt in receipts:
                queue = self._queues.get(receipt, self._last)
                assert queue is not None
                if options.get("group", queue.group) != queue.group:
                    queue = self._handle.queue(tuple(queue.topics), options["group"])
                given = {name: value for name, value in options.items() if name != "group"}
                [outcome] = getattr(queue, act)([receipt], **given)
                outcomes.append(None if outcome is None else outcome.code)
        return outcomes

    def status(self, topic: str, offset: int, group: str) -> tuple[str, int]:
        with _refusing():
            found = self._handle.status(f"{topic}:0:{offset}", group)
            return found.state, found.attempts

    def counts(self, group: str) -> Counts:
        with _refusing():
            found = self._handle.stats(group)
        return Counts(*(getattr(found, name) for name in Counts._fields))

    # Delayed messages and dead letters.

    def delayed(self, topic: str) -> list[tuple[bytes | None, int]]:
        with _refusing():
            return [
                (each.raw, round(each.deliver_at.timestamp() * 1000))
                for each in self._handle.delayed(topic)
            ]

    def cancel(self, topic: str, place: Place) -> bool:
        with _refusing():
            return self._handle.cancel(f"{topic}:{place.partition}:{place.offset}")

    def letters(self, topic: str, group: str | None = None) -> list[Letter]:
        with _refusing():
            return [
                Letter(
                    str(each.id), str(each.source), each.group, each.raw, each.error,
                    each.attempts, each.redrives,
                )
                for each in self._handle.dead_letters(topic).choose(group=group)
            ]  # fmt: skip

    def redrive(
        self, topic: str, letters: Sequence[Letter], *, dry_run: bool = False
    ) -> tuple[int, int, int]:
        ids = {each.id for each in letters}
        with _refusing():
            result = self._handle.dead_letters(topic).redrive(
                filter=lambda letter: str(letter.id) in ids, dry_run=dry_run
            )
            return result.matched, result.in_place, result.copied

    def purge(self, topic: str, letters: Sequence[Letter]) -> int:
        ids = {each.id for each in letters}
        with _refusing():
            return self._handle.dead_letters(topic).purge(
                filter=lambda letter: str(letter.id) in ids
            )

    # Traces.

    def trace(self, what: str) -> headrace.MessageTrace:
        with _refusing():
            return self._handle.trace(what)

    def traces(self, **choice: Any) -> list[headrace.MessageTrace]:
        if "header" in choice and choice["header"][1] is None:
            choice["header"] = choice["header"][0]
        for name in ("since", "until"):
            if name in choice:
                choice[name] /= 1000
        with _refusing():
            return list(self._handle.traces(**choice))

    # Groups.

    def groups(self) -> dict[str, str]:
        return {each.name: each.kind for each in self._handle.groups()}

    def delete_group(self, name: str) -> None:
        with _refusing():
            self._handle.delete_group(name)

    def seek(self, group: str, topic: str, offset: int) -> None:
        with _refusing(), self._handle.stream(topic, group) as stream:
            stream.seek(offset, partition=0)
            stream.commit()

    def cursor(self, group: str, topic: str) -> int | None:
        with _refusing(), self._handle.stream(topic, group, auto_commit=None) as stream:
            return stream.position().get((topic, 0))

    def close(self) -> None:
        self._handle.close()


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except headrace.HeadraceError as error:
        raise Refused(error.code, str(error)) from error


def _new(message: New) -> headrace.NewMessage:
    return headrace.NewMessage(
        message.value,
        message.key,
        message.headers,
        partition=message.partition,
        **message.attributes,
    )


def _seen(view: RecordView[Any]) -> Seen:
    return Seen(view.partition, view.offset, view.key, view.raw, dict(view.headers))
