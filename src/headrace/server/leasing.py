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

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.name_lists import distinct_topics
from headrace.core.values import Delivery, LeaseRequest
from headrace.engine.grant import NOTHING
from headrace.engine.leasing import check_lease
from headrace.server.aftermath import Aftermath
from headrace.server.bounded import lease_bounded
from headrace.server.loop_calls import Calls
from headrace.server.scanning import scan_ahead
from headrace.server.waiting import Sought, Stop


async def open_leasing(
    calls: Calls,
    aftermath: Aftermath,
    group: str,
    topics: Sequence[str],
    consumer: str,
    settings: Mapping[str, Any],
    visibility_ms: int | None,
    *,
    stays: bool = True,
    bytes_max: int = limits.REMOTE_ANSWER_BYTES_MAX,
    tie: int = NOTHING,
) -> Leasing:
    """The group is there. A consumer that `stays` is a member until it leaves, another
    one while it waits here or holds what it was given. `tie` says what ends its leases
    before their time (`engine.grant`)."""
    if not topics:
        raise InvalidArgument("name at least one topic to lease from")
    # What is wrong is said before a group is made for it.
    topics = distinct_topics(topics)
    check_lease(consumer, 1, visibility_ms)
    await scan_ahead(calls, topics)
    await calls.run_in_slices(
        Face.queue_opening, group, topics, consumer if stays else None, settings
    )
    return Leasing(calls, aftermath, group, topics, consumer, visibility_ms, bytes_max, tie)


class Leasing:
    """Leases for one consumer."""

    def __init__(
        self, calls: Calls, aftermath: Aftermath, group: str, topics: Sequence[str], consumer: str,
        visibility_ms: int | None, bytes_max: int, tie: int,
    ) -> None:  # fmt: skip
        self._calls = calls
        self._aftermath = aftermath
        self.group = group
        self._topics = topics
        self.consumer = consumer
        self._visibility_ms = visibility_ms
        self._bytes_max = bytes_max
        self._tie = tie

    async def find(self, count: int, wait_ms: int, stop: Stop | None = None) -> list[Delivery]:
        """The first messages that are ready within that time, in line with all others who
        wait for them; when `stop` is set, what is ready then. When our task is
        cancelled meanwhile, nothing is leased."""

        async def look(among: int) -> list[Delivery]:
            return await self._aftermath.keep(self._lease(count, among), self.give_back)

        service = self._calls.service
        sought = Sought(service, self._topics)
        groups = service.broker.groups
        with groups.serving(groups.named(self.group)).consumers.waiting(self.consumer):
            return await service.waiting.find(self.group, sought, look, wait_ms / 1000, stop)

    async def _lease(self, count: int, among: int) -> list[Delivery]:
        wanted = LeaseRequest(self.group, self._topics, self.consumer, count, self._visibility_ms)
        return await lease_bounded(
            self._calls, wanted, is_wanted=_always, among=among, bytes_max=self._bytes_max,
            tie=self._tie,
        )  # fmt: skip

    async def give_back(self, leased: list[Delivery]) -> None:
        if leased:
            await self._calls.run(Face.release, self.group, [each.receipt for each in leased])


def _always() -> bool:
    return True
