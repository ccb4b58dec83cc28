"""A sync in flight: what must reach the disk, and what is known once it has."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.ports import File
from headrace.log.checkpoint import Mark


@dataclass(frozen=True, slots=True, eq=False)
class SyncTicket:
    """Sync every one of `files`, in any threads and any order, and every one of
    `directories`; then give the ticket to `on_synced`. If any of them fails, the
    ticket is void and so is the log.

    Everything below `end` is in these files. Appends may go on meanwhile; they
    belong to the next ticket.
    """

    files: list[File]
    directories: list[str]
    end: int
    mark: Mark
    # Of the log's cuts, how many there had been: a ticket from before a cut
    # speaks of bytes that may be others by now.
    cuts: int
    # The latest epoch whose beginning is in the files.
    epoch: int
