"""Spans by OTLP: one message, from its producer over the node to its worker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.doors.conftest import DoorsProcess
from tests.doors.otlp_collector import Collector, Received

# What a user's own programs do: OpenTelemetry is theirs to configure.
_SET_UP = """
import sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import headrace

service, endpoint, address = sys.argv[1:]
provider = TracerProvider(resource=Resource.create({"service.name": service}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
trace.set_tracer_provider(provider)
handle = headrace.connect(address)
"""
_SHOP = """
handle.create_topic("orders", 1, trace_sample=1)
with trace.get_tracer("shop").start_as_current_span("checkout"):
    handle.publish("orders", {"id": 7})
handle.publish_many("orders", [b"1", b"2"], headers={"traceparent": "mine"})
handle.close()
"""
_BILLING = """
seen = []
with handle.queue("orders", "billing", max_attempts=1) as queue:
    while len(seen) < 3:
        for message in queue.receive(3, wait=10):
            try:
                with message:
                    seen.append(trace.get_current_span().get_span_context().is_valid)
                    if len(seen) > 1:
                        raise ValueError("no money")
            except ValueError:
                pass
assert seen == [True] * 3
handle.close()
"""
_APP = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import headrace
from headrace import testing

kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
app = headrace.App()


@app.worker("orders", max_attempts=1)
async def looked_at(value):
    with trace.get_tracer("billing").start_as_current_span("look"):
        pass


@app.worker("users", max_attempts=1)
def failing(value):
    raise ValueError("no such user")


with testing.open(auto_create=True) as handle:
    handle.publish("orders", {"id": 7})
    handle.publish_many("users", [{"id": 8}, {"id": 9}])
    testing.drain(app, handle)
spans = {}
for span in kept.get_finished_spans():
    spans.setdefault(span.name, []).append(span)
[sent], [handled], [look] = spans["publish orders"], spans["process orders"], spans["look"]
assert handled.parent.span_id == sent.context.span_id
assert look.parent.span_id == handled.context.span_id
assert handled.attributes["headrace.message.attempt"] == 1
[batch] = spans["publish users"]
assert batch.attributes["messaging.batch.message_count"] == 2
assert [span.status.is_ok for span in spans["process users"]] == [False, False]
assert {span.parent.span_id for span in spans["process users"]} == {batch.context.span_id}
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture
def node(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DoorsProcess]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    process = DoorsProcess(tmp_path / "data")
    yield process
    assert process.stop() == 0


def run(script: str, service: str, collector: Collector, node: DoorsProcess) -> None:
    subprocess.run(
        [sys.executable, "-c", _SET_UP + script, service, collector.endpoint, node.doors["kafka"]],
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_the_spans_of_one_message_are_one_trace_from_producer_to_worker(
    collector: Collector, node: DoorsProcess
) -> None:
    run(_SHOP, "shop", collector, node)
    run(_BILLING, "billing", collector, node)
    wanted = {
        ("shop", "checkout"),
        ("shop", "publish orders"),
        ("headrace", "publish orders"),
        ("headrace", "lease orders"),
        ("headrace", "ack orders"),
        ("billing", "process orders"),
    }

    def of_checkout(spans: list[Received]) -> dict[tuple[str, str], Received]:
        traces = {each.trace_id for each in spans if each.name == "checkout"}
        return {(each.service, each.name): each for each in spans if each.trace_id in traces}

    received = collector.wait_for(lambda spans: wanted <= of_checkout(spans).keys())
    found = of_checkout(received)
    assert found.keys() == wanted
    published, processed = found["shop", "publish orders"], found["billing", "process orders"]
    assert published.kind == 4
    assert published.parent_id == found["shop", "checkout"].span_id
    assert processed.kind == 5
    assert processed.parent_id == published.span_id
    for name in ("publish orders", "lease orders", "ack orders"):
        assert found["headrace", name].parent_id == published.span_id
    id = "orders:0:0"
    assert {span.attributes.get("messaging.message.id", id) for span in found.values()} == {id}
    assert processed.attributes["messaging.consumer.group.name"] == "billing"
    assert processed.attributes["messaging.operation.type"] == "process"
    # Those that failed say so, and have traces of their own.
    failed = [each for each in received if each.name == "process orders" and each.status == 2]
    assert len(failed) == 2
    assert processed.trace_id not in {each.trace_id for each in failed}


def test_a_worker_of_an_app_continues_the_trace_of_its_message() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", _APP], check=True, timeout=60, env=environment)


def test_nothing_of_opentelemetry_is_imported_by_who_does_not_use_it() -> None:
    script = (
        "import sys, headrace\n"
        "handle = headrace.open(':memory:')\n"
        "handle.create_topic('orders')\n"
        "handle.publish('orders', b'x')\n"
        "with handle.queue('orders') as queue:\n"
        "    with queue.lease(1)[0]: pass\n"
        "handle.close()\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=environment)
