"""Exporting metrics: an OpenTelemetry collector is told what Prometheus would be.

    look at the node --> values of OpenTelemetry's --> thread --> POST /v1/metrics
          every minute

It is off unless there is an endpoint, and what it needs is imported only then. A
collector that does not answer costs a line in the log and nothing else: what could
not be told is told with the next numbers, which are sums.

Rejected: OpenTelemetry's own meters in place of ours. They cost a lock and several
dictionaries for every request, also where nobody listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headrace.core.event_log import log_event
from headrace.core.extras import require
from headrace.server.metrics.families import Samples
from headrace.server.metrics.scrape import Scrapes
from headrace.server.service import Service
from headrace.server.version import VERSION

logger = logging.getLogger("headrace")

# How long a node that stops waits for the last numbers to be taken.
LAST_SECONDS = 2.0


def resource_of(service: Service) -> Any:
    """Who this node is. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last
    word."""
    resources: Any = require("opentelemetry.sdk.resources", "otel")
    ours = resources.Resource(
        {
            "service.name": "headrace",
            "service.version": VERSION,
            "service.instance.id": f"{service.cluster_id}/{service.node_id}",
        }
    )
    return ours.merge(resources.OTELResourceDetector().detect())


class MetricsExport:
    def __init__(
        self, service: Service, scrapes: Scrapes, endpoint: str, *, interval_ms: int
    ) -> None:
        """`endpoint` is what all telemetry goes to, as http://127.0.0.1:4318. MissingExtra
        when OpenTelemetry is not installed."""
        self._service = service
        self._scrapes = scrapes
        self._interval_seconds = interval_ms / 1000
        exporters: Any = require("opentelemetry.exporter.otlp.proto.http.metric_exporter", "otel")
        # It has its own words for a collector that is away; ours are below.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._url = f"{endpoint}/v1/metrics"
        self._exporter = exporters.OTLPMetricExporter(self._url)
        self._translation: Any = require("headrace.server.metrics.otlp", "otel")
        self._resource = resource_of(service)
        self._began_ms = service.clock.now_ms()
        self._pool = ThreadPoolExecutor(1, "headrace-metrics")
        self._is_failing = False
        self._task = service.loop.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            await self.export()

    async def export(self) -> None:
        """Tell what is so now. Whether that worked, the log says, once each time that
        it changes."""
        try:
            samples = await self._scrapes.samples()
            now_ms = self._service.clock.now_ms()
            loop = self._service.loop
            is_taken = await loop.run_in_executor(self._pool, self._tell, samples, now_ms)
            self._note(is_failing=not is_taken)
        except asyncio.CancelledError:
            raise
        except Exception:
            # Whoever watches must not bring down what is watched.
            log_event(
                logger,
                logging.ERROR,
                "metrics were not exported",
                exc_info=True,
                endpoint=self._url,
            )

    def _tell(self, samples: Samples, now_ms: int) -> bool:
        """Whether it was taken. In a thread: nobody changes samples any more."""
        told = self._translation.metrics_data(samples, self._resource, self._began_ms, now_ms)
        is_taken: bool = self._exporter.export(told).name == "SUCCESS"
        return is_taken

    def _note(self, *, is_failing: bool) -> None:
        if is_failing and not self._is_failing:
            log_event(logger, logging.WARNING, "metrics are not taken", endpoint=self._url)
        elif self._is_failing and not is_failing:
            log_event(logger, logging.INFO, "metrics are taken again", endpoint=self._url)
        self._is_failing = is_failing

    async def close(self) -> None:
        """Tell the last numbers, if somebody takes them at once."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._is_failing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self.export()
        self._exporter.shutdown()
        self._pool.shutdown(wait=False, cancel_futures=True)
