"""What the other members of a partition's in-sync set have of its two logs.

The leader's own part it knows: what is synced, or written where the topic does not wait
for the disk. What counts is what all of them have. A node alone has nobody to ask and asks
nobody, so its partitions have no such value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Confirmed:
    """Up to where every other member has said, to this leader and in its epoch, that it has
    the log and the state log. Both only grow; `Partition.on_synced` acts on it."""

    data_end: int = 0
    state_end: int = 0
