"""Duties: what time alone asks of a node, whoever reads from it and by which door.

    transactions         that were open for longer than they may be are aborted
    transactional ids    that nobody has used for long are forgotten
    positions            of groups that nobody reads as any more are forgotten

Whoever has the broker calls `tick` now and then, and at `next_deadline_ms`: a node by a
timer, an embedded handle when somebody asks it something. What is written goes into
the commit, so that it reaches the disk also where nobody else writes, and a call does
a bounded amount: the rest comes with the next one.

Rejected: leaving it to the door by whose protocol such things come. A directory is
served by other doors on other days, and what was left open there holds back readers
here.
"""

from __future__ import annotations

from collections.abc import Set

from headrace.engine.commit import Commit
from headrace.engine.consumers import Readers
from headrace.engine.cursor import Cursors
from headrace.engine.cursor_expiry import CursorExpiry
from headrace.engine.transactions import Transactions

# Unless the node is told otherwise.
OFFSETS_RETENTION_MS = 7 * 24 * 60 * 60 * 1000


class Duties:
    def __init__(self, cursors: Cursors, transactions: Transactions, readers: Readers) -> None:
        self._readers = readers
        self._transactions = transactions
        self._expiry = CursorExpiry(cursors, OFFSETS_RETENTION_MS)

    def keep(self, *, offsets_ms: int, transactional_ids_ms: int) -> None:
        """How long positions and transactional ids that nobody uses are kept."""
        self._expiry.retention_ms = offsets_ms
        self._transactions.unused_ms = transactional_ids_ms

    def on_clock_set(self, by_ms: int) -> None:
        self._expiry.on_clock_set(by_ms)

    def next_deadline_ms(self) -> int | None:
        """When the first open transaction has to end."""
        return self._transactions.next_deadline_ms()

    def end_late(self, now_ms: int, commit: Commit) -> list[str]:
        """End what has been open for too long; whose it was. Ends that the disk did
        not take go on as well."""
        table = self._transactions
        try:
            return table.tick(now_ms)
        finally:
            # Also when there was no room for some: the others go on.
            if any(ending.is_blocked for ending in table.pending()):
                commit.data += [(each, each.log.end_offset) for each in table.advance(now_ms)]
            for ending in table.pending():
                commit.data += table.depends(ending.name)
                commit.endings.append(ending)

    def forget(self, now_ms: int, commit: Commit, active: Set[str] = frozenset()) -> None:
        """Forget what nobody has used for long. `active` are stream groups that have
        members which only a door knows of."""
        self._readers.forget(now_ms)
        written = self._expiry.tick(now_ms, active)
        if written is not None:
            commit.data.append(written)
        written = self._transactions.forget_unused(now_ms)
        if written is not None:
            commit.data.append(written)
