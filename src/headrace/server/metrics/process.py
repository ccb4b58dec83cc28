"""What the system knows of this process: memory, CPU time, open files.

Read by prometheus_client's own collector, so that the numbers mean what they mean
everywhere. It lists the open files, which takes a while with thousands of them: to be
called in a thread.
"""

from __future__ import annotations

from prometheus_client import ProcessCollector


def read_process() -> dict[str, float]:
    """By name; empty where there is no /proc."""
    collector = ProcessCollector(registry=None)
    return {
        metric.name: sample.value for metric in collector.collect() for sample in metric.samples
    }
