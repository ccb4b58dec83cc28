"""Latency: how long messages take from publish to lease, and from publish to ack.

    publish ----------- due ------- first lease ------ lease again ------ ack
                         |<- to_lease ->|                                  |
                         |<------------------ to_ack --------------------->|

A message waits since its record's timestamp or, if it was delayed, since it was due:
nobody could have had it before. Producers of Kafka's protocol give timestamps by their
own clocks: a wait that would be negative counts as none, and where a time is far from when
the node took the message, it waits since then (`arrivals`).

Messages are leased and settled in runs, and counted in runs: those of one lease are
mostly of about the same age, and then one bucket is found for all of them. A grant keeps
the times of its messages for the ack. It has them while this process lives: an ack of a
lease from before a restart is not counted.

Rejected: looking the timestamp up in the log at the ack. It is a read of the disk for
every ack, for a number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.engine import state as events
from headrace.engine.arrivals import Arrivals
from headrace.engine.runs import Runs, count_of, offsets_of, pairs, runs_of
from headrace.record import Record

if TYPE_CHECKING:
    from headrace.engine.queue import QueueView
    from headrace.engine.settling import Held

# From what memory answers to what waits for somebody to come back to work.
BOUNDS_MS: Final = (
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000,
    300_000, 900_000, 3_600_000, 14_400_000, 86_400_000,
)  # fmt: skip
# What is recent reaches back for this long at least, and for twice as long at most.
RECENT_MS: Final = 300_000
# Messages of a group that were given back unused and are remembered; beyond it, the next
# lease of some counts as their first.
RETURNED_MAX: Final = 100_000
# The least and the most of no waits: whatever comes is less, and more.
_NO_RANGE: Final = (1 << 62, 0)


class Latency:
    """How many took at most so long; the last count is of all that took longer."""

    __slots__ = (
        "_before", "_earlier", "_least_ms", "_most_ms", "_range_before", "_turned_ms",
        "counts", "sum_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        # Empty until something is counted: most views of a large node are idle.
        self.counts: list[int] = []
        self.sum_ms = 0
        # The counts as they were at the last two turns.
        self._before: list[int] = []
        self._earlier: list[int] = []
        self._turned_ms = 0
        # The shortest and the longest wait since the last turn, and between the two.
        self._least_ms, self._most_ms = self._range_before = _NO_RANGE

    def add(self, since_ms: int, count: int, now_ms: int) -> None:
        """So many messages that waited since the same time."""
        waited_ms = max(0, now_ms - since_ms)
        self._counts(now_ms)[bisect_left(BOUNDS_MS, waited_ms)] += count
        self.sum_ms += waited_ms * count
        if waited_ms > self._most_ms:
            self._most_ms = waited_ms
        if waited_ms < self._least_ms:
            self._least_ms = waited_ms

    def add_each(
        self, since_ms: Sequence[int], earliest_ms: int, latest_ms: int, now_ms: int
    ) -> None:
        """One message for each of these times, which lie between two that are known."""
        bucket = bisect_left(BOUNDS_MS, now_ms - latest_ms)
        if bucket == bisect_left(BOUNDS_MS, now_ms - earliest_ms) and latest_ms <= now_ms:
            self._counts(now_ms)[bucket] += len(since_ms)
            self.sum_ms += now_ms * len(since_ms) - sum(since_ms)
            # Mostly it is known without a look at each that none is further out.
            if now_ms - earliest_ms > self._most_ms:
                self._most_ms = max(self._most_ms, now_ms - min(since_ms))
            if now_ms - latest_ms < self._least_ms:
                self._least_ms = min(self._least_ms, now_ms - max(since_ms))
            return
        for each_ms, count in Counter(since_ms).items():
            self.add(each_ms, count, now_ms)

    def recent(self, now_ms: int) -> list[int]:
        """The counts of the last RECENT_MS, or somewhat more."""
        return [now - then for now, then in zip(self._counts(now_ms), self._earlier, strict=True)]

    def recent_range(self, now_ms: int) -> tuple[int, int]:
        """The shortest and the longest wait among those that `recent` counts."""
        self._counts(now_ms)
        least_ms, most_ms = self._range_before
        return min(least_ms, self._least_ms), max(most_ms, self._most_ms)

    def _counts(self, now_ms: int) -> list[int]:
        """The counts to add to."""
        passed_ms = now_ms - self._turned_ms
        if not self.counts:
            self.counts = [0] * (len(BOUNDS_MS) + 1)
            self._before = self._earlier = list(self.counts)
            self._turned_ms = now_ms
        elif passed_ms > RECENT_MS:
            now = list(self.counts)
            is_long_ago = passed_ms > 2 * RECENT_MS
            self._earlier = now if is_long_ago else self._before
            self._before = now
            self._range_before = _NO_RANGE if is_long_ago else (self._least_ms, self._most_ms)
            self._least_ms, self._most_ms = _NO_RANGE
            self._turned_ms = now_ms
        elif passed_ms < 0:
            # The clock was set back.
            self._turned_ms = now_ms
        return self.counts


def quantile_ms(counts: Sequence[int], share: float, least_ms: int, most_ms: int) -> int | None:
    """An estimate: within its bucket it is taken to lie where its rank does, and never
    below the shortest or above the longest wait. None where nothing was counted."""
    total = sum(counts)
    if not total:
        return None
    rank = share * total
    below = 0
    for index, count in enumerate(counts):
        if count and below + count >= rank:
            low = max(least_ms, BOUNDS_MS[index - 1] if index else 0)
            high = min(most_ms, BOUNDS_MS[index]) if index < len(BOUNDS_MS) else most_ms
            return round(low + (high - low) * (rank - below) / count)
        below += count
    return most_ms


class Since:
    """Since when some messages wait: ascending offsets, and the time of each. A time is
    that of all messages up to the next offset."""

    __slots__ = ("_earliest_ms", "_is_each", "_latest_ms", "_starts", "_times", "delayed")

    def __init__(
        self,
        starts: Sequence[int],
        times: Sequence[int],
        delayed: Sequence[int] = (),
        *,
        is_each: bool = False,
    ) -> None:
        """`delayed` may name those that wait since they were due; `is_each` says that there
        is a time for each message, and for no other offset."""
        self.delayed = delayed
        self._is_each = is_each
        self._starts = starts
        self._times = times
        # Most leases are of one message, or of messages of one batch.
        is_one = len(times) == 1
        self._earliest_ms = times[0] if is_one else min(times)
        self._latest_ms = times[0] if is_one else max(times)

    def at(self, offset: int) -> int:
        return self._times[bisect_right(self._starts, offset) - 1]

    def count(self, latency: Latency, runs: Runs, now_ms: int) -> None:
        """Add runs of these messages to what was counted."""
        count = count_of(runs)
        if self._earliest_ms == self._latest_ms:
            latency.add(self._latest_ms, count, now_ms)
        elif self._is_each and count == len(self._times):
            # All of them.
            latency.add_each(self._times, self._earliest_ms, self._latest_ms, now_ms)
        else:
            for start, end in pairs(runs):
                self._count_run(latency, start, end, now_ms)

    def _count_run(self, latency: Latency, start: int, end: int, now_ms: int) -> None:
        starts, times = self._starts, self._times
        first = bisect_right(starts, start) - 1
        last = bisect_left(starts, end)
        if last - first == end - start:
            latency.add_each(times[first:last], self._earliest_ms, self._latest_ms, now_ms)
            return
        for number in range(first, last):
            stop = end if number + 1 == len(starts) else min(end, starts[number + 1])
            latency.add(times[number], stop - max(start, starts[number]), now_ms)


class SinceBuilder:
    """Times from ascending offsets on; of two for one offset the later call counts."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._times: list[int] = []
        self.delayed: list[int] = []

    def add(self, offset: int, time_ms: int) -> None:
        if self._starts and self._starts[-1] == offset:
            self._times[-1] = time_ms
        elif not self._times or self._times[-1] != time_ms:
            self._starts.append(offset)
            self._times.append(time_ms)

    def built(self) -> Since:
        return Since(self._starts or (0,), self._times or (0,), self.delayed)


