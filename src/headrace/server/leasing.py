"""Leases that do not get lost on the way to whoever asked for them.

    lease --> granted --> answer
      |          |
      '----------'--> the client is gone: given back at once, at no attempt

Every door whose clients wait leases through here. An answer is cut by its size, since
a count says little about it; whoever wanted more asks again.

Rejected: leaving what nobody hears of to the end of its lease. Thirty seconds in which
a message belongs to nobody are thirty seconds too many for every poll that is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.values import Delivery
from headrace.engine.leasing import check_lease
from headrace.server.aftermath import Aftermath
from headrace.server.bounded import lease_bounded
from headrace.server.loop_calls import Calls, Watch


async def open_leasing(
    calls: Calls,
    aftermath: Aftermath,
    group: str,
    topics: Sequence[str],
    consumer: str,
    settings: Mapping[str, Any],
    visibility_ms: int | None,
    *,
    bytes_max: int = limits.REMOTE_ANSWER_BYTES_MAX,
) -> Leasing:
    """The group is there, and knows its consumer."""
    if not topics:
        raise InvalidArgument("name at least one topic to lease from")
    # What is wrong is said before a group is made for it.
    check_lease(consumer, 1, visibility_ms)
    await calls.run_in_slices(Face.queue_opening, group, topics, consumer, settings)
    return Leasing(calls, aftermath, group, topics, consumer, visibility_ms, bytes_max)


class Leasing:
    """Leases for one consumer."""

    def __init__(
        self, calls: Calls, aftermath: Aftermath, group: str, topics: Sequence[str], consumer: str,
        visibility_ms: int | None, bytes_max: int,
    ) -> None:  # fmt: skip
        self._calls = calls
        self._aftermath = aftermath
        self.group = group
        self._topics = topics
        self.consumer = consumer
        self._visibility_ms = visibility_ms
        self._bytes_max = bytes_max

    async def lease(self, count: int) -> list[Delivery]:
        """What is ready now. When our task is cancelled meanwhile, nothing is."""
        return await self._aftermath.keep(
            lease_bounded(
                self._calls, self.group, self._topics, self.consumer, count, self._visibility_ms,
                is_wanted=_always, bytes_max=self._bytes_max,
            ),
            self.give_back,
        )  # fmt: skip

    async def wait(self, count: int, wait_ms: int) -> list[Delivery]:
        return await self._calls.wait_for_some(
            lambda: self.lease(count), self.group, self._topics, wait_ms
        )

    def watch(self) -> Watch:
        return Watch(self._calls.service, self._topics)

    async def wait_watching(
        self, watch: Watch, count: int, wait_ms: int, is_over: Callable[[], bool]
    ) -> list[Delivery]:
        """As `wait`, but also until it is over: then the watch is roused."""
        return await self._calls.wait_watching(
            watch, lambda: self.lease(count), self.group, self._topics, wait_ms, is_over
        )

    async def give_back(self, leased: list[Delivery]) -> None:
        if leased:
            await self._calls.run(Face.release, self.group, [each.receipt for each in leased])


def _always() -> bool:
    return True
