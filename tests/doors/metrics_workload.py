"""A known workload through every door, and what a scrape says behind it.

Whoever asks for something notes it: requests by door and API, errors by code, messages
and bytes by topic and door. What is noted is what the node has to have counted.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.doors.conftest import DoorsProcess
from tests.doors.grpc_client import GrpcClient
from tests.interop.wire_client import WireClient, make
from websockets.sync.client import connect as connect_websocket

import headrace
from headrace.core.values import SPARK_PROGRESS, SPARK_SINK_PREFIX, note_spark_rows
from headrace.record import NewRecord, build_batch
from headrace.wire.grpc.generated import headrace_pb2 as pb
from headrace.wire.kafka.generated import add_partitions_to_txn_request as add
from headrace.wire.kafka.generated import end_txn_request as end
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import get_telemetry_subscriptions_request as telemetry
from headrace.wire.kafka.generated import init_producer_id_request as init
from headrace.wire.kafka.generated import offset_commit_request as commit
from headrace.wire.kafka.generated import produce_request as produce
from headrace.wire.kafka.generated import push_telemetry_request as push

Labels = frozenset[tuple[str, str]]
WAIT_SECONDS = 60
AGE_SECONDS = 100
HOUR_SECONDS = 3600


def labels(**named: str) -> Labels:
    return frozenset(named.items())


class World:
    """What was done, and what the node says of it."""

    def __init__(self, doors: DoorsProcess, stack: ExitStack) -> None:
        self.doors = doors
        self.began = time.time()
        # Records of the stream are older than the node, by a known time.
        self.stream_ms = int((self.began - AGE_SECONDS) * 1000)
        self.requests: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[tuple[str, str, str]] = Counter()
        self.traffic: Counter[tuple[str, str, str, str]] = Counter()
        # Moments before and after something that has an age now.
        self.moments: dict[str, tuple[float, float]] = {}
        self.http = stack.enter_context(httpx.Client(base_url=doors.http, timeout=WAIT_SECONDS))
        self.wire = stack.enter_context(WireClient(doors.doors["kafka"]))
        self.grpc = GrpcClient(doors.doors["grpc"])
        stack.callback(self.grpc.close)
        self.sdk = stack.enter_context(headrace.connect(doors.doors["kafka"]))
        self.families: dict[str, dict[str, dict[Labels, float]]] = {}
        self.kinds: dict[str, str] = {}
        self.text = ""
        # Of the Kafka client that said something of itself.
        self.instance = ""
        self.scraped = (0.0, 0.0)
        # Requests that were over when the last scrape began.
        self.over: Counter[tuple[str, str]] = Counter()

    # Asking, and noting it.

    def ask(self, method: str, route: str, body: Any = None, error: str = "", **path: Any) -> Any:
        """An HTTP request by its route; `error` is what it is refused with."""
        answer = self.http.request(method, route.format(**path), json=body)
        self.requests["http", f"{method} {route}"] += 1
        if error:
            self.errors["http", f"{method} {route}", error] += 1
            return answer
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def call(self, name: str, version: int, request: Any, error: str = "") -> Any:
        """A Kafka request."""
        self.requests["kafka", name] += 1
        if error:
            self.errors["kafka", name, error] += 1
        return self.wire.call(name, version, request)

    def note(self, direction: str, topic: str, door: str, messages: int, size: int) -> None:
        self.traffic[direction, "messages", topic, door] += messages
        self.traffic[direction, "bytes", topic, door] += size

    @contextmanager
    def moment(self, name: str) -> Iterator[None]:
        before = time.time()
        yield
        self.moments[name] = (before, time.time())

    def log_bytes(self, topic: str) -> int:
        """The size of a topic's records, as its files have it."""
        return sum(each.stat().st_size for each in self.segments(topic))

    def segments(self, topic: str) -> list[Path]:
        described = self.ask("GET", "/topics/{topic}", topic=topic)
        folder = self.doors.data / "topics" / described["id"].replace("-", "")
        return sorted(folder.glob("*/*.log"))

    # Scraping.

    def scrape(self) -> None:
        self.over = self.requests.copy()
        before = time.time()
        answer = self.http.get("/metrics")
        self.scraped = (before, time.time())
        assert answer.status_code == 200, answer.text
        self.text = answer.text
        self.families = {}
        for family in text_string_to_metric_families(answer.text):
            self.kinds[family.name] = family.type
            found = self.families.setdefault(family.name, {})
            for sample in family.samples:
                values = found.setdefault(sample.name, {})
                values[frozenset(sample.labels.items())] = sample.value
        # This one is counted when it is answered.
        self.requests["http", "GET /metrics"] += 1

    def values(self, sample: str) -> dict[Labels, float]:
        for found in self.families.values():
            if sample in found:
                return found[sample]
        return {}

    def scrape_until(self, sample: str, where: Labels, value: float) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while self.values(sample).get(where) != value:
            assert time.monotonic() < deadline, (sample, where, self.values(sample))
            self.scrape()


