"""Metrics over OTLP, to a collector that only listens."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from tests.doors.conftest import DoorsProcess, done

from headrace.server.metrics import families as f

WAIT_SECONDS = 60
HOUR_MS = "3600000"


class Collector:
    """What came in, in the order in which it came."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_port}"
        self.received: Queue[ExportMetricsServiceRequest] = Queue()

    def next(self) -> dict[str, Any]:
        """The metrics of the next export, by name."""
        request = self.received.get(timeout=WAIT_SECONDS)
        (resource,) = request.resource_metrics
        attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert attributes["service.name"] == "headrace"
        assert {"service.version", "service.instance.id"} <= set(attributes)
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "headrace"
        return {metric.name: metric for metric in scope.metrics}


@contextmanager
def listening() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            # Spans come here too.
            if self.path == "/v1/metrics":
                request: Any = ExportMetricsServiceRequest()
                request.ParseFromString(body)
                collector.received.put(request)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(server)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def points(metric: Any) -> dict[frozenset[tuple[str, str]], Any]:
    data = getattr(metric, metric.WhichOneof("data"))
    return {
        frozenset((each.key, each.value.string_value) for each in point.attributes): point
        for point in data.data_points
    }


def test_a_node_that_stops_tells_what_it_counted(tmp_path: Path) -> None:
    with listening() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("HEADRACE_OTLP_INTERVAL_MS", HOUR_MS)
        doors = DoorsProcess(tmp_path / "data")
        try:
            for value in ("one", "two"):
                done(httpx.post(f"{doors.http}/produce", json={"topic": "orders", "value": value}))
        finally:
            assert doors.stop() == 0
        told = collector.next()
    families = {family.name: family for family in f.FAMILIES}
    assert {name.removesuffix("_info") for name in told} <= set(families)
    messages = told[f.MESSAGES_IN.name]
    assert messages.sum.is_monotonic and messages.sum.aggregation_temporality == 2
    assert messages.unit == "{message}"
    point = points(messages)[frozenset({("topic", "orders"), ("door", "http")})]
    assert point.as_double == 2 or point.as_int == 2
    assert 0 < point.start_time_unix_nano <= point.time_unix_nano
    lag = told[f.DISK_FLOOR.name]
    assert lag.WhichOneof("data") == "gauge" and lag.unit == "By"
    requests = points(told[f.REQUESTS.name])
    produced = requests[frozenset({("door", "http"), ("api", "POST /produce")})]
    assert produced.count == 2 == sum(produced.bucket_counts)
    assert len(produced.bucket_counts) == len(produced.explicit_bounds) + 1
    assert produced.sum > 0 and not produced.HasField("min")


def test_numbers_are_told_again_and_again(tmp_path: Path) -> None:
    with listening() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_OTLP_INTERVAL_MS", "100")
        patch.setenv("HEADRACE_METRICS_CACHE_MS", "0")
        patch.setenv("OTEL_SERVICE_NAME", "headrace")
        doors = DoorsProcess(tmp_path / "data", "--otlp-endpoint", f"{collector.url}/")
        try:
            times = []
            for _ in range(3):
                (point,) = points(collector.next()[f.STOPPED.name]).values()
                times.append(point.time_unix_nano)
            assert times == sorted(times) and len(set(times)) == 3
        finally:
            assert doors.stop() == 0


def test_a_collector_that_is_away_costs_one_line(tmp_path: Path) -> None:
    with listening() as collector:
        gone = collector.url
    path = tmp_path / "log"
    with path.open("w") as logs, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_OTLP_INTERVAL_MS", "100")
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        patch.setenv("HEADRACE_OTLP_ENDPOINT", gone)
        doors = DoorsProcess(tmp_path / "data", logs=logs)
        try:
            for _ in range(1_200):
                if path.read_text().endswith("\n") or threading.Event().wait(0.05):
                    break
        finally:
            assert doors.stop() == 0
    (line,) = path.read_text().splitlines()
    assert "metrics are not taken" in line and f"{gone}/v1/metrics" in line
