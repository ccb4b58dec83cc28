"""Leases of consumers whose connection broke: kept for a grace.

    broken ---- grace ----> they end, and each was a delivery
       |
       '--- it comes back ---> what it says it has in hand stays its own, with its receipts,
                               and it is told which of that is over; the rest, of which it
                               never heard, goes back at no attempt

It comes back with its consumer id. Whoever takes leave in words has no grace: see the doors.
The end of the node breaks every connection, and the grace begins when it is there again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.values import Receipt
from headrace.engine.broker import Broker
from headrace.server.loop_calls import Calls
from headrace.server.service import Service


class Orphans:
    """Those of one door, by group and consumer."""

    def __init__(self, calls: Calls, tie: int) -> None:
        """`tie` says which leases of before a restart were given by this door."""
        self._calls = calls
        self._service = calls.service
        self._graces: dict[tuple[str, str], asyncio.TimerHandle] = {}
        # How often each is on its way back, and who of them has a grace when it fails.
        self._returning: Counter[tuple[str, str]] = Counter()
        self._owed: set[tuple[str, str]] = set()
        for group, consumer in _held_by(calls.service.broker, tie):
            self.begin_grace(group, consumer)

    @contextlib.contextmanager
    def returning(self, group: str, consumer: str) -> Iterator[None]:
        """Somebody came back as this consumer, and its queue is being opened, which may
        take longer than a grace. So no grace goes on meanwhile: one that there is, or
        that begins, begins at the end of this."""
        name = (group, consumer)
        self._returning[name] += 1
        if self.end_grace(group, consumer):
            self._owed.add(name)
        try:
            yield
        finally:
            self._returning[name] -= 1
            if not self._returning[name]:
                del self._returning[name]
                if name in self._owed:
                    self.begin_grace(group, consumer)

    def is_waited_for(self, group: str, consumer: str) -> bool:
        """Whether its grace goes on."""
        return (group, consumer) in self._graces

    def begin_grace(self, group: str, consumer: str) -> None:
        """Its connection is gone, or it is taking over from one that it gave up."""
        self.end_grace(group, consumer)
        if (group, consumer) in self._returning:
            self._owed.add((group, consumer))
            return
        self._graces[group, consumer] = self._service.loop.call_later(
            self._service.lease_grace_ms / 1000, self._on_over, group, consumer
        )

    def end_grace(self, group: str, consumer: str) -> bool:
        """It is there again, or has taken leave; whether there was a grace."""
        name = (group, consumer)
        timer = self._graces.pop(name, None)
        if timer is not None:
            timer.cancel()
        elif name in self._owed:
            self._owed.remove(name)
        else:
            return False
        return True

    async def come_back(self, group: str, consumer: str, in_hand: Sequence[Receipt]) -> None:
        """It is there again, and has these."""
        if not self.end_grace(group, consumer):
            return
        held = await self._calls.run(Face.held, group, consumer)
        # An extension is another lease with the same nonce.
        known = {(each.topic_id, each.partition, each.offset, each.nonce) for each in in_hand}
        unheard = [
            each
            for each in held.values()
            if (each.topic_id, each.partition, each.offset, each.nonce) not in known
        ]
        if unheard:
            await self._calls.run(Face.release, group, unheard)

    async def lost(self, group: str, in_hand: Sequence[Receipt]) -> list[str]:
        """Those whose leases are over: the client would hear of it when it acks."""
        if not in_hand:
            return []
        outcomes = await self._calls.run(Face.check_receipts, group, in_hand)
        checked = zip(in_hand, outcomes, strict=True)
        return [receipt.encode() for receipt, error in checked if error is not None]

    def _on_over(self, group: str, consumer: str) -> None:
        del self._graces[group, consumer]
        if not self._service.closing.done():
            # A group that is gone, or a disk that is, leaves nothing to give back.
            with contextlib.suppress(HeadraceError, OSError):
                end_leases(self._service, group, consumer)


def _held_by(broker: Broker, tie: int) -> set[tuple[str, str]]:
    """Groups and consumers with such leases."""
    return {
        (view.name, grant.owner)
        for partition in broker.topics
        for view in partition.views.values()
        for grant in view.grants.values()
        if grant.tie == tie
    }


def receipts_in_hand(tokens: Sequence[str]) -> list[Receipt]:
    """InvalidReceipt, InvalidArgument: what a client says that it has cannot be."""
    if len(tokens) > limits.LEASE_MESSAGES_MAX:
        raise InvalidArgument(f"at most {limits.LEASE_MESSAGES_MAX} receipts are in hand at once")
    return [Receipt.parse(token) for token in tokens]


def end_leases(service: Service, name: str, consumer: str) -> None:
    """It is gone without a word, perhaps because of what it was given: the deliveries
    count."""
    group = service.broker.topics.catalog.groups.get(name)
    if group is None:
        return
    commit = service.commit()
    freed = service.broker.sharing.end_leases(group, consumer, service.clock.now_ms(), commit)
    service.finish_later(commit)
    service.wake_partitions(freed)