def carry_out(world: World) -> None:
    """All of it. Names of topics say through which door they are used."""
    use_kafka(world)
    push_telemetry(world)
    use_transactions(world)
    use_http(world)
    use_grpc(world)
    use_sdk(world)


def push_telemetry(world: World) -> None:
    told = world.call("GetTelemetrySubscriptions", 0, telemetry.GetTelemetrySubscriptionsRequest())
    world.instance = told.client_instance_id.hex()
    # One gauge "sent" with the attribute topic=orders and the value 3, in OTLP.
    attribute = _field(7, _field(1, b"topic") + _field(2, _field(1, b"orders")))
    point = attribute + bytes([6 << 3 | 1]) + (3).to_bytes(8, "little")
    metric = _field(1, b"sent") + _field(5, _field(1, point))
    request = push.PushTelemetryRequest(
        told.client_instance_id,
        told.subscription_id,
        metrics=_field(1, _field(2, _field(2, metric))),
    )
    assert world.call("PushTelemetry", 0, request).error_code == 0


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def use_kafka(world: World) -> None:
    make(world.wire, "orders", 2)
    world.requests["kafka", "CreateTopics"] += 1
    for count in (10, 5, 1):
        publish(world, "orders", count)
    publish(world, "orders", 1, index=9, error="UNKNOWN_TOPIC_OR_PARTITION")
    size = world.log_bytes("orders")
    world.note("in", "orders", "kafka", 16, size)
    # A reader that begins within a batch is sent the whole, and passes what is left.
    for offset, passed in ((0, 16), (6, 10)):
        answer = read(world, offset)
        assert len(answer.records) == size
        world.note("out", "orders", "kafka", passed, size)
    read(world, 99, error="OFFSET_OUT_OF_RANGE")
    with world.moment("commit"):
        for group, offset, metadata in (
            ("report", 6, ""),
            ("query", 16, SPARK_PROGRESS),
            (f"{SPARK_SINK_PREFIX}large.0", 3, note_spark_rows(40)),
        ):
            place = commit.OffsetCommitRequestPartition(0, offset, committed_metadata=metadata)
            topic = commit.OffsetCommitRequestTopic("orders", partitions=(place,))
            request = commit.OffsetCommitRequest(group, topics=(topic,))
            (answered,) = world.call("OffsetCommit", 8, request).topics
            assert answered.partitions[0].error_code == 0


def publish(world: World, topic: str, count: int, index: int = 0, error: str = "") -> None:
    records = [NewRecord(None, b"%d" % each, (), world.stream_ms) for each in range(count)]
    data = produce.TopicProduceData(
        topic,
        partition_data=(produce.PartitionProduceData(index, bytes(build_batch(records))),),
    )
    request = produce.ProduceRequest(None, -1, 30_000, (data,))
    answer = world.call("Produce", 9, request, error)
    assert bool(answer.responses[0].partition_responses[0].error_code) == bool(error)


def read(world: World, offset: int, error: str = "") -> Any:
    part = fetch.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1_000_000)
    topic = fetch.FetchTopic("orders", partitions=(part,))
    answer = world.call("Fetch", 11, fetch.FetchRequest(topics=(topic,)), error)
    return answer.responses[0].partitions[0]


