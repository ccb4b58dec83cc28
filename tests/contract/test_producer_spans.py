"""What a producer or a transaction publishes carries the context of the span that published
it. In processes of their own: who has not imported OpenTelemetry has no spans.
"""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import headrace

kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
with headrace.open(":memory:") as handle:
    handle.create_topic("orders", 1)
    with handle.producer() as producer:
        producer.publish("orders", b"one")
        producer.publish_many("orders", [b"two", b"three"])
        producer.publish_many("orders", ["four", headrace.NewMessage(b"five", key="k")])
        producer.publish("orders", b"six", headers={"traceparent": "mine"})
    with handle.transaction() as transaction:
        transaction.publish("orders", b"seven")
        transaction.publish_many("orders", [b"eight", b"nine"])
    with handle.stream("orders") as stream:
        carried = [each.headers["traceparent"] for each in stream.poll(10, wait=10)]
spans = [span for span in kept.get_finished_spans() if span.name == "publish orders"]
ids = [trace.format_span_id(span.context.span_id).encode() for span in spans]
assert len(spans) == 6
assert [each.split(b"-")[2] for each in carried[:5]] == [ids[0], ids[1], ids[1], ids[2], ids[2]]
assert carried[5] == b"mine"
assert [each.split(b"-")[2] for each in carried[6:]] == [ids[4], ids[5], ids[5]]
assert all(span.kind is trace.SpanKind.PRODUCER for span in spans)
assert [span.attributes.get("messaging.batch.message_count") for span in spans[:3]] == [None, 2, 2]
"""
# Some library has imported OpenTelemetry, and nobody has configured it.
_UNCONFIGURED = """
from opentelemetry import trace
import headrace

made = []
trace.get_tracer = made.append
with headrace.open(":memory:") as handle:
    handle.create_topic("orders", 1)
    with handle.producer() as producer:
        producer.publish("orders", b"one")
        producer.publish_many("orders", [b"two"])
    handle.publish("orders", b"three")
    with handle.queue("orders", "billing") as queue:
        for message in queue.receive(3, wait=10):
            assert not message.headers
            with message:
                pass
assert not made
"""
_CARRIED_ON = """
from opentelemetry import context, propagate, trace
import headrace

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
with headrace.open(":memory:") as handle:
    handle.create_topic("orders", 1)
    handle.create_topic("paid", 1)
    token = context.attach(propagate.extract({"traceparent": CONTEXT}))
    with handle.producer() as producer:
        producer.publish("orders", b"one")
    context.detach(token)
    with handle.queue("orders", "billing") as queue:
        [message] = queue.receive(1, wait=10)
        with message:
            handle.publish("paid", b"two")
    handle.publish("paid", b"three")
    with handle.stream("paid") as stream:
        two, three = stream.poll(2, wait=10)
assert message.headers["traceparent"] == two.headers["traceparent"] == CONTEXT.encode()
assert not three.headers
"""


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_message_carries_the_context_of_whoever_gave_it_to_a_producer() -> None:
    run(_PROGRAM)


def test_nothing_is_made_for_somebody_who_has_not_configured_it() -> None:
    run(_UNCONFIGURED)


def test_a_context_goes_on_with_nobody_to_make_spans_of_it() -> None:
    run(_CARRIED_ON)
