"""What a producer publishes carries the context of the span that published it. In a
process of its own: who has not imported OpenTelemetry has no spans.
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
    with handle.stream("orders") as stream:
        carried = [each.headers["traceparent"] for each in stream.poll(10, wait=10)]
spans = [span for span in kept.get_finished_spans() if span.name == "publish orders"]
ids = [trace.format_span_id(span.context.span_id).encode() for span in spans]
assert len(spans) == 4
assert [each.split(b"-")[2] for each in carried[:5]] == [ids[0], ids[1], ids[1], ids[2], ids[2]]
assert carried[5] == b"mine"
"""


def test_a_message_carries_the_context_of_whoever_gave_it_to_a_producer() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
