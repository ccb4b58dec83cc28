"""The actor: calls the public SDK and writes down each call, before and after.

It is the same in a process that gets killed, where the lines go to a file, and on
a disk that loses its power, where they go to a list. What it calls is the test's
business; that nothing is called unnoted is this file's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.crash.ledger import Fact

from headrace import Headrace, Queue
from headrace.client.message import Message

GROUP = "workers"
REDRIVES_HEADER = "headrace-redrives"


def redrives_of(message: Message[Any]) -> int:
    return int(dict(message.all_headers).get(REDRIVES_HEADER) or b"0")


class Actor:
    """`number` is that of the first call: numbers never repeat in one ledger."""

    def __init__(self, handle: Headrace, note: Callable[[Fact], None], number: int = 0) -> None:
        self.handle = handle
        self._note = note
        self._number = number
        self._queues: dict[str, Queue[Any]] = {}

    def reopen(self, open_again: Callable[[], Headrace]) -> None:
        """Close the directory in order, which gives back what is leased."""

        def act() -> dict[str, Any]:
            self.handle.close()
            return {}

        self._call("close", act)
        self.handle = open_again()
        self._queues = {}

    def _call(self, op: str, act: Callable[[], dict[str, Any]], **about: Any) -> Fact:
        self._number += 1
        fact: Fact = {"number": self._number, "kind": "try", "op": op, **about}
        self._note(fact)
        done = {**fact, "kind": "done", **act()}
        self._note(done)
        return done

    # Topics.

    def create_topic(self, topic: str, partitions: int, **settings: Any) -> None:
        def act() -> dict[str, Any]:
            self.handle.create_topic(topic, partitions, exist_ok=True, **settings)
            return {}

        self._call(
            "create_topic", act, topic=topic, partitions=partitions,
            may_lose_old="retention" in settings, streamed="retention_bytes" in settings,
            compacted=settings.get("cleanup") == "compact",
        )  # fmt: skip

    def delete_topic(self, topic: str) -> None:
        def act() -> dict[str, Any]:
            self._queues.pop(topic, None)
            self.handle.delete_topic(topic)
            return {}

        self._call("delete_topic", act, topic=topic)

    def grow_topic(self, topic: str, partitions: int) -> None:
        def act() -> dict[str, Any]:
            self.handle.grow_topic(topic, partitions)
            return {}

        self._call("grow_topic", act, topic=topic, partitions=partitions)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        def act() -> dict[str, Any]:
            self.handle.delete_records(topic, partition, before)
            return {}

        self._call("delete_records", act, topic=topic, partition=partition, before=before)

    # Publishing.

    def publish(
        self,
        topic: str,
        values: Sequence[str],
        *,
        key: str | None = None,
        dedup_ids: Sequence[str | None] | None = None,
        **options: Any,
    ) -> list[tuple[int, int]]:
        ids = list(dedup_ids or [None] * len(values))

        def act() -> dict[str, Any]:
            if key is None and dedup_ids is None and len(values) > 1:
                places = self.handle.publish_many(topic, [v.encode() for v in values], **options)
                return {"places": [(p.partition, p.offset, p.duplicate) for p in places]}
            found = [
                self.handle.publish(topic, value.encode(), key=key, dedup_id=dedup_id, **options)
                for value, dedup_id in zip(values, ids, strict=True)
            ]
            return {"places": [(p.partition, p.offset, p.duplicate) for p in found]}

        if dedup_ids is not None or key is not None:
            assert len(values) == 1, "one call is one publish, so that it is answered as one"
        done = self._call(
            "publish", act, topic=topic, values=list(values), key=key, dedup_ids=ids,
            may_expire="ttl" in options,
        )  # fmt: skip
        return [(partition, offset) for partition, offset, _ in done["places"]]

    def cancel(self, topic: str, place: tuple[int, int]) -> None:
        def act() -> dict[str, Any]:
            return {"cancelled": self.handle.cancel(f"{topic}:{place[0]}:{place[1]}")}

        self._call("cancel", act, topic=topic, place=list(place))

    # Leases.

    def queue(self, topic: str) -> Queue[Any]:
        if topic not in self._queues:
            self._queues[topic] = self.handle.queue(topic, GROUP, backoff_ms=0)
        return self._queues[topic]

    def lease(self, topic: str, count: int) -> list[Message[Any]]:
        queue = self.queue(topic)
        found: list[Message[Any]] = []

        def act() -> dict[str, Any]:
            found.extend(queue.lease(count))
            return {
                "leased": [
                    (m.partition, m.offset, m.attempt, (m.raw or b"").decode(), redrives_of(m))
                    for m in found
                ]
            }

        self._call("lease", act, topic=topic)
        return found

    def settle(self, op: str, topic: str, messages: Sequence[Message[Any]], **about: Any) -> None:
        """ack, nack, reject, extend or release."""
        if not messages:
            return

        def act() -> dict[str, Any]:
            outcomes = getattr(self.queue(topic), op)(list(messages), **about)
            return {"settled": [outcome is None for outcome in outcomes]}

        self._call(op, act, topic=topic, places=[(m.partition, m.offset) for m in messages])

    # Dead letters.

    def _letters(self, topic: str, count: int) -> list[tuple[int, int]]:
        """Where the messages were."""
        return [
            (letter.source.partition, letter.source.offset)
            for letter in self.handle.dead_letters(topic).choose(limit=count)
        ]

    def redrive(self, topic: str, count: int) -> None:
        def act() -> dict[str, Any]:
            done = self.handle.dead_letters(topic).redrive(limit=count, force=True)
            return {"in_place": done.in_place, "copied": done.copied}

        letters = self._letters(topic, count)
        if letters:
            self._call("redrive", act, topic=topic, letters=letters)

    def purge(self, topic: str, count: int) -> None:
        def act() -> dict[str, Any]:
            self.handle.dead_letters(topic).purge(limit=count)
            return {}

        letters = self._letters(topic, count)
        if letters:
            self._call("purge", act, topic=topic, letters=letters)

    # Cursors.

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        def act() -> dict[str, Any]:
            self.handle.connection.reach().commit(group, {(topic, partition): offset})
            return {}

        self._call("commit", act, group=group, topic=topic, partition=partition, offset=offset)
