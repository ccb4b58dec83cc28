"""Leadership: whether this node leads a partition, since when, and how far it counts.

    opened --become_leader--> led --resign--> led elsewhere --become_leader--> led ...
       |                       |                    |
       '-----------------------'------ delete ------'--> deleted: there is no leader any more

A partition that another node leads is not one that is gone. What waits for either has failed
(`commit`): with a deleted one for good, and with one that is led elsewhere it may be tried
again there. What was written here and not confirmed may be in the other node's log or not.

A reign is never resumed: the next one has a later epoch, and a number that is higher than
that of every call which began before it. So a call can tell whether an offset that it waits
for is reached by what it wrote, or by what came in its place (`commit`). Alone, a node leads
all its partitions in their first reign, number 0.
"""

from __future__ import annotations

from typing import Final

from headrace.core.errors import FencedLeader
from headrace.engine.catalog import Topic
from headrace.engine.confirmed import Confirmed
from headrace.engine.soundness import Soundness
from headrace.engine.state_log import StateLog
from headrace.log import Log

# The reign of a partition that has no leader here: higher than the number of any reign.
NOT_LED: Final = 2**63 - 1


class Leadership(Soundness):
    """Of one partition. Attributes are to be read."""

    topic: Topic
    index: int
    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.reign = NOT_LED
        self.is_leader = False
        # Another node leads it: its logs here are copies, and are written by nobody else.
        self.is_led_elsewhere = False
        # Its topic is gone.
        self.is_deleted = False
        # None while this node is alone in the in-sync set.
        self.others: Confirmed | None = None
        self.state: StateLog | None = None

    def begin_reign(self, epoch: int, reign: int, others: Confirmed | None) -> bool:
        """Whether another node led before. FencedLeader when the epoch is over."""
        is_behind_another = self.is_led_elsewhere
        if epoch < self.epoch or (epoch == self.epoch and is_behind_another):
            raise FencedLeader(f"{self.topic.name}:{self.index} is in epoch {self.epoch} already")
        self.epoch, self.reign, self.others = epoch, reign, others
        self.is_leader, self.is_led_elsewhere = True, False
        return is_behind_another

    def resign(self) -> None:
        """Another node leads it from now on. See `Leading.resign` for what follows from that."""
        self.is_leader, self.is_led_elsewhere, self.reign = False, True, NOT_LED

    def delete(self) -> None:
        """Its topic is gone: nothing more comes, from any node."""
        self.is_leader, self.is_led_elsewhere, self.reign = False, False, NOT_LED
        self.is_deleted = True

    def check_leading(self) -> None:
        if not self.is_leader:
            raise self.not_led()
        self.check_sound()

    def check_here(self) -> None:
        """FencedLeader where another node leads. A handle that only reads leads nothing, and
        has all it needs."""
        if self.is_led_elsewhere:
            raise self.not_led()

    def check_reign(self, reign: int) -> None:
        """FencedLeader unless it is still this reign: what was seen in another may be gone."""
        if self.reign != reign:
            name = f"{self.topic.name}:{self.index}"
            raise FencedLeader(f"the lead of {name} has changed meanwhile; try again")

    def not_led(self) -> FencedLeader:
        name = f"{self.topic.name}:{self.index}"
        if self.is_led_elsewhere:
            return FencedLeader(f"another node leads {name}; try again")
        return FencedLeader(f"{name} has no leader here")

    # How far what it writes counts.

    @property
    def is_durable(self) -> bool:
        return self.topic.settings.durability == "synced"

    @property
    def is_awaited(self) -> bool:
        """Whether what is written counts later: when the disk has it, or others do."""
        return self.others is not None or self.topic.settings.durability == "synced"

    def safe_end(self) -> int:
        """Up to where every member of the in-sync set has the messages."""
        end = self.log.synced_end if self.is_durable else self.log.end_offset
        return end if self.others is None else min(end, self.others.data_end)

    @property
    def state_high_watermark(self) -> int:
        """Up to where state events count."""
        if self.state is None:
            return 0
        end = self.state.log.synced_end if self.is_durable else self.state.log.end_offset
        return end if self.others is None else min(end, self.others.state_end)
