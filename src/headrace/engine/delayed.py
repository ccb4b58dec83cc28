"""Listing what is delayed, a page at a time, in the order in which it falls due, calling
it off, and counting what became of it.

    delivered    leased for the first time, by each group that does
    cancelled    called off, for all groups
    expired      its life ended before its time came, for each group
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.values import DelayedMessage, DelayedTotals, Looked
from headrace.engine import state as events
from headrace.engine.latency import first_leased
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.runs import pairs, runs_of
from headrace.engine.window import DELAYED, RETRYING
from headrace.record import Record, read_attributes

# Due time, partition and offset: where a page goes on.
Place = tuple[int, int, int]
DelayedLooked = Looked[DelayedMessage, Place]

_LAST_OFFSET = 2**63 - 1


def cancel(partition: Partition, offset: int, now_ms: int) -> bool:
    """Call a delayed message off, for all groups. False when its time has come
    already, or it is not one."""
    scanner = partition.know_attributes()
    if offset in scanner.cancelled or not _is_delayed(partition, offset, now_ms):
        return False
    event = events.Cancelled(now_ms, [offset, offset + 1])
    partition.open_state(now_ms).append([event], partition.epoch, now_ms)
    scanner.cancelled.add(offset)
    scanner.delays_ended["cancelled"] += 1
    for view in partition.views.values():
        view.cancel(event.runs)
    return True


def on_delivered(partition: Partition, event: events.Granted, offsets: Iterable[int]) -> None:
    """Count which of these, which were delayed, go out for the first time."""
    if partition.scanner is None:
        return
    delayed = sorted(first_leased(partition.views[event.group], offsets))
    partition.scanner.delays_ended["delivered"] += sum(
        bisect_left(delayed, end) - bisect_left(delayed, start)
        for (start, end), attempt in zip(pairs(event.runs), event.attempts, strict=True)
        if attempt == 1
    )


def on_expired(partition: Partition, view: QueueView, offsets: Iterable[int]) -> None:
    """Count which of these are still delayed."""
    if partition.scanner is not None and partition.scanner.has_delays:
        ended = sum(view.is_in(offset, DELAYED) for offset in offsets)
        partition.scanner.delays_ended["expired"] += ended


def totals_of(topic: str, partitions: Sequence[Partition]) -> DelayedTotals:
    ended: Counter[str] = Counter()
    for partition in partitions:
        if partition.scanner is not None:
            ended.update(partition.scanner.delays_ended)
    return DelayedTotals(topic, ended["delivered"], ended["cancelled"], ended["expired"])


def next_delayed_ms(partition: Partition, view: QueueView) -> int | None:
    """When the next message of this group comes due that is delayed or rests before a
    retry. Due times are kept of those too that were called off or are not the group's."""
    dues = []
    start = view.window.start
    if view.window.count_in(DELAYED) and partition.scanner is not None:
        delays = partition.scanner.delays.in_order(start)
        moments = partition.scanner.scheduled.in_order(start)
        dues += _first_in(view, DELAYED, merge(delays, moments))
    if view.window.count_in(RETRYING):
        dues += _first_in(view, RETRYING, view.retries.in_order(start))
    return min(dues, default=None)


def _first_in(view: QueueView, state: int, times: Iterable[tuple[int, int]]) -> list[int]:
    found = (due_ms for due_ms, offset in times if view.is_in(offset, state))
    return list(islice(found, 1))


def _is_delayed(partition: Partition, offset: int, now_ms: int) -> bool:
    if not partition.log.start_offset <= offset < partition.high_watermark:
        return False
    if partition.topic.source_id is not None:
        return False  # Dead letters keep their headers and wait for nothing.
    for record in partition.read_committed([offset, offset + 1]):
        return due_ms_of(partition, record) > now_ms and not _is_over(partition, record, now_ms)
    return False


def due_ms_of(partition: Partition, record: Record) -> int:
    """When the message comes, by the clock as it is set now, as every answer says it; 0 when
    it was never to wait. Where no queue reads the topic, nothing has moved that."""
    wishes = read_attributes(record.headers, record.timestamp_ms)
    if partition.scanner is None:
        return wishes.deliver_at_ms
    return partition.scanner.due_ms(record.offset, wishes.deliver_at_ms, wishes.delay_ms)


def _is_over(partition: Partition, record: Record, now_ms: int) -> bool:
    ends_ms = partition.know_attributes().expires_at_ms(record)
    return ends_ms is not None and ends_ms <= now_ms


def look_at_delayed(
    partitions: Sequence[Partition], after: Place | None, limit: int, now_ms: int
) -> DelayedLooked:
    """The next `limit` messages behind `after`, without those that were called off or
    have expired: so there may be none, and still more behind them."""
    if not 1 <= limit <= limits.PAGE_ITEMS_MAX:
        raise InvalidArgument(f"a page has 1 to {limits.PAGE_ITEMS_MAX} items, not {limit}")
    for partition in partitions:
        if partition.queues_stopped is not None:
            # Which were called off is not known.
            raise partition.queues_stopped.without_frames()
    # What is due now is not delayed any more.
    place = max(after or (0, 0, 0), (now_ms, len(partitions), _LAST_OFFSET))
    places = _next_places(partitions, place, limit)
    found = _messages(partitions, places, now_ms)
    size_bytes = sum(len(each.key or b"") + len(each.value or b"") for each in found)
    return Looked(found, places[-1] if len(places) == limit else None, size_bytes)


def _next_places(partitions: Sequence[Partition], after: Place, limit: int) -> list[Place]:
    due_ms, index, offset = after
    places: list[Place] = []
    for partition in partitions:
        if partition.index < index:
            behind = _LAST_OFFSET
        elif partition.index == index:
            behind = offset
        else:
            behind = -1
        dues = partition.know_attributes().after(due_ms, behind, limit)
        places += [(at, partition.index, each) for at, each in dues]
    return sorted(places)[:limit]


def _messages(
    partitions: Sequence[Partition], places: Sequence[Place], now_ms: int
) -> list[DelayedMessage]:
    """Those that are committed, were not called off and have not expired."""
    records: dict[tuple[int, int], Record] = {}
    for partition in partitions:
        cancelled = partition.know_attributes().cancelled
        wanted = sorted(
            offset
            for _, index, offset in places
            if index == partition.index and offset not in cancelled
        )
        for record in partition.read_committed(runs_of(wanted)):
            if not _is_over(partition, record, now_ms):
                records[partition.index, record.offset] = record
    return [
        DelayedMessage(
            partitions[index].topic.name, index, offset, at,
            kept.key, kept.value, kept.headers, kept.timestamp_ms,
        )
        for at, index, offset in places
        if (kept := records.get((index, offset))) is not None
    ]  # fmt: skip
