"""What a serving node says of itself: its process, its disk and its doors."""

from __future__ import annotations

import shutil

from headrace.core.node_settings import NodeSettings
from headrace.core.overview_values import NodeFigures, Spread
from headrace.platform.process import memory_bytes_max, process_figures
from headrace.server.metrics.counting import Counts, Histogram
from headrace.server.version import VERSION


def node_figures(
    settings: NodeSettings,
    node_id: int,
    now_ms: int,
    doors: dict[str, str],
    connections: int,
    sync_failed: str | None,
    counts: Counts,
) -> NodeFigures:
    process = process_figures()
    total: int | None = None
    free: int | None = None
    try:
        disk = shutil.disk_usage(settings.data)
        total, free = disk.total, disk.free
    except OSError:
        # The directory is away; the rest may still help to see why.
        pass
    return NodeFigures(
        VERSION,
        node_id,
        settings.data,
        process.started_at_ms,
        now_ms,
        process.cpu_seconds,
        process.memory_bytes,
        memory_bytes_max(),
        free,
        total,
        1000 * counts.syncs.sum / count if (count := sum(counts.syncs.counts)) else None,
        settings.free_bytes_min,
        process.open_files,
        process.open_files_max,
        connections,
        doors,
        sync_failed,
        _spread_of(counts.syncs),
        _spread_of(counts.loop_lag),
    )


def _spread_of(histogram: Histogram) -> Spread:
    return Spread(tuple(histogram.bounds), tuple(histogram.counts))
