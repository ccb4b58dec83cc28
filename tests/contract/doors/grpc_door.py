"""gRPC as a door."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from tests.contract.doors.door import Act, Counts, Leased, Letter, New, Place, Refused, Seen
from tests.doors.grpc_client import GrpcClient

from headrace.core.trace_values import GroupTrace, MessageTrace, TraceEvent, TraceLink
from headrace.core.values import MessageId
from headrace.wire.grpc.generated import headrace_pb2 as pb

# Seconds in the contract, milliseconds in the .proto.
TIMES = ("delay", "ttl", "visibility")
SETTLE: Mapping[str, Any] = {
    "ack": pb.AckRequest, "nack": pb.NackRequest, "reject": pb.RejectRequest,
    "extend": pb.ExtendRequest, "release": pb.ReleaseRequest,
}  # fmt: skip


class GrpcDoor:
    def __init__(self, address: str) -> None:
        self._client = GrpcClient(address)

    # Topics.

    def create_topic(self, name: str, partitions: int = 1, **settings: Any) -> None:
        wanted = pb.CreateTopicRequest(name=name, partitions=partitions, settings=_text(settings))
        with _refusing():
            self._client.topics.Create(wanted)

    def topics(self) -> list[str]:
        found: list[str] = []
        after = None
        while True:
            page = self._client.topics.List(pb.ListTopicsRequest(limit=3, after=after))
            found += [each.name for each in page.topics]
            if not page.HasField("next"):
                return found
            after = page.next

    def bounds(self, topic: str) -> list[tuple[int, int]]:
        with _refusing():
            found = self._client.topics.Describe(pb.DescribeTopicRequest(name=topic))
        return [(each.start_offset, each.high_watermark) for each in found.partitions]

    def grow(self, topic: str, partitions: int) -> None:
        with _refusing():
            self._client.topics.Alter(pb.AlterTopicRequest(name=topic, partitions=partitions))

    def delete_topic(self, name: str) -> None:
        with _refusing():
            self._client.topics.Delete(pb.DeleteTopicRequest(name=name))

    # Messages.

    def publish(self, topic: str, *messages: New) -> list[Place]:
        wanted = pb.PublishRequest(topic=topic, messages=map(_new, messages))
        with _refusing():
            return _places(self._client.messages.Publish(wanted).places)

    def publish_headers(self, topic: str, headers: Mapping[str, bytes]) -> None:
        self.publish(topic, New(b"v", headers=headers))

    def transact(self, messages: Sequence[tuple[str, New]], acks: Sequence[str]) -> list[Place]:
        by_topic: dict[str, list[Any]] = {}
        order = []
        for topic, message in messages:
            known = by_topic.setdefault(topic, [])
            order.append((topic, len(known)))
            known.append(_new(message))
        wanted = pb.TransactRequest(
            publications=[
                pb.PublishRequest(topic=topic, messages=each) for topic, each in by_topic.items()
            ],
            acks=acks,
        )
        with _refusing():
            answer = self._client.messages.Transact(wanted)
        found = {
            topic: _places(each.places)
            for topic, each in zip(by_topic, answer.publications, strict=True)
        }
        return [found[topic][number] for topic, number in order]

    def read(self, topic: str, partition: int, offset: int, count: int) -> tuple[list[Seen], int]:
        wanted = pb.ReadRequest(topic=topic, partition=partition, offset=offset, count=count)
        with _refusing():
            answer = self._client.messages.Read(wanted)
        return [_seen(each, each) for each in answer.records], answer.next_offset

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
        named = {} if visibility is None else {"visibility_ms": round(visibility * 1000)}
        with _refusing():
            found = self._client.lease(
                topics, group, count=count, settings=_text(settings), **named
            )
        return [
            Leased(
                _seen(each.id, each), each.receipt, each.attempt, each.max_attempts,
                _given(each, "error"),
            )
            for each in found
        ]  # fmt: skip

    def settle(self, act: Act, receipts: Sequence[str], **options: Any) -> list[str | None]:
        wanted = SETTLE[act](receipts=receipts, **_milliseconds(options))
        with _refusing():
            answer = getattr(self._client.queues, act.capitalize())(wanted)
        return [None if each.ok else each.code for each in answer.results]

    def status(self, topic: str, offset: int, group: str) -> tuple[str, int]:
        id = pb.MessageId(topic=topic, partition=0, offset=offset)
        with _refusing():
            found = self._client.queues.Status(pb.StatusRequest(id=id, group=group))
        return found.state, found.attempts

    def counts(self, group: str) -> Counts:
        with _refusing():
            found = self._client.queues.Statistics(pb.StatisticsRequest(group=group))
        return Counts(*(getattr(found, name) for name in Counts._fields))

    # Delayed messages and dead letters.

    def delayed(self, topic: str) -> list[tuple[bytes | None, int]]:
        found: list[tuple[bytes | None, int]] = []
        after = None
        while True:
            wanted = pb.ListDelayedRequest(topic=topic, limit=3, after=after)
            with _refusing():
                page = self._client.letters.ListDelayed(wanted)
            found += [(_given(each.message, "value"), each.deliver_at_ms) for each in page.messages]
            if not page.HasField("next"):
                return found
            after = page.next

    def cancel(self, topic: str, place: Place) -> bool:
        id = pb.MessageId(topic=topic, partition=place.partition, offset=place.offset)
        with _refusing():
            return bool(self._client.letters.Cancel(pb.CancelRequest(id=id)).cancelled)

    def letters(self, topic: str, group: str | None = None) -> list[Letter]:
        found: list[Letter] = []
        after = None
        while True:
            wanted = pb.ListDeadRequest(topic=topic, group=group, limit=3, after=after)
            with _refusing():
                page = self._client.letters.ListDead(wanted)
            found += [
                Letter(
                    _id(each.id), _id(each.source), each.group, _given(each, "value"),
                    _given(each, "error"), each.attempts, each.redrives,
                )
                for each in page.letters
            ]  # fmt: skip
            if not page.HasField("next"):
                return found
            after = page.next

    def redrive(
        self, topic: str, letters: Sequence[Letter], *, dry_run: bool = False
    ) -> tuple[int, int, int]:
        wanted = pb.RedriveRequest(topic=topic, ids=_ids(letters), dry_run=dry_run)
        with _refusing():
            found = self._client.letters.Redrive(wanted)
        return found.matched, found.in_place, found.copied

    def purge(self, topic: str, letters: Sequence[Letter]) -> int:
        with _refusing():
            wanted = pb.PurgeRequest(topic=topic, ids=_ids(letters))
            return int(self._client.letters.Purge(wanted).purged)

    # Traces.

    def trace(self, what: str) -> MessageTrace:
        with _refusing():
            return _traced(self._client.traces.Show(pb.ShowTraceRequest(message=what)))

    def traces(self, **choice: Any) -> list[MessageTrace]:
        if "header" in choice:
            name, value = choice["header"]
            choice["header"] = pb.Header(name=name, value=value)
        for name in ("since", "until"):
            if name in choice:
                choice[f"{name}_ms"] = choice.pop(name)
        found: list[MessageTrace] = []
        after = None
        while True:
            wanted = pb.SearchTracesRequest(limit=3, after=after, **choice)
            with _refusing():
                page = self._client.traces.Search(wanted)
            found += map(_traced, page.traces)
            if not page.HasField("next"):
                return found
            after = page.next

    # Groups.

    def groups(self) -> dict[str, str]:
        found: dict[str, str] = {}
        after = None
        while True:
            page = self._client.groups.List(pb.ListGroupsRequest(limit=3, after=after))
            found |= {each.name: each.kind for each in page.groups}
            if not page.HasField("next"):
                return found
            after = page.next

    def delete_group(self, name: str) -> None:
        with _refusing():
            self._client.groups.Delete(pb.DeleteGroupRequest(name=name))

    def seek(self, group: str, topic: str, offset: int) -> None:
        position = pb.Position(topic=topic, partition=0, offset=offset)
        with _refusing():
            self._client.groups.Commit(pb.CommitRequest(group=group, positions=[position]))

    def cursor(self, group: str, topic: str) -> int | None:
        with _refusing():
            wanted = pb.CommittedRequest(group=group, topic=topic)
            found: int | None = self._client.groups.Committed(wanted).offsets.get(0)
        return found

    def close(self) -> None:
        self._client.close()


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        failed: Any = error
        assert failed.code() is not grpc.StatusCode.INTERNAL, failed
        raise Refused(dict(failed.trailing_metadata())["headrace-code"], failed.details()) from None


def _text(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def _milliseconds(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name}_ms" if name in TIMES else name: round(value * 1000) if name in TIMES else value
        for name, value in options.items()
    }


def _new(message: New) -> Any:
    attributes = _milliseconds(message.attributes)
    if "dedup_id" in attributes:
        attributes["dedup_id"] = attributes["dedup_id"].encode()
    return pb.NewMessage(
        value=message.value,
        key=message.key,
        headers=[pb.Header(name=name, value=value) for name, value in message.headers.items()],
        partition=message.partition,
        **attributes,
    )


def _places(places: Sequence[Any]) -> list[Place]:
    return [Place(each.partition, each.offset, each.duplicate) for each in places]


def _seen(place: Any, content: Any) -> Seen:
    return Seen(
        place.partition,
        place.offset,
        _given(content, "key"),
        _given(content, "value"),
        {each.name: _given(each, "value") for each in content.headers},
    )


def _given(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _id(id: Any) -> str:
    return str(MessageId(id.topic, id.partition, id.offset))


def _ids(letters: Sequence[Letter]) -> list[Any]:
    parsed = [MessageId.parse(each.id) for each in letters]
    return [pb.MessageId(topic=each[0], partition=each[1], offset=each[2]) for each in parsed]


def _traced(trace: Any) -> MessageTrace:
    return MessageTrace(
        MessageId(trace.id.topic, trace.id.partition, trace.id.offset),
        _given(trace, "published_at_ms"),
        _given(trace, "key"),
        tuple((each.name, _given(each, "value")) for each in trace.headers),
        _given(trace, "value_bytes"),
        _given(trace, "producer"),
        _given(trace, "transaction"),
        trace.sampled,
        trace.cut,
        tuple(
            GroupTrace(
                each.group, each.kind, each.state, each.attempts, _given(each, "consumer"),
                _given(each, "due_ms"), _given(each, "cursor"), _given(each, "committed_at_ms"),
            )
            for each in trace.groups
        ),
        tuple(
            TraceEvent(
                each.at_ms, each.event, _given(each, "group"), _given(each, "consumer"),
                _given(each, "attempt"), _given(each, "until_ms"), _given(each, "reason"),
                _given(each, "error"), _given(each, "to"),
            )
            for each in trace.events
        ),
        tuple(TraceLink(each.relation, each.id) for each in trace.links),
    )  # fmt: skip
