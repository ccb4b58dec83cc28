"""What loops over a queue have handed out, as far as nobody has settled it.

    with handle.queue("orders") as queue:
        for message in queue:      in hand from here on
            work(message)          raises: the block ends, and what is in hand has failed
            message.ack()          not in hand any more

Without this a message whose handler raises would be given back at no cost when the block
ends, and come for the first time for ever. What is given at no cost is the rest: what was
leased ahead, and what `receive` and `lease` returned, since of a list nobody knows what
was being handled. A message that the program has let go of is in nobody's hand.
"""

from __future__ import annotations

import threading
import weakref

from headrace.client.keeping import Leases
from headrace.core.values import Receipt


class InHand:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: weakref.WeakSet[Leases] = weakref.WeakSet()

    def add(self, leases: Leases) -> None:
        """A loop hands these out one by one, and counts them as `leases.handed`."""
        with self._lock:
            self._leases.add(leases)

    def receipts(self) -> list[Receipt]:
        with self._lock:
            known = list(self._leases)
        return [each.receipt for leases in known for each in leases.in_hand()]
