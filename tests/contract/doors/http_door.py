"""HTTP as a door."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
from tests.contract.doors.door import Act, Counts, Leased, Letter, New, Place, Refused, Seen

from headrace.core.trace_values import GroupTrace, MessageTrace, TraceEvent, TraceLink
from headrace.core.values import MessageId


class HttpDoor:
    def __init__(self, address: str) -> None:
        self._client = httpx.Client(base_url=f"http://{address}", timeout=60)

    def _ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        given = {name: value for name, value in query.items() if value is not None}
        answer = self._client.request(method, path, json=body, params=given)
        found: Any = answer.json() if answer.content else None
        if answer.is_error:
            assert answer.status_code < 500, answer.text
            raise Refused(found["code"], found["detail"])
        return found

    # Topics.

    def create_topic(self, name: str, partitions: int = 1, **settings: Any) -> None:
        body = {"name": name, "partitions": partitions, "settings": settings}
        self._ask("POST", "/topics", body)

    def topics(self) -> list[str]:
        return [each["name"] for each in self._pages("/topics", "topics")]

    def bounds(self, topic: str) -> list[tuple[int, int]]:
        partitions = self._ask("GET", f"/topics/{topic}")["partitions"]
        return [(each["start_offset"], each["high_watermark"]) for each in partitions]

    def grow(self, topic: str, partitions: int) -> None:
        self._ask("PATCH", f"/topics/{topic}", {"partitions": partitions})

    def delete_topic(self, name: str) -> None:
        self._ask("DELETE", f"/topics/{name}")

    # Messages.

    def publish(self, topic: str, *messages: New) -> list[Place]:
        body = {"messages": list(map(new_body, messages))}
        return places(self._ask("POST", f"/topics/{topic}/messages", body)["messages"])

    def publish_headers(self, topic: str, headers: Mapping[str, bytes]) -> None:
        self.publish(topic, New(b"v", headers=headers))

    def transact(self, messages: Sequence[tuple[str, New]], acks: Sequence[str]) -> list[Place]:
        addressed = [{"topic": topic, **new_body(message)} for topic, message in messages]
        body = {"messages": addressed, "acks": list(acks)}
        return places(self._ask("POST", "/messages", body)["messages"])

    def read(self, topic: str, partition: int, offset: int, count: int) -> tuple[list[Seen], int]:
        path = f"/topics/{topic}/messages"
        found = self._ask("GET", path, partition=partition, offset=offset, count=count)
        return list(map(seen, found["messages"])), found["next_offset"]

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
        body = {
            "topics": names(topics), "count": count, "visibility": visibility, "settings": settings
        }  # fmt: skip
        return list(map(leased, self._ask("POST", f"/queues/{group}/lease", body)["messages"]))

    def settle(self, act: Act, receipts: Sequence[str], **options: Any) -> list[str | None]:
        path = "/messages/visibility" if act == "extend" else f"/messages/{act}"
        results = self._ask("POST", path, {"receipts": list(receipts), **options})["results"]
        return [each.get("code") for each in results]

    def status(self, topic: str, offset: int, group: str) -> tuple[str, int]:
        path = f"/topics/{topic}/messages"
        [found] = self._ask("GET", path, offset=offset, count=1, group=group)["messages"]
        return found["state"], found["attempts"]

    def counts(self, group: str) -> Counts:
        [found] = self._ask("GET", "/reliability/stats", group=group)["groups"]
        [delay] = self._ask("GET", "/delay/stats", group=group)["groups"]
        return Counts(*({**found, **delay}[name] for name in Counts._fields))

    # Delayed messages and dead letters.

    def delayed(self, topic: str) -> list[tuple[bytes | None, int]]:
        return [
            (value_in(each), _milliseconds(each["deliver_at"]) or 0)
            for each in self._pages(f"/topics/{topic}/delayed", "messages")
        ]

    def cancel(self, topic: str, place: Place) -> bool:
        try:
            self._ask("DELETE", f"/topics/{topic}/delayed/{place.partition}/{place.offset}")
        except Refused as refused:
            # There is nothing delayed at that place.
            if refused.code == "unknown-message":
                return False
            raise
        return True

    def letters(self, topic: str, group: str | None = None) -> list[Letter]:
        return [
            Letter(
                each["id"], each["source"], each["group"], value_in(each), each["error"],
                each["attempts"], each["redrives"],
            )
            for each in self._pages(f"/topics/{topic}/dead-letters", "messages", group=group)
        ]  # fmt: skip

    def redrive(
        self, topic: str, letters: Sequence[Letter], *, dry_run: bool = False
    ) -> tuple[int, int, int]:
        body = {"ids": [each.id for each in letters], "dry_run": dry_run}
        found = self._ask("POST", f"/topics/{topic}/dead-letters/redrive", body)
        return found["matched"], found["in_place"], found["copied"]

    def purge(self, topic: str, letters: Sequence[Letter]) -> int:
        body = {"ids": [each.id for each in letters]}
        purged: int = self._ask("POST", f"/topics/{topic}/dead-letters/purge", body)["purged"]
        return purged

    # Traces.

    def trace(self, what: str) -> MessageTrace:
        return _traced(self._ask("GET", f"/trace/{what}"))

    def traces(self, **choice: Any) -> list[MessageTrace]:
        if "key" in choice:
            choice["key"] = b64encode(choice["key"]).decode()
            choice["key_encoding"] = "base64"
        if "header" in choice:
            name, value = choice["header"]
            choice["header"] = name if value is None else f"{name}={value.decode()}"
        for name in ("since", "until"):
            if name in choice:
                moment = datetime.fromtimestamp(choice[name] / 1000, UTC)
                choice[name] = moment.isoformat()
        return list(map(_traced, self._pages("/trace", "traces", **choice)))

    # Groups.

    def groups(self) -> dict[str, str]:
        return {each["name"]: each["kind"] for each in self._pages("/groups", "groups")}

    def delete_group(self, name: str) -> None:
        self._ask("DELETE", f"/groups/{name}")

    def seek(self, group: str, topic: str, offset: int) -> None:
        body = {"topic": topic, "partition": 0, "offset": offset}
        self._ask("POST", f"/groups/{group}/reset", body)

    def cursor(self, group: str, topic: str) -> int | None:
        for each in self._ask("GET", f"/groups/{group}/lag")["partitions"]:
            if (each["topic"], each["partition"]) == (topic, 0):
                offset: int | None = each["offset"]
                return offset
        return None

    def close(self) -> None:
        self._client.close()

    def _pages(self, path: str, field: str, **query: Any) -> list[Any]:
        """Three at a time, so that every listing is paged."""
        found: list[Any] = []
        after = None
        while True:
            page = self._ask("GET", path, limit=3, after=after, **query)
            found += page[field]
            after = page["next"]
            if after is None:
                return found


def new_body(message: New) -> dict[str, Any]:
    body: dict[str, Any] = {
        "headers": {name: value.decode() for name, value in message.headers.items()},
        **message.attributes,
    }
    if message.value is None:
        body["value"] = None
    else:
        body |= {"value": b64encode(message.value).decode(), "encoding": "base64"}
    if message.key is not None:
        body |= {"key": b64encode(message.key).decode(), "key_encoding": "base64"}
    if message.partition is not None:
        body["partition"] = message.partition
    return body


def places(shown: Sequence[Mapping[str, Any]]) -> list[Place]:
    return [
        Place(each["partition"], each["offset"], each.get("duplicate", False)) for each in shown
    ]


def value_in(shown: Mapping[str, Any]) -> bytes | None:
    value = shown["value"]
    if shown.get("encoding") == "base64":
        return b64decode(value)
    assert value is None or isinstance(value, bytes), value
    return value


def seen(shown: Mapping[str, Any]) -> Seen:
    return Seen(
        shown["partition"], shown["offset"], _key_in(shown), value_in(shown), _headers_in(shown)
    )


def _key_in(shown: Mapping[str, Any]) -> bytes | None:
    key = shown["key"]
    if key is None:
        return None
    return b64decode(key) if shown.get("key_encoding") == "base64" else key.encode()


def _headers_in(shown: Mapping[str, Any]) -> dict[str, bytes | None]:
    return {
        name: None if text is None else text.encode() for name, text in shown["headers"].items()
    }


def _milliseconds(moment: str | None) -> int | None:
    return None if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1000)


def names(topics: str | Sequence[str]) -> list[str]:
    return [topics] if isinstance(topics, str) else list(topics)


def leased(shown: Mapping[str, Any]) -> Leased:
    return Leased(
        seen(shown), shown["receipt"], shown["attempt"], shown["max_attempts"], shown["error"]
    )


def _traced(shown: Mapping[str, Any]) -> MessageTrace:
    return MessageTrace(
        MessageId.parse(shown["id"]),
        _milliseconds(shown["published_at"]),
        _key_in(shown),
        tuple(_headers_in(shown).items()),
        shown["value_bytes"],
        shown.get("producer"),
        shown.get("transaction"),
        shown["sampled"],
        shown["cut"],
        tuple(
            GroupTrace(
                each["group"], each["kind"], each["state"], each["attempts"], each.get("consumer"),
                _milliseconds(each.get("due")), each.get("cursor"),
                _milliseconds(each.get("committed_at")),
            )
            for each in shown["groups"]
        ),
        tuple(
            TraceEvent(
                _milliseconds(each["at"]) or 0, each["event"], each.get("group"),
                each.get("consumer"), each.get("attempt"), _milliseconds(each.get("until")),
                each.get("reason"), each.get("error"), each.get("to"),
            )
            for each in shown["events"]
        ),
        tuple(TraceLink(each["relation"], each["id"]) for each in shown["links"]),
    )  # fmt: skip