def use_transactions(world: World) -> None:
    """One that is aborted, one that is committed, and one that stays open."""
    make(world.wire, "ledger", 1)
    world.requests["kafka", "CreateTopics"] += 1
    for name, count in (("aborted", 2), ("committed", 1), ("open", 3)):
        made = world.call("InitProducerId", 4, init.InitProducerIdRequest(name, 60_000))
        identity = (name, made.producer_id, made.producer_epoch)
        with world.moment("transaction"):
            places = (add.AddPartitionsToTxnTopic("ledger", (0,)),)
            world.call("AddPartitionsToTxn", 3, add.AddPartitionsToTxnRequest(*identity, places))
            batch = build_batch(
                [NewRecord(None, b"entry", (), 1)] * count,
                producer_id=made.producer_id,
                producer_epoch=made.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            data = produce.PartitionProduceData(0, bytes(batch))
            topics = (produce.TopicProduceData("ledger", partition_data=(data,)),)
            request = produce.ProduceRequest(name, -1, 30_000, topics)
            answer = world.call("Produce", 9, request)
            assert answer.responses[0].partition_responses[0].error_code == 0
        world.note("in", "ledger", "kafka", count, len(batch))
        if name != "open":
            ending = end.EndTxnRequest(*identity, name == "committed")
            assert world.call("EndTxn", 3, ending).error_code == 0


def use_http(world: World) -> None:
    values = [f"job-{number}" for number in range(5)]
    wanted = {"name": "jobs", "partitions": 1}
    world.ask("POST", "/topics", wanted)
    route = "/topics/{topic}/messages"
    messages = [{"value": value} for value in values]
    world.ask("POST", route, {"messages": messages}, topic="jobs")
    world.ask("POST", route, {"value": "urgent", "priority": "critical"}, topic="jobs")
    settings = {"backoff_ms": HOUR_SECONDS * 1000}
    asked = {"topics": ["jobs"], "count": 10, "settings": settings, "visibility": HOUR_SECONDS}
    leased = world.ask("POST", "/queues/{group}/lease", asked, group="workers")["messages"]
    assert sorted(each["value"] for each in leased) == [*values, "urgent"]
    world.note("out", "jobs", "http", 6, 5 * len("job-0") + len("urgent"))
    urgent = [each["receipt"] for each in leased if each["value"] == "urgent"]
    first, second, third, fourth, _ = (
        each["receipt"] for each in leased if each["value"] != "urgent"
    )
    world.ask("POST", "/messages/ack", {"receipts": [*urgent, first]})
    world.ask("POST", "/messages/nack", {"receipt": second, "error": "no answer"})
    world.ask("POST", "/messages/reject", {"receipts": [third, fourth], "reason": "odd"})
    letters = world.ask("GET", "/topics/{topic}/dead-letters", topic="jobs")["messages"]
    chosen = {"ids": [letters[0]["id"]]}
    world.ask("POST", "/topics/{topic}/dead-letters/redrive", chosen, topic="jobs")
    redriven = time.time()
    world.moments["redriven"] = (redriven - WAIT_SECONDS, redriven)
    world.ask("POST", route, {"value": "later", "delay": HOUR_SECONDS}, topic="jobs")
    place = world.ask("POST", route, {"value": "never", "delay": HOUR_SECONDS}, topic="jobs")
    cancelling = "/topics/{topic}/delayed/{partition}/{offset}"
    world.ask("DELETE", cancelling, topic="jobs", **place)
    world.ask("POST", route, {"value": "short", "ttl": 0.001}, topic="jobs")
    world.ask("POST", "/messages", {"messages": [{"topic": "together", "value": "x"}]})
    world.ask("GET", "/topics/{topic}", error="unknown-topic", topic="nowhere")
    assert world.http.get("/nowhere").status_code == 404
    world.errors["http", "(other)", "404"] += 1
    # Messages in all, but for the redriven one, which is the node's own copy.
    world.traffic["in", "messages", "jobs", "http"] += 9
    world.traffic["in", "messages", "together", "http"] += 1


def use_grpc(world: World) -> None:
    made = pb.CreateTopicRequest(name="remote-jobs", partitions=1)
    world.grpc.topics.Create(made)
    world.requests["grpc", "Topics/Create"] += 1
    world.grpc.publish("remote-jobs", b"one", b"two")
    world.requests["grpc", "Messages/Publish"] += 1
    world.note("in", "remote-jobs", "grpc", 2, world.log_bytes("remote-jobs"))
    (leased,) = world.grpc.lease("remote-jobs", "remote", count=1)
    world.requests["grpc", "Queues/Lease"] += 1
    world.note("out", "remote-jobs", "grpc", 1, len(leased.value))
    with pytest.raises(Exception, match="nobody"):
        world.grpc.groups.Describe(pb.DescribeGroupRequest(name="nobody"))
    world.requests["grpc", "Groups/Describe"] += 1
    world.errors["grpc", "Groups/Describe", "unknown-group"] += 1


def use_sdk(world: World) -> None:
    world.sdk.create_topic("local-jobs", partitions=1)
    world.sdk.publish("local-jobs", b"first")
    world.sdk.publish("local-jobs", b"brief", visibility=0.01)
    with world.sdk.queue("local-jobs", group="local") as queue:
        received = {each.value: each for each in queue.receive(max=2, wait=WAIT_SECONDS)}
        received[b"first"].ack()
        pair = labels(group="local", topic="local-jobs")
        world.scrape_until("headrace_queue_lease_expirations_total", pair, 1)
    # The queue's own visibility is stronger than the message's.
    with world.sdk.queue("local-jobs", group="local", visibility=HOUR_SECONDS) as queue:
        (again,) = queue.receive(max=1, wait=WAIT_SECONDS)
        assert again.attempt == 2
        again.ack()
    world.note("in", "local-jobs", "sdk", 2, world.log_bytes("local-jobs"))
    world.note("out", "local-jobs", "sdk", 3, 3 * len(b"brief"))


@contextmanager
def open_socket(world: World) -> Iterator[None]:
    """A WebSocket that has published one message, and stays."""
    # It stays while other tests run, and a ping would take from the chance that is Python's
    # own, under the hands of a property.
    address = f"ws://{world.doors.doors['http']}/ws"
    with connect_websocket(address, ping_interval=None) as connection:
        connection.recv(timeout=WAIT_SECONDS)
        world.ask("POST", "/topics", {"name": "pages", "partitions": 1})
        frame = {"op": "enqueue", "id": 1, "topic": "pages", "messages": [{"value": "v"}]}
        connection.send(json.dumps(frame))
        connection.recv(timeout=WAIT_SECONDS)
        world.requests["websocket", "Enqueue"] += 1
        world.note("in", "pages", "websocket", 1, world.log_bytes("pages"))
        yield
