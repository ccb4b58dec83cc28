"""Metrics that clients push: what they are asked for, and what becomes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from tests.unit.server.asking import Asking, run
from tests.unit.server.configuring import CLIENT_METRICS, alter, describe

from headrace.platform.memory_disk import MemoryDisk
from headrace.record import Codec, compress
from headrace.server import slices
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.generated.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from headrace.wire.kafka.generated.push_telemetry_request import PushTelemetryRequest

GET, PUSH = 71, 72
NOBODY = bytes(16)


def payload(**values: float) -> bytes:
    scope = ScopeMetrics(
        metrics=[
            Metric(name=name, gauge=Gauge(data_points=[NumberDataPoint(as_double=value)]))
            for name, value in values.items()
        ]
    )
    data = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=[scope])])
    return bytes(data.SerializeToString())


async def asked(asking: Asking, instance_id: bytes = NOBODY, client: str = "app") -> Any:
    return await asking.ask(GET, 0, GetTelemetrySubscriptionsRequest(instance_id), client)


async def push(asking: Asking, told: Any, data: bytes, codec: int = 0, **options: Any) -> int:
    request = PushTelemetryRequest(
        told.client_instance_id, told.subscription_id, compression_type=codec, metrics=data
    )._replace(**options)
    return int((await asking.ask(PUSH, 0, request)).error_code)


def samples(asking: Asking) -> dict[tuple[str, str], float]:
    assert asking.service.client_samples is not None
    return {(key[0], key[2]): value for key, value in asking.service.client_samples()}


def test_a_client_that_nobody_subscribed_to_is_asked_for_nothing() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        told = await asked(asking)
        assert (told.error_code, told.requested_metrics, told.push_interval_ms) == (0, (), 300_000)
        assert told.client_instance_id != NOBODY
        again = await asked(asking, told.client_instance_id)
        assert again.client_instance_id == told.client_instance_id
        assert again.subscription_id == told.subscription_id

    run(scenario)


async def offered(asking: Asking) -> set[int]:
    answer = await asking.ask(18, 4, ApiVersionsRequest("test", "1"))
    return {each.api_key for each in answer.api_keys}


def test_clients_hear_of_it_while_there_is_a_subscription() -> None:
    """librdkafka writes a line for each client that could push."""

    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        assert not {GET, PUSH} & await offered(asking)
        await alter(asking, CLIENT_METRICS, "all", metrics="*")
        assert {GET, PUSH} <= await offered(asking)
        await alter(asking, CLIENT_METRICS, "all", metrics=None)
        assert not {GET, PUSH} & await offered(asking)

    run(scenario)


def test_subscriptions_that_match_are_asked_for_together() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        await alter(asking, CLIENT_METRICS, "a", metrics="x.,y.", interval_ms=60_000)
        await alter(asking, CLIENT_METRICS, "b", metrics="y.,z.", match="client_id=app.*")
        await alter(asking, CLIENT_METRICS, "c", metrics="*", match="client_id=other")
        told = await asked(asking)
        assert (told.requested_metrics, told.push_interval_ms) == (("x.", "y.", "z."), 60_000)
        assert (await asked(asking, client="other")).requested_metrics == ("*",)

    run(scenario)


def test_of_a_selector_that_is_given_twice_the_last_one_counts() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        await alter(asking, CLIENT_METRICS, "a", metrics="x.", match="client_id=no,client_id=app")
        assert (await asked(asking)).requested_metrics == ("x.",)

    run(scenario)


# Each character of a name is looked at by hundreds of states.
HEAVY = "(a|aa){120}"


@pytest.mark.parametrize("api", ["get", "push"])
def test_patterns_of_subscriptions_are_matched_in_turns(
    monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0)

    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        for number in range(10):
            code, _ = await alter(
                asking, CLIENT_METRICS, f"s-{number}", metrics="*", match=f"client_id={HEAVY}"
            )
            assert code == 0
        client = "a" * 230
        told = await asked(asking, client=client)
        assert told.requested_metrics == ("*",)
        request: Any = GetTelemetrySubscriptionsRequest(told.client_instance_id)
        if api == "push":
            request = PushTelemetryRequest(
                told.client_instance_id, told.subscription_id, metrics=payload(sent=1)
            )
        answer = asking.begin(GET if api == "get" else PUSH, 0, request, client)
        turns = 0
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await answer).error_code == 0
        assert turns > 100

    run(scenario)


def test_a_long_software_name_is_cut_as_a_long_client_id_is() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        await asking.ask(18, 4, ApiVersionsRequest("a" * 32_000, "1" * 32_000))
        match = "client_software_name=a{256},client_software_version=1+"
        await alter(asking, CLIENT_METRICS, "a", metrics="x.", match=match)
        assert (await asked(asking)).requested_metrics == ("x.",)
        assert asking.connection.client_software == "a" * 256 + " " + "1" * 256

    run(scenario)


@pytest.mark.parametrize("software", [("a b", "1"), ("a", "1 2"), ("-a", "1"), ("a", "1\n")])
def test_a_software_name_that_is_none_is_refused_as_by_kafka(software: tuple[str, str]) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        answer = await asking.ask(18, 4, ApiVersionsRequest(*software))
        assert (answer.error_code, answer.api_keys) == (Error.INVALID_REQUEST, ())
        assert asking.connection.client_software == ""

    run(scenario)


def test_what_is_pushed_is_metrics_of_the_node_until_the_client_is_silent() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        await alter(asking, CLIENT_METRICS, "all", metrics="*", interval_ms=1_000)
        told = await asked(asking)
        data = compress(Codec.ZSTD, payload(sent=3, waiting=0.5))
        assert await push(asking, told, data, Codec.ZSTD) == 0
        assert samples(asking) == {("app", "sent"): 3, ("app", "waiting"): 0.5}
        assert await push(asking, told, data) == Error.THROTTLING_QUOTA_EXCEEDED
        await asking.skip(1)
        assert await push(asking, told, payload(sent=4)) == 0
        assert samples(asking) == {("app", "sent"): 4}
        await asking.skip(3)
        assert samples(asking) == {}

    run(scenario)


def test_a_client_that_ends_is_forgotten() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        await alter(asking, CLIENT_METRICS, "all", metrics="*", interval_ms=1_000)
        told = await asked(asking)
        assert await push(asking, told, payload(sent=3)) == 0
        assert await push(asking, told, payload(sent=4), terminating=True) == 0
        assert samples(asking) == {}

    run(scenario)


def test_a_client_whose_subscription_changed_asks_again() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        await alter(asking, CLIENT_METRICS, "all", metrics="*", interval_ms=1_000)
        told = await asked(asking)
        await alter(asking, CLIENT_METRICS, "all", metrics="x.")
        assert await push(asking, told, payload(sent=3)) == Error.UNKNOWN_SUBSCRIPTION_ID
        told = await asked(asking, told.client_instance_id)
        assert await push(asking, told, payload(sent=3)) == 0

    run(scenario)


def test_a_bad_push_is_named() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        told = await asked(asking)
        assert await push(asking, told, b"\xff\xff") == Error.INVALID_RECORD
        assert await push(asking, told, b"x", Codec.GZIP) == Error.INVALID_RECORD
        assert await push(asking, told, b"", 9) == Error.UNSUPPORTED_COMPRESSION_TYPE
        assert await push(asking, told, bytes(2**20 + 1)) == Error.TELEMETRY_TOO_LARGE
        nobody = told._replace(client_instance_id=NOBODY)
        assert await push(asking, nobody, b"") == Error.INVALID_REQUEST

    run(scenario)


def test_a_subscription_is_described_and_gone_when_nothing_is_left_of_it() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        await alter(asking, CLIENT_METRICS, "all", metrics="*")
        shown = await describe(asking, CLIENT_METRICS, "all")
        assert {name: (each.value, each.source) for name, each in shown.items()} == {
            "metrics": ("*", 7),
            "interval.ms": ("300000", 5),
            "match": ("", 5),
        }
        await alter(asking, CLIENT_METRICS, "all", metrics=None)
        assert not asking.broker.topics.catalog.configs

    run(scenario)


@pytest.mark.parametrize(
    "values",
    [
        {"interval_ms": 99},
        {"interval_ms": "often"},
        {"match": "client_id"},
        {"match": "nobody=.*"},
        {"match": "client_id=("},
        # Together more than a pattern may have.
        {"match": "client_id=a{250},client_source_port=1{250},client_instance_id=x{100}"},
        {"retention": 1},
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        code, _ = await alter(asking, CLIENT_METRICS, "all", metrics="*", **values)
        assert code == Error.INVALID_CONFIG
        assert not asking.broker.topics.catalog.configs

    run(scenario)