def since_of(records: Sequence[Record], due_ms: Mapping[int, int], arrivals: Arrivals) -> Since:
    """Since when these wait, which ascend; `due_ms` has those that were delayed."""
    first, last = records[0].offset, records[-1].offset
    if len(records) == 1:
        time_ms = arrivals.believed(first, records[0].timestamp_ms)
        return Since((first,), (max(time_ms, due_ms.get(first, 0)) if due_ms else time_ms,))
    times = arrivals.all_believed(records)
    if due_ms:
        times = [
            max(time_ms, due_ms.get(record.offset, 0))
            for record, time_ms in zip(records, times, strict=True)
        ]
    if times.count(times[0]) == len(times):
        return Since((first,), (times[0],))
    if last - first + 1 == len(records):
        return Since(range(first, last + 1), times, is_each=True)
    return Since([record[0] for record in records], times, is_each=True)


def since_of_runs(view: QueueView, runs: Runs) -> Since | None:
    """Since when leased messages wait, where that is known of all; of an event that was
    clipped to nothing there are none."""
    found = {
        view.grants[number].since
        for start, end in pairs(runs)
        for number in view.window.grants_in(start, end)
    }
    if len(found) == 1:
        return found.pop()
    if not found or None in found:
        return None
    offsets: list[int] = []
    times: list[int] = []
    for offset in offsets_of(runs):
        since = view.grants[view.window.grant_at(offset)].since
        if since is not None:
            offsets.append(offset)
            times.append(since.at(offset))
    return Since(offsets, times)


def on_leased(view: QueueView, event: events.Granted, since: Since) -> None:
    """Messages went out; those for which it is the first time are counted."""
    grant = view.grants.get(event.grant)
    if grant is not None:
        grant.since = since
    runs = event.runs
    if event.attempts.count(1) != len(event.attempts):
        each = zip(pairs(runs), event.attempts, strict=True)
        runs = [offset for run, attempt in each if attempt == 1 for offset in run]
    if view.redrives or view.returned:
        # A message that was redriven in place, or given back unused, had its first lease.
        runs = runs_of(first_leased(view, offsets_of(runs)))
    if runs:
        since.count(view.to_lease, runs, event.at)


def first_leased(view: QueueView, offsets: Iterable[int]) -> Iterator[int]:
    """Those of messages at their first attempt that nobody was given before."""
    redriven, returned = view.redrives, view.returned
    return (offset for offset in offsets if offset not in redriven and offset not in returned)


def note_returned(view: QueueView, runs: Runs) -> None:
    """These leases, which do not count as attempts, are over. To be called before that."""
    if len(view.returned) > RETURNED_MAX:
        view.returned = {offset for offset in view.returned if offset >= view.window.start}
        if len(view.returned) > RETURNED_MAX // 2:
            view.returned.clear()
    attempts = view.window.attempts_of(runs)
    view.returned.update(
        offset for offset, count in zip(offsets_of(runs), attempts, strict=True) if count == 1
    )


def on_acked(view: QueueView, held: Iterable[Held], now_ms: int) -> None:
    """Messages are acked; to be called before their leases are over."""
    by_since: dict[Since, Runs] = {}
    for start, end, _, grant in held:
        if grant.since is not None:
            by_since.setdefault(grant.since, []).extend((start, end))
    for since, runs in by_since.items():
        since.count(view.to_ack, runs, now_ms)
