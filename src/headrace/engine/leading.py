"""Leading: this process takes every partition of a directory that it has opened, gives up
those that another node is to lead, and takes them back.

It writes a little: the epoch, the ends of leases that nobody can hold any more (`lease_end`),
what a crash left half done. A full disk has room for none of it, and a directory that does not
open can neither be read nor be acked empty. So what finds no room is owed, and nothing is
published before it is done; leases that could not be ended run out by themselves.

    resign     from here on nothing is written, and nothing more is confirmed. Calls that wait
               fail (`commit`), and what waits for messages looks again
    lead       the logs are what the nodes before have agreed on: all that is said about them
               is read again, as at open, and what they left half done goes on
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from headrace.core.errors import DiskFull
from headrace.core.system_errors import is_full
from headrace.engine.catalog import EpochBegan
from headrace.engine.confirmed import Confirmed
from headrace.engine.cursor import Cursors
from headrace.engine.fate import Fates
from headrace.engine.following import Follower
from headrace.engine.grant import Grant
from headrace.engine.groups import Groups
from headrace.engine.lease_end import end_leases, is_over_elsewhere
from headrace.engine.move import Moves
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.topics import Topics
from headrace.engine.transactions import Transactions


@contextlib.contextmanager
def unless_full() -> Iterator[None]:
    """What does not fit on the disk is left undone."""
    try:
        yield
    except (DiskFull, OSError) as error:
        if not is_full(error):
            raise


class Leading:
    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        moves: Moves,
        fates: Fates,
        transactions: Transactions,
        cursors: Cursors,
        follower: Follower,
        on_full: Callable[[], bool],
        is_over: Callable[[Grant], bool],
    ) -> None:
        """`is_over` says which leases of before a start end."""
        self._is_over = is_over
        self._topics = topics
        self._groups = groups
        self._moves = moves
        self._fates = fates
        self._transactions = transactions
        self._cursors = cursors
        self._follower = follower
        self._on_full = on_full
        # What is still to be done, in this order. Each may be done more than once.
        self.owed: deque[Callable[[], None]] = deque()
        # Told of each partition whose lead was given up or taken, for whoever waits there.
        self.on_changed: Callable[[Partition], None] = lambda partition: None

    def begin(self, now_ms: int) -> None:
        """Take the leadership of every partition, in a new epoch."""
        epoch = self._topics.catalog.epoch + 1
        self.owed.append(partial(self._write_epoch, epoch, now_ms))
        self.catch_up()
        for partition in list(self._topics):
            partition.become_leader(epoch, now_ms)
            partition.load(self._topics.catalog.groups_by_id, now_ms)
            if partition.state is not None and partition.state.first is not None:
                self.owed.append(partition.state.write_first)
        self.catch_up()
        exhausted: list[tuple[Partition, QueueView, list[int]]] = []
        for partition in list(self._topics):
            spent = end_leases(partition, self._is_over, now_ms)
            for group_id, offsets in spent.items():
                exhausted.append((partition, partition.views[group_id], offsets))
            self._groups.note_holders(partition, now_ms)
            self._moves.resume([partition])
        self.owed.append(partial(self._transactions.resume, now_ms))
        self.owed.append(partial(_take_back, self._cursors, now_ms))
        self.owed.append(partial(self._groups.open_missing_views, now_ms))
        self.catch_up()
        for partition, view, offsets in exhausted:
            self._give_up(partition, view, offsets, now_ms)

    def _give_up(
        self, partition: Partition, view: QueueView, offsets: list[int], now_ms: int
    ) -> None:
        # Else their leases run out, and they are given up then.
        with unless_full():
            self._fates.give_up(partition, view, offsets, "max-attempts", now_ms)

    def resign(self, partition: Partition) -> None:
        """Another node leads this partition from now on."""
        partition.resign()
        self._moves.on_resigned(partition)
        self._transactions.on_resigned(partition)
        self._follower.forget(partition)
        self.on_changed(partition)

    def lead(
        self, partition: Partition, epoch: int, now_ms: int, others: Confirmed | None = None
    ) -> set[Partition]:
        """Lead a partition that another node led, in a later epoch. Returns what is to be
        synced: a round for these takes up what the nodes before have left undone."""
        if partition.is_leader:
            # Elected again: nobody else has written meanwhile.
            partition.become_leader(epoch, now_ms, others, reign=partition.reign)
            return set()
        metadata = self._topics.metadata
        partition.become_leader(epoch, now_ms, others, reign=metadata.reign + 1)
        metadata.reign += 1
        partition.load(metadata.catalog.groups_by_id, now_ms)
        if partition.stopped is None:
            self._cursors.on_led_again(partition)
            self._transactions.on_led_again(partition)
            spent = end_leases(partition, is_over_elsewhere, now_ms)
            self._groups.note_holders(partition, now_ms)
            self._moves.resume([partition])
            for group_id, offsets in spent.items():
                self._give_up(partition, partition.views[group_id], offsets, now_ms)
            with unless_full():
                self._groups.open_missing_views_of(partition, now_ms)
        self.on_changed(partition)
        return {partition} | self._transactions.advance(now_ms)

    def catch_up(self) -> None:
        """Do what there is room for."""
        with unless_full():
            while self.owed:
                self.owed[0]()
                self.owed.popleft()

    def _write_epoch(self, epoch: int, now_ms: int) -> None:
        began = EpochBegan(epoch)
        try:
            self._topics.change([began], now_ms)
        except DiskFull:
            # A full directory must open, or nobody could ack and so make room.
            if not self._on_full():
                raise
            self._topics.change([began], now_ms)


def _take_back(cursors: Cursors, now_ms: int) -> None:
    taken_back = cursors.take_back(now_ms)
    if taken_back is not None:
        taken_back.log.sync_now()
        taken_back.on_synced(now_ms)
        cursors.on_synced()
