"""The well-behaved: what they publish, lease and read, and how long each step takes.

    HTTP     publish a number, lease it, ack it
    gRPC     likewise
    Kafka    produce a number, fetch it, by offset
    load     a hundred numbers at once, over HTTP
    health   one question after the other: the longest time without an answer
    new      a connection each second, for one question of health

All but the last keep their connections, and have a topic of their own. They go at a modest rate,
and what does not come exactly as promised raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import grpc
from tests.doors.plain_http import PlainHttp
from tests.hostile.kafka_attacks import produce
from tests.hostile.target import Peer, frame

from headrace.record import NewRecord, build_batch, read_records
from headrace.wire.grpc.generated import headrace_pb2 as pb
from headrace.wire.grpc.generated import headrace_pb2_grpc as stubs
from headrace.wire.kafka.api import decode_response
from headrace.wire.kafka.frame import decode_response_header
from headrace.wire.kafka.generated import fetch_request

PAUSE_SECONDS = 0.05
NEWCOMER_SECONDS = 1.0
# Whoever waits so long for an answer has lost its node.
ANSWER_SECONDS = 120
GROUP = "neighbours"
# Messages at once, of the neighbour who has many.
LOAD = 100
made: Any = stubs
Round = Callable[[int], Awaitable[tuple[float, float]]]


class Latencies(NamedTuple):
    publish_ms: list[float]
    take_ms: list[float]

    def quantile(self, share: float) -> tuple[float, float]:
        """Of publishing, and of leasing and acking, or fetching."""
        publish, take = (sorted(each) for each in self)
        return publish[int(share * (len(publish) - 1))], take[int(share * (len(take) - 1))]


class Seen(defaultdict[str, Latencies]):
    """Of each neighbour, by its name."""

    def __init__(self) -> None:
        super().__init__(lambda: Latencies([], []))


class Neighbours:
    """All of them, on one loop."""

    def __init__(self, kafka: str, http: str, grpc: str) -> None:
        self._kafka, self._http, self._grpc = kafka, http, grpc
        self._numbers = itertools.count()
        self.silence_seconds_max = 0.0
        # How long each new connection waited for its first answer.
        self.newcomers_seconds: list[float] = []

    async def make_topics(self) -> None:
        caller = await PlainHttp(self._http).connect()
        for name in ("http", "grpc", "kafka", "load"):
            await caller.ask("/topics", {"name": f"good-{name}", "partitions": 1})
        caller.close()

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            self._caller, self._loader, self._asker = callers = [
                await PlainHttp(self._http).connect() for _ in range(3)
            ]
            for caller in callers:
                stack.callback(caller.close)
            host, _, port = self._kafka.rpartition(":")
            self._peer = Peer(*await asyncio.open_connection(host, int(port)))
            stack.callback(self._peer.writer.close)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(self._grpc))
            self._messages, self._queues = made.MessagesStub(channel), made.QueuesStub(channel)
            yield

    async def live(self, seconds: float, seen: Seen) -> None:
        """Go on for so long; what each of them saw is added. Connections are made anew: between
        two calls more time may pass than a node keeps a silent one."""
        async with self._connected():
            await self._live(seconds, seen)

    async def _live(self, seconds: float, seen: Seen) -> None:
        rounds: dict[str, Round] = {
            "http": self._http_round, "grpc": self._grpc_round, "kafka": self._kafka_round,
            "load": self._load_round,
        }  # fmt: skip
        deadline = time.monotonic() + seconds
        await asyncio.gather(
            self._ask_for_health(deadline),
            self._come_anew(deadline),
            *(self._go_round(act, seen[name], deadline) for name, act in rounds.items()),
        )

    async def _go_round(self, act: Round, seen: Latencies, deadline: float) -> None:
        while time.monotonic() < deadline:
            async with asyncio.timeout(ANSWER_SECONDS):
                publish_ms, take_ms = await act(next(self._numbers))
            seen.publish_ms.append(publish_ms)
            seen.take_ms.append(take_ms)
            await _pause(PAUSE_SECONDS)

    async def _http_round(self, number: int) -> tuple[float, float]:
        return await self._pass_on(self._caller, "good-http", [number])

    async def _load_round(self, number: int) -> tuple[float, float]:
        values = [number + part / LOAD for part in range(LOAD)]
        return await self._pass_on(self._loader, "good-load", values)

    async def _pass_on(
        self, caller: PlainHttp, topic: str, values: list[float]
    ) -> tuple[float, float]:
        began = time.perf_counter()
        messages = [{"value": value} for value in values]
        await caller.ask(f"/topics/{topic}/messages", {"messages": messages})
        published = time.perf_counter()
        wanted = {"topics": [topic], "count": 2 * LOAD, "wait": 30, "visibility": 3_600}
        leased = (await caller.ask(f"/queues/{GROUP}/lease", wanted))["messages"]
        found = [(each["value"], each["attempt"]) for each in leased]
        assert found == [(value, 1) for value in values], (values, found)
        receipts = [each["receipt"] for each in leased]
        acked = await caller.ask("/messages/ack", {"receipts": receipts})
        assert all(each["ok"] for each in acked["results"]), acked
        return _between(began, published)

    async def _grpc_round(self, number: int) -> tuple[float, float]:
        began, value = time.perf_counter(), b"%d" % number
        asked = pb.PublishRequest(topic="good-grpc", messages=[pb.NewMessage(value=value)])
        await self._messages.Publish(asked)
        published = time.perf_counter()
        wanted = pb.LeaseRequest(
            topics=["good-grpc"], group=GROUP, count=10, wait_ms=30_000, visibility_ms=3_600_000
        )
        leased = (await self._queues.Lease(wanted)).messages
        found = [(each.value, each.attempt) for each in leased]
        assert found == [(value, 1)], (value, found)
        await self._queues.Ack(pb.AckRequest(receipts=[each.receipt for each in leased]))
        return _between(began, published)

    async def _kafka_round(self, number: int) -> tuple[float, float]:
        began, value = time.perf_counter(), b"%d" % number
        batch = bytes(build_batch([NewRecord(None, value, (), int(time.time() * 1000))]))
        answer = await self._call(produce(batch, "good-kafka"), 0, 9)
        [told] = answer.responses[0].partition_responses
        assert not told.error_code, told
        published = time.perf_counter()
        part = fetch_request.FetchPartition(
            0, fetch_offset=told.base_offset, partition_max_bytes=9_999
        )
        topic = fetch_request.FetchTopic("good-kafka", partitions=(part,))
        asked = fetch_request.FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=(topic,))
        answer = await self._call(frame("Fetch", asked, version=11), 1, 11)
        [found] = answer.responses[0].partitions
        assert [each.value for each in read_records(found.records)] == [value], (value, found)
        return _between(began, published)

    async def _call(self, asked: bytes, key: int, version: int) -> Any:
        await self._peer.send(asked)
        answer = await self._peer.take_frame()
        return decode_response(
            key, version, answer, decode_response_header(key, version, answer)[1]
        )

    async def _come_anew(self, deadline: float) -> None:
        while (began := time.monotonic()) < deadline:
            async with asyncio.timeout(ANSWER_SECONDS):
                caller = await PlainHttp(self._http).connect()
                caller.send("GET", "/health/live", None)
                await caller.receive()
            caller.close()
            self.newcomers_seconds.append(time.monotonic() - began)
            await _pause(NEWCOMER_SECONDS)

    async def _ask_for_health(self, deadline: float) -> None:
        caller = self._asker
        # Until the first answer it is a newcomer, too.
        caller.send("GET", "/health/live", None)
        await caller.receive()
        while (began := time.monotonic()) < deadline:
            caller.send("GET", "/health/live", None)
            async with asyncio.timeout(ANSWER_SECONDS):
                status, _ = await caller.receive()
            assert status == 200, status
            self.silence_seconds_max = max(self.silence_seconds_max, time.monotonic() - began)
            await _pause(PAUSE_SECONDS)


def _between(began: float, published: float) -> tuple[float, float]:
    return (published - began) * 1000, (time.perf_counter() - published) * 1000


async def _pause(seconds: float) -> None:
    """The rate of a neighbour, who has nothing to wait for."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)
