"""One partition as one producer writes to it: in order, and each parcel once.

    open     grows with every message
    closed   full, or old enough; in order
    away     sent and not answered: at most five, which is how many a node recognises

A record is numbered when its parcel is sent first, and keeps its number whenever the
parcel is sent again: what a node has already is known by the number. The stamp of a
parcel is (producer id, epoch, number of its first record).

    stored              over
    connection broke    back into the line, in order, with its number
    number out of       of a parcel behind one that came back: back into the line, too.
    order               Of the first one: something before it never arrived, so nothing
                        of this was stored. A new epoch begins, numbered from 0
    refused otherwise   over, with the error; those behind it are out of order then

After anything but an answer, one parcel goes alone until it is stored. The first ever
goes alone as well: a node that does not know a producer takes any number for its first.

Rejected: a new epoch whenever a parcel failed for good. Those behind it may have been
stored while the connection broke, and under a new number they would be stored twice.
"""

from __future__ import annotations

from collections import deque

from headrace.client.parcel import Parcel
from headrace.core.errors import Disconnected, HeadraceError, OutOfOrderSequence, Unreachable

AWAY_MAX = 5
EPOCH_MAX = 2**15 - 1
_SEQUENCE_MASK = 2**31 - 1


class PartitionWriter:
    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: Parcel | None = None
        self.closed: deque[Parcel] = deque()
        # None until there is one; without a number nothing is stored once only.
        self.producer_id: int | None = None
        self._epoch = 0
        self._next_sequence = 0
        self._last_number = 0
        self._away: list[Parcel] = []
        self._returned: list[Parcel] = []
        self._is_proven = False

    def begin(self, parcel: Parcel) -> None:
        """A new parcel grows from now on."""
        self._last_number += 1
        parcel.number = self._last_number
        self.open = parcel

    def close_open(self) -> None:
        """What is open gets no more messages, and waits for its turn."""
        if self.open is not None:
            self.closed.append(self.open)
            self.open = None

    # Sending.

    @property
    def may_send(self) -> bool:
        """Whether the next parcel may go, should there be one."""
        if not self._away:
            return True
        return self._is_proven and not self._returned and len(self._away) < AWAY_MAX

    def take(self) -> Parcel:
        """The next parcel, numbered; it is away from now on."""
        parcel = self.closed.popleft()
        self._away.append(parcel)
        self._number(parcel)
        return parcel

    def identify(self, producer_id: int, parcel: Parcel) -> None:
        """There was no producer id when the parcel was taken; this is it."""
        self.producer_id = producer_id
        self._number(parcel)

    def _number(self, parcel: Parcel) -> None:
        if self.producer_id is None:
            return
        reign = (self.producer_id, self._epoch)
        if parcel.stamp is None or parcel.stamp[:2] != reign:
            parcel.stamp = (*reign, self._next_sequence)
            self._next_sequence = (self._next_sequence + parcel.count) & _SEQUENCE_MASK

    # What became of it.

    def on_stored(self, parcel: Parcel) -> None:
        self._away.remove(parcel)
        self._is_proven = not self._returned
        self._bring_back()

    def on_failed(self, parcel: Parcel, error: HeadraceError) -> bool:
        """Whether it is over; otherwise it waits to be sent again."""
        self._away.remove(parcel)
        self._is_proven = False
        is_over = not self._goes_again(parcel, error)
        if not is_over:
            self._returned.append(parcel)
        self._bring_back()
        return is_over

    def expire(self, now: float) -> list[Parcel]:
        """Parcels that wait here and whose time is over."""
        expired = []
        while self.closed and self.closed[0].deadline <= now:
            expired.append(self.closed.popleft())
        return expired

    def _goes_again(self, parcel: Parcel, error: HeadraceError) -> bool:
        if isinstance(error, Unreachable):
            return True
        if isinstance(error, Disconnected):
            return parcel.is_repeatable
        if not isinstance(error, OutOfOrderSequence) or parcel.stamp is None:
            return False
        before = [*self._returned, *self._away]
        if not any(each.number < parcel.number for each in before):
            self._begin_epoch(parcel.stamp)
        return True

    def _begin_epoch(self, refused: tuple[int, int, int]) -> None:
        if refused[:2] != (self.producer_id, self._epoch):
            # One that was sent in an epoch that is over already.
            return
        self._next_sequence = 0
        self._epoch += 1
        if self._epoch > EPOCH_MAX:
            # There is no higher one: another producer goes on.
            self.producer_id = None
            self._epoch = 0

    def _bring_back(self) -> None:
        """Back into the line, once nothing is away that might still be stored."""
        if self._returned and not self._away:
            self._returned.sort(key=lambda parcel: parcel.number)
            self.closed.extendleft(reversed(self._returned))
            self._returned = []
