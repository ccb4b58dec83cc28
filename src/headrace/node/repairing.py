"""Repairing a directory that nobody has open: queues whose state log is damaged.

The directory is opened read-only, so that nothing changes but what is repaired; the lock
is taken all the same, by which no process can begin to write meanwhile.
"""

from __future__ import annotations

import contextlib

from headrace.core.ports import Clock, Disk, Entropy
from headrace.engine.broker import Broker
from headrace.engine.salvage import Salvage, Saved
from headrace.platform.directory import check_format, claim


def repair(disk: Disk, entropy: Entropy, clock: Clock, *, dry_run: bool) -> list[Saved]:
    """Every partition whose queues are stopped, and what can be saved of them; unless
    `dry_run`, it is. InUse when somebody has the directory open for writing."""
    with contextlib.ExitStack() as stack:
        check_format(disk)
        if not dry_run:
            stack.callback(claim(disk, entropy).release)
        now_ms = clock.now_ms()
        broker = Broker(disk, entropy, now_ms, read_only=True)
        stack.callback(broker.close)
        catalog = broker.topics.catalog
        saved = []
        for partition in broker.topics:
            if partition.queues_stopped is not None and partition.stopped is None:
                ends = broker.ends_by_letters(partition)
                found = Salvage(partition, catalog.groups_by_id, ends, now_ms)
                saved.append(found.saved if dry_run else found.write(catalog.epoch))
        return saved
