"""What one look finds, summed up by topic and by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import add
from typing import Final

from headrace.core.values import spark_rows_of
from headrace.engine.cursor import Cursor
from headrace.engine.lane import LANE_COUNT
from headrace.engine.latency import BOUNDS_MS, Latency
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.window import DELAYED, LEASED, MOVING, READY, RETRYING, SETTLING, WAITING
from headrace.record import LANES
from headrace.server.metrics import families as f
from headrace.server.metrics.counting import Histogram
from headrace.server.metrics.families import Family, Sample, Samples

# A message that is being settled is still its consumer's.
_STATES: Final = (
    ("ready", (READY,)),
    ("waiting", (WAITING,)),
    ("leased", (LEASED, SETTLING)),
    ("retrying", (RETRYING,)),
    ("delayed", (DELAYED,)),
    ("moving", (MOVING,)),
)
_TOTALS: Final = (
    (f.DELIVERIES, "delivered"),
    (f.REDELIVERIES, "redelivered"),
    (f.ACKS, "acked"),
    (f.NACKS, "nacked"),
    (f.LEASES_ENDED, "lease_expired"),
    (f.DEAD_LETTERED, "dead_lettered"),
    (f.EXPIRED, "expired"),
    (f.CANCELLED, "cancelled"),
)


# Of all lanes, as a window has them.
_NOT_DONE: Final = tuple(
    lane << 4 | value for lane in range(LANE_COUNT) for _, values in _STATES for value in values
)
LATENCY_BOUNDS: Final = tuple(bound / 1000 for bound in BOUNDS_MS)


class TopicSums:
    def __init__(self) -> None:
        self.partitions = self.segments = self.size = self.undecided = 0
        self.delays_ended: Counter[str] = Counter()

    def add(self, partition: Partition) -> None:
        log = partition.log
        self.partitions += 1
        self.segments += len(log.segment_list)
        self.size += log.size_bytes
        if partition.state is not None:
            self.size += partition.state.log.size_bytes
        self.undecided += partition.high_watermark - partition.last_stable_offset
        if partition.scanner is not None:
            self.delays_ended.update(partition.scanner.delays_ended)

    def write(self, samples: Samples, topic: str) -> None:
        for family, value in (
            (f.PARTITIONS, self.partitions),
            (f.SEGMENTS, self.segments),
            (f.SIZE, self.size),
            (f.UNDECIDED, self.undecided),
        ):
            samples[family].append(((topic,), value))
        if any(self.delays_ended.values()):
            for outcome in ("delivered", "cancelled", "expired"):
                ended = self.delays_ended[outcome]
                samples[f.DELAYS_ENDED].append(((topic, outcome), ended))


class QueueSums:
    """One queue group on one topic."""

    def __init__(self) -> None:
        # By the byte of the window: lane and state.
        self.counts = [0] * (LANE_COUNT << 4)
        self.totals = dict.fromkeys([total for _, total in _TOTALS], 0)
        self.stale_receipts = 0
        # By lane: for how many milliseconds the oldest ready message has waited.
        self.waited_ms = [0] * LANE_COUNT
        self.to_lease = Histogram(LATENCY_BOUNDS)
        self.to_ack = Histogram(LATENCY_BOUNDS)

    def add(self, view: QueueView) -> None:
        window = view.window
        if window.start < window.end:
            # As far as there are lanes; this is done for every group of every partition.
            self.counts = list(map(add, self.counts, window.counts))
            if view.ordering == "partition":
                for lane, count in enumerate(view.held_back()):
                    self.counts[lane << 4 | READY] -= count
                    self.counts[lane << 4 | WAITING] += count
        totals = self.totals
        for total, count in view.totals.items():
            if total in totals:
                totals[total] += count
        self.stale_receipts += view.stale_receipts
        _add(self.to_lease, view.to_lease)
        _add(self.to_ack, view.to_ack)

    def write(self, samples: Samples, group: str, topic: str) -> None:
        depth = 0
        for lane, name in enumerate(LANES):
            for state, values in _STATES:
                count = sum(self.counts[lane << 4 | value] for value in values)
                depth += count
                samples[f.QUEUE_MESSAGES].append(((group, topic, name, state), count))
            waited = self.waited_ms[lane] / 1000
            samples[f.QUEUE_OLDEST].append(((group, topic, name), waited))
        for family, total in _TOTALS:
            samples[family].append(((group, topic), self.totals[total]))
        samples[f.STALE_RECEIPTS].append(((group, topic), self.stale_receipts))
        samples[f.TO_LEASE].append(((group, topic), self.to_lease))
        samples[f.TO_ACK].append(((group, topic), self.to_ack))
        samples[f.LAG_MESSAGES].append(((group, topic, "queue"), depth))
        samples[f.LAG_SECONDS].append(((group, topic, "queue"), max(self.waited_ms) / 1000))


def _add(histogram: Histogram, latency: Latency) -> None:
    if latency.counts:
        histogram.counts = list(map(add, histogram.counts, latency.counts))
        histogram.sum += latency.sum_ms / 1000


class StreamSums:
    """One stream group on one topic."""

    def __init__(self) -> None:
        self.lag = self.position = self.waited_ms = 0
        self.committed_ms: int | None = None
        self.kind = "stream"

    def write(self, samples: Samples, group: str, topic: str, now_ms: int) -> None:
        labels = (group, topic, self.kind)
        samples[f.LAG_MESSAGES].append((labels, self.lag))
        samples[f.LAG_SECONDS].append((labels, self.waited_ms / 1000))
        samples[f.POSITION].append((labels, self.position))
        if self.committed_ms is not None:
            age = max(0, now_ms - self.committed_ms) / 1000
            samples[f.COMMIT_AGE].append((labels, age))


class SinkSums:
    """One sink of Spark that writes exactly once, or several that share a series."""

    def __init__(self) -> None:
        self.rows = self.batches = 0

    def add(self, markers: Iterable[Cursor]) -> None:
        """What one task has committed: its next batch, and beside it its rows."""
        for marker in markers:
            self.rows += spark_rows_of(marker.metadata)
            self.batches = max(self.batches, marker.offset)

    def join(self, other: SinkSums) -> None:
        self.rows += other.rows
        self.batches += other.batches

    def write(self, samples: Samples, sink: str) -> None:
        samples[f.SINK_ROWS].append(((sink,), self.rows))
        samples[f.SINK_BATCHES].append(((sink,), self.batches))


def depth_of(view: QueueView) -> int:
    """Messages that are not done."""
    counts = view.window.counts
    return sum([counts[byte] for byte in _NOT_DONE])


def empty_samples() -> dict[Family, list[Sample]]:
    return {family: [] for family in f.FAMILIES}
