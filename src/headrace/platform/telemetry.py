"""Setting OpenTelemetry up: spans go out by OTLP over HTTP, in the background.

Nothing of it is imported before somebody names an endpoint: a node without one stays as
small as it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from headrace.core.extras import require

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SERVICE_NAME = "OTEL_SERVICE_NAME"


def endpoint_of(given: str, environment: Mapping[str, str] | None = None) -> str:
    """Where telemetry goes: what was given, or what the environment says by
    OpenTelemetry's own name. Empty for nowhere."""
    said = (os.environ if environment is None else environment).get(ENDPOINT, "")
    return (given or said).rstrip("/")


def start_tracing(endpoint: str, service_name: str) -> Any:
    """A provider of tracers, to be shut down at the end: what is left is sent then.
    MissingExtra when OpenTelemetry is not installed."""
    exporter = require("opentelemetry.exporter.otlp.proto.http.trace_exporter", "otel")
    resources = require("opentelemetry.sdk.resources", "otel")
    sdk = require("opentelemetry.sdk.trace", "otel")
    export = require("opentelemetry.sdk.trace.export", "otel")
    name = os.environ.get(SERVICE_NAME, service_name)
    provider = sdk.TracerProvider(
        resource=resources.Resource.create({"service.name": name}), shutdown_on_exit=False
    )
    sender = exporter.OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")
    provider.add_span_processor(export.BatchSpanProcessor(sender, schedule_delay_millis=1000))
    return provider
