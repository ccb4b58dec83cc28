"""The numbers of a queue group: by lane, by partition, and in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.core.values import (
    LaneStatistics,
    LatencyStatistics,
    QueuePartitionStatistics,
    QueueStatistics,
)
from headrace.engine.lane import LANE_COUNT
from headrace.engine.latency import Latency, quantile_ms
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.window import DELAYED, LEASED, MOVING, RETRYING, SETTLING, WAITING
from headrace.record import LANES


def sample(view: QueueView, now_ms: int) -> None:
    """To be called now and then, so that rates have something to compare with."""
    view.rates.sample(now_ms, view.seen_in + view.delivered_in)


def rates_of(view: QueueView, now_ms: int) -> list[float]:
    """Messages a second over the last ten: that came, lane by lane, then that were handed
    out. Every number of a queue's rate is one of these, or a sum of them."""
    return view.rates.per_second(now_ms, view.seen_in + view.delivered_in)


def of_partition(partition: Partition, view: QueueView, now_ms: int) -> QueuePartitionStatistics:
    window = view.window
    rates = rates_of(view, now_ms)
    ready = view.ready()
    lanes = tuple(_of_lane(partition, view, lane, ready[lane], rates) for lane in range(LANE_COUNT))
    return QueuePartitionStatistics(
        topic=partition.topic.name,
        partition=partition.index,
        start_offset=window.start,
        end_offset=window.end,
        ready=sum(ready),
        waiting=window.count_in(WAITING) + sum(view.held_back()),
        leased=window.count_in(LEASED) + window.count_in(SETTLING),
        retrying=window.count_in(RETRYING),
        delayed=window.count_in(DELAYED),
        moving=window.count_in(MOVING),
        lanes=lanes,
        oldest_ms=_least(lane.oldest_ms for lane in lanes),
        rate_in=sum(lane.rate_in for lane in lanes),
        rate_out=sum(lane.rate_out for lane in lanes),
    )


def _of_lane(
    partition: Partition, view: QueueView, lane: int, ready: int, rates: Sequence[float]
) -> LaneStatistics:
    counts = view.window.counts
    return LaneStatistics(
        lane=LANES[lane],
        ready=ready,
        leased=counts[lane << 4 | LEASED] + counts[lane << 4 | SETTLING],
        retrying=counts[lane << 4 | RETRYING],
        delayed=counts[lane << 4 | DELAYED],
        delivered=view.delivered_in[lane],
        last_served_ms=view.served_ms[lane],
        oldest_ms=_oldest_ms(partition, view, lane),
        rate_in=rates[lane],
        rate_out=rates[LANE_COUNT + lane],
    )


def _oldest_ms(partition: Partition, view: QueueView, lane: int) -> int | None:
    """When the lane's first message was published that is ready, or is but for others
    before it in its partition; when it was taken, if what it says cannot be right."""
    runs = view.window.find_ready(lane, 1)
    found = partition.read(runs) if runs else []
    return partition.arrivals.believed(found[0].offset, found[0].timestamp_ms) if found else None


def of_group(
    group: str,
    parts: Sequence[QueuePartitionStatistics],
    views: Sequence[QueueView],
    now_ms: int,
) -> QueueStatistics:
    def total(name: str) -> int:
        return sum(view.totals[name] for view in views)

    return QueueStatistics(
        group=group,
        topics=tuple(sorted({part.topic for part in parts})),
        ready=sum(part.ready for part in parts),
        waiting=sum(part.waiting for part in parts),
        leased=sum(part.leased for part in parts),
        retrying=sum(part.retrying for part in parts),
        delayed=sum(part.delayed for part in parts),
        moving=sum(part.moving for part in parts),
        lanes=tuple(
            _together([part.lanes[lane] for part in parts], LANES[lane])
            for lane in range(LANE_COUNT)
        ),
        oldest_ms=_least(part.oldest_ms for part in parts),
        delivered=total("delivered"),
        acked=total("acked"),
        nacked=total("nacked"),
        lease_expired=total("lease_expired"),
        dead_lettered=total("dead_lettered"),
        expired=total("expired"),
        cancelled=total("cancelled"),
        rate_in=sum(part.rate_in for part in parts),
        rate_out=sum(part.rate_out for part in parts),
        partitions=tuple(parts),
        to_lease=_latency([view.to_lease for view in views], now_ms),
        to_ack=_latency([view.to_ack for view in views], now_ms),
    )


def _latency(parts: Sequence[Latency], now_ms: int) -> LatencyStatistics:
    used = [part for part in parts if part.counts]
    counts = [sum(each) for each in zip(*(part.recent(now_ms) for part in used), strict=True)]
    ranges = [part.recent_range(now_ms) for part in used]
    least_ms = min((least for least, _ in ranges), default=0)
    most_ms = max((most for _, most in ranges), default=0)
    return LatencyStatistics(
        sum(counts),
        *(quantile_ms(counts, share, least_ms, most_ms) for share in (0.5, 0.95, 0.99)),
    )


def _together(lanes: Sequence[LaneStatistics], name: str) -> LaneStatistics:
    served = [lane.last_served_ms for lane in lanes if lane.last_served_ms is not None]
    return LaneStatistics(
        lane=name,
        ready=sum(lane.ready for lane in lanes),
        leased=sum(lane.leased for lane in lanes),
        retrying=sum(lane.retrying for lane in lanes),
        delayed=sum(lane.delayed for lane in lanes),
        delivered=sum(lane.delivered for lane in lanes),
        last_served_ms=max(served, default=None),
        oldest_ms=_least(lane.oldest_ms for lane in lanes),
        rate_in=sum(lane.rate_in for lane in lanes),
        rate_out=sum(lane.rate_out for lane in lanes),
    )


def _least(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)
