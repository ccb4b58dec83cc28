"""The stubs of the .proto on one channel, and what an error has to tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest

from headrace.wire.grpc.generated import headrace_pb2 as pb
from headrace.wire.grpc.generated import headrace_pb2_grpc as stubs

SECONDS = 30


class GrpcClient:
    def __init__(self, address: str, *options: tuple[str, Any]) -> None:
        self.channel = grpc.insecure_channel(address, options)
        made: Any = stubs
        self.topics = made.TopicsStub(self.channel)
        self.messages = made.MessagesStub(self.channel)
        self.queues = made.QueuesStub(self.channel)
        self.groups = made.GroupsStub(self.channel)
        self.letters = made.LettersStub(self.channel)
        self.traces = made.TracesStub(self.channel)
        self.node = made.NodeStub(self.channel)

    def publish(self, topic: str, *values: bytes, **attributes: Any) -> list[Any]:
        messages = [pb.NewMessage(value=value, **attributes) for value in values]
        answer = self.messages.Publish(pb.PublishRequest(topic=topic, messages=messages))
        return list(answer.places)

    def lease(self, topics: str | Sequence[str], group: str, **named: Any) -> list[Any]:
        topics = [topics] if isinstance(topics, str) else topics
        wanted = pb.LeaseRequest(topics=topics, group=group, **named)
        return list(self.queues.Lease(wanted, timeout=SECONDS).messages)

    def close(self) -> None:
        self.channel.close()


def refused(call: Callable[[], Any], status: grpc.StatusCode, code: str) -> str:
    """What the error says to do; its status and metadata are checked here."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    assert error.code() is status, error
    trailing = dict(error.trailing_metadata())
    assert trailing["headrace-code"] == code
    assert trailing["headrace-retriable"] in ("true", "false")
    detail: str = error.details()
    return detail
