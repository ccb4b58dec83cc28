"""Whoever waits for a topic is told of the partitions that it gets meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from tests.doors.conftest import DoorsProcess, done
from tests.doors.grpc_client import GrpcClient
from tests.doors.test_grpc_queues import Conversation
from tests.doors.test_websocket import Peer, peer

import headrace
from headrace.wire.grpc.generated import headrace_pb2 as pb

# Well below the half minute after which a stream of leases looks by itself.
WAIT_SECONDS = 20


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def socket_of(doors: DoorsProcess, stack: ExitStack, **request: Any) -> Callable[[], str]:
    one: Peer = stack.enter_context(peer(doors))
    assert one.ask(id=1, **request) == {"op": "done", "id": 1}

    def next_value() -> str:
        frame = json.loads(one.connection.recv(timeout=WAIT_SECONDS))
        return str(frame["message"]["value"])

    return next_value


def events_of(http: httpx.Client, stack: ExitStack, topic: str, **asked: Any) -> Callable[[], str]:
    url = f"/topics/{topic}/events"
    answer = stack.enter_context(http.stream("GET", url, timeout=WAIT_SECONDS, **asked))
    lines = answer.iter_lines()
    assert next(lines).startswith(": tailing")
    return lambda: next(
        str(json.loads(line[6:])["value"]) for line in lines if line.startswith("data: ")
    )


def tail_of(client: GrpcClient, topic: str) -> Callable[[], str]:
    tail = client.messages.Tail(
        pb.TailRequest(topic=topic, start=pb.START_EARLIEST), timeout=3 * WAIT_SECONDS
    )

    def next_value() -> str:
        [record] = next(tail).records
        return str(record.value.decode())

    return next_value


def test_partitions_that_come_later_are_followed_and_waited_for(
    doors: DoorsProcess, http: httpx.Client, topic: str, stack: ExitStack
) -> None:
    client = GrpcClient(doors.doors["grpc"])
    stack.callback(client.close)
    consumed = Conversation(client, topics=[topic], group="grpc-" + topic, credit=10)
    stack.callback(consumed.end)
    assert consumed.next().opened.consumer
    waiting: dict[str, Callable[[], str]] = {
        "a tail over WebSocket": socket_of(doors, stack, op="tail", topic=topic),
        "leases over WebSocket": socket_of(
            doors, stack, op="dequeue", topics=[topic], group="ws-" + topic, credit=10
        ),
        "events": events_of(http, stack, topic),
        "a tail over gRPC": tail_of(client, topic),
        "leases over gRPC": lambda: consumed.deliveries(1)[0].value.decode(),
    }
    polls = stack.enter_context(ThreadPoolExecutor(1))
    lease = {"topics": [topic], "wait": WAIT_SECONDS}
    polled = polls.submit(http.post, f"/queues/http-{topic}/lease", json=lease)

    def publish(partition: int, value: str) -> None:
        body = {"value": value, "partition": partition}
        done(http.post(f"/topics/{topic}/messages", json=body))

    # Now each of them is known to be at its place.
    publish(0, "before")
    assert {who: next_value() for who, next_value in waiting.items()} == dict.fromkeys(
        waiting, "before"
    )
    [first] = done(polled.result())["messages"]
    done(http.post("/messages/ack", json={"receipt": first["receipt"]}))
    polled = polls.submit(http.post, f"/queues/http-{topic}/lease", json=lease)
    done(http.patch(f"/topics/{topic}", json={"partitions": 3}))
    publish(2, "after")
    assert {who: next_value() for who, next_value in waiting.items()} == dict.fromkeys(
        waiting, "after"
    )
    assert [each["value"] for each in done(polled.result())["messages"]] == ["after"]


def test_a_tail_whose_position_is_gone_shows_what_is_there(
    doors: DoorsProcess, http: httpx.Client, topic: str, stack: ExitStack
) -> None:
    body = {"messages": [{"value": number} for number in range(5)]}
    done(http.post(f"/topics/{topic}/messages", json=body))
    with peer(doors) as one:
        one.ask(op="tail", id=1, topic=topic)
        one.ask(op="commit", id=2, subscription=1, positions={"0": 1})
        consumer = one.consumer
    with headrace.connect(doors.doors["kafka"]) as handle:
        handle.delete_records(topic, 0, 3)
    assert events_of(http, stack, topic, headers={"last-event-id": "0:1"})() == "3"
    with peer(doors, consumer) as one:
        one.ask(op="tail", id=1, topic=topic)
        assert one.read()["message"]["value"] == 3


def test_events_of_one_partition_stay_with_it(
    http: httpx.Client, topic: str, stack: ExitStack
) -> None:
    done(http.patch(f"/topics/{topic}", json={"partitions": 2}))
    for partition in (1, 0):
        body = {"value": f"of {partition}", "partition": partition}
        done(http.post(f"/topics/{topic}/messages", json=body))
    # The id is one that a tail of all partitions gave, and of one that is not there.
    asked = {"params": {"partition": 0}, "headers": {"last-event-id": "0:0,1:0,7:3"}}
    next_value = events_of(http, stack, topic, **asked)
    assert next_value() == "of 0"
    done(http.post(f"/topics/{topic}/messages", json={"value": "again", "partition": 0}))
    assert next_value() == "again"
