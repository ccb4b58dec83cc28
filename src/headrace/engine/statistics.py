"""Counting: rates over the last seconds, and the numbers of a queue group."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from headrace.core.values import LaneStatistics, QueuePartitionStatistics, QueueStatistics
from headrace.engine.lane import LANE_COUNT, LaneSchedule
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.window import DELAYED, LEASED, MOVING, READY, RETRYING, SETTLING, WAITING
from headrace.record import LANES

SPAN_MS = 10_000
SAMPLE_MS = 250


class Rates:
    """Per second over the last ten: from totals that are looked at now and then."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int, int]] = deque()

    def sample(self, now_ms: int, total_in: int, total_out: int) -> None:
        samples = self._samples
        if samples and now_ms - samples[-1][0] < SAMPLE_MS:
            return
        samples.append((now_ms, total_in, total_out))
        while len(samples) > 2 and now_ms - samples[1][0] >= SPAN_MS:
            samples.popleft()

    def per_second(self, now_ms: int, total_in: int, total_out: int) -> tuple[float, float]:
        if not self._samples:
            return 0.0, 0.0
        at_ms, first_in, first_out = self._samples[0]
        seconds = max(now_ms - at_ms, SAMPLE_MS) / 1000
        return (total_in - first_in) / seconds, (total_out - first_out) / seconds


def oldest_ms(partition: Partition, view: QueueView) -> int | None:
    """The timestamp of the oldest message that could be had now."""
    first = [runs[0] for lane in range(LANE_COUNT) if (runs := view.window.find_ready(lane, 1))]
    if not first:
        return None
    offset = min(first)
    found = partition.read([offset, offset + 1])
    return found[0].timestamp_ms if found else None


def of_partition(
    partition: Partition, view: QueueView, schedule: LaneSchedule
) -> QueuePartitionStatistics:
    window = view.window
    return QueuePartitionStatistics(
        topic=partition.topic.name,
        partition=partition.index,
        start_offset=window.start,
        end_offset=window.end,
        ready=window.count_in(READY),
        waiting=window.count_in(WAITING),
        leased=window.count_in(LEASED) + window.count_in(SETTLING),
        retrying=window.count_in(RETRYING),
        delayed=window.count_in(DELAYED),
        moving=window.count_in(MOVING),
        lanes=tuple(
            LaneStatistics(
                LANES[lane],
                window.ready_in(lane),
                view.delivered_in[lane],
                schedule.last_served_ms[lane],
            )
            for lane in range(LANE_COUNT)
        ),
        oldest_ms=oldest_ms(partition, view),
    )


def of_group(
    group: str,
    topics: Sequence[str],
    parts: Sequence[QueuePartitionStatistics],
    views: Sequence[QueueView],
    schedule: LaneSchedule,
    rates: tuple[float, float],
) -> QueueStatistics:
    def total(name: str) -> int:
        return sum(view.totals[name] for view in views)

    oldest = [part.oldest_ms for part in parts if part.oldest_ms is not None]
    return QueueStatistics(
        group=group,
        topics=tuple(topics),
        ready=sum(part.ready for part in parts),
        waiting=sum(part.waiting for part in parts),
        leased=sum(part.leased for part in parts),
        retrying=sum(part.retrying for part in parts),
        delayed=sum(part.delayed for part in parts),
        moving=sum(part.moving for part in parts),
        lanes=tuple(
            LaneStatistics(
                LANES[lane],
                sum(part.lanes[lane].ready for part in parts),
                sum(part.lanes[lane].delivered for part in parts),
                schedule.last_served_ms[lane],
            )
            for lane in range(LANE_COUNT)
        ),
        oldest_ms=min(oldest, default=None),
        delivered=total("delivered"),
        acked=total("acked"),
        nacked=total("nacked"),
        lease_expired=total("lease_expired"),
        dead_lettered=total("dead_lettered"),
        expired=total("expired"),
        cancelled=total("cancelled"),
        rate_in=rates[0],
        rate_out=rates[1],
        partitions=tuple(parts),
    )
