"""A stand-in for a collector of OpenTelemetry: takes spans by OTLP over HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Received(NamedTuple):
    service: str
    name: str
    # OTLP's number: 1 internal, 4 producer, 5 consumer.
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    status: int
    attributes: dict[str, Any]


class Collector:
    def __init__(self) -> None:
        self._news = threading.Condition()
        self._spans: list[Received] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/traces":
                    collector.take(body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        found = [
            Received(
                _attributes(resource.resource.attributes).get("service.name", ""),
                span.name,
                span.kind,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.status.code,
                _attributes(span.attributes),
            )
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._news:
            self._spans += found
            self._news.notify_all()

    def wait_for(self, is_enough: Callable[[list[Received]], bool]) -> list[Received]:
        with self._news:
            assert self._news.wait_for(lambda: is_enough(self._spans), 60), self._spans
            return list(self._spans)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in pairs}
