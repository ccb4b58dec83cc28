"""One redrive under way: its pace, and the breaker that stops a flood.

    batch --> node --> the group's queue --> handler
      ^                                         |  fails again
      '-- pause for the rate                    v
                                           dead letters
      stop when, while the last batch was
      sent (20 messages at least), more than
      half as many came back  <-------------- look

A cause that is not repaired sends everything back at once. Without the breaker a
redrive of a million messages would cost a million failures before anybody looked.
"""

from __future__ import annotations

from headrace.client.backend import Backend
from headrace.client.waiting import pause
from headrace.core.errors import InvalidArgument
from headrace.core.limits import PAGE_ITEMS_MAX
from headrace.core.ports import steady_ms
from headrace.core.values import MessageId, RedriveResult
from headrace.core.wording import counted

BATCH_ITEMS = 500
# Under a rate, so many batches a second: smooth, and a look at what came back
# after each.
BATCHES_PER_SECOND = 10
BREAKER_WINDOW = 20


class Redrive:
    def __init__(
        self, backend: Backend, topic: str, *, rate: float | None, dry_run: bool, force: bool
    ) -> None:
        if rate is not None and not _is_rate(rate):
            raise InvalidArgument(f"rate must be above zero, in messages a second, not {rate!r}")
        self.result = RedriveResult(0, 0, 0, None)
        self.batch_items = BATCH_ITEMS
        if rate is not None:
            self.batch_items = max(1, min(BATCH_ITEMS, int(rate / BATCHES_PER_SECOND)))
        self._backend = backend
        self._topic = topic
        self._rate = rate
        self._dry_run = dry_run
        self._force = force
        self._started_at_ms = steady_ms(backend.clock)
        # Where each partition of the dead letters was looked at last.
        self._looked_to = ends_of_dead_letters(self._backend, self._topic)
        self._returned = 0
        # How many were sent and how many had come back, after each batch.
        self._history = [(0, 0)]

    def send(self, batch: list[MessageId], *, is_last: bool) -> None:
        """One batch, then the pause, then the look. Sets `result.stopped` when
        the rest, if there is one, should stay where it is."""
        answer = self._backend.redrive(self._topic, batch, dry_run=self._dry_run, force=self._force)
        self.result = self.result.plus(answer)
        if self._dry_run or answer.stopped is not None:
            return
        self._keep_pace()
        self._look(is_last)

    def _keep_pace(self) -> None:
        if self._rate is None:
            return
        due_ms = self._started_at_ms + round(1000 * self.result.redriven / self._rate)
        early_ms = due_ms - steady_ms(self._backend.clock)
        if early_ms > 0:
            pause(self._backend.clock, early_ms)

    def _look(self, is_last: bool) -> None:
        self._returned += self._count_returned()
        sent = self.result.redriven
        lately = breaker_opens(self._history, sent, self._returned)
        self._history.append((sent, self._returned))
        self.result = self.result._replace(returned=self._returned)
        if lately is not None and not is_last:
            self.result = self.result._replace(stopped=_why(lately, sent, self._returned))

    def _count_returned(self) -> int:
        """How many messages with a redrive behind them are new since the last
        look."""
        count = 0
        for partition, end in ends_of_dead_letters(self._backend, self._topic).items():
            looked_to = self._looked_to.get(partition, 0)
            if looked_to < end:
                count += self._count_between(partition, looked_to, end)
            self._looked_to[partition] = end
        return count

    def _count_between(self, partition: int, start: int, end: int) -> int:
        count = 0
        # The page begins behind `after`; before the first offset lies the end of
        # the partition before, or nothing.
        after = MessageId(f"{self._topic}.dlq", partition, start - 1) if start else None
        if after is None and partition:
            after = MessageId(f"{self._topic}.dlq", partition - 1, 2**62)
        while True:
            page = self._backend.dead_letters(self._topic, after=after, limit=PAGE_ITEMS_MAX)
            for each in page:
                if each.partition != partition or each.offset >= end:
                    return count
                count += each.redrives > 0
            if len(page) < PAGE_ITEMS_MAX:
                return count
            last = page[-1]
            after = MessageId(last.topic, last.partition, last.offset)


def _why(lately: tuple[int, int], sent: int, returned: int) -> str:
    """How to take fewer is said by who asked: it has another name in every interface."""
    sent_lately, returned_lately = lately
    in_all = f" ({returned:,} of {sent:,} in all)" if sent > sent_lately else ""
    return (
        f"while the last {counted(sent_lately, 'message')} went back, {returned_lately:,} came "
        f"back to the dead letters, more than half{in_all}; repair the cause first"
    )


def _is_rate(rate: object) -> bool:
    return isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0


def ends_of_dead_letters(backend: Backend, topic: str) -> dict[int, int]:
    """Where the dead letters of a topic end now, by partition; empty while it
    has none."""
    backend.topic(topic)
    name = f"{topic}.dlq"
    for info in backend.topics(internal=True):
        if info.name == name:
            return {each.partition: each.high_watermark for each in info.partitions}
    return {}


def most_came_back(result: RedriveResult) -> bool:
    """Whether a redrive that is over says that another one would be in vain."""
    return result.redriven >= BREAKER_WINDOW and 2 * result.returned > result.redriven


def breaker_opens(
    history: list[tuple[int, int]], sent: int, returned: int
) -> tuple[int, int] | None:
    """How many were sent lately and how many came back meanwhile, if those are more than
    half as many. Lately is since the last moment at which at least 20 fewer had been
    sent."""
    for sent_then, returned_then in reversed(history):
        if sent - sent_then >= BREAKER_WINDOW:
            lately = sent - sent_then, returned - returned_then
            return lately if 2 * lately[1] > lately[0] else None
    return None
