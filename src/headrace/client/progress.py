"""How far a stream came, partition by partition.

    handled      given      ahead          next
       |           |           |             |
    ---+-----------+-----------+-------------+-----> offsets
        being used    read, not yet given      not yet read

`given` is what a caller has seen and `handled` what it came back from; what is
read ahead belongs to neither, so leaving a loop early loses nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from headrace.client.backend import Place
from headrace.core.values import StreamRecord

Offsets = dict[Place, int]


class Progress:
    def __init__(self) -> None:
        self.next: Offsets = {}
        self.given: Offsets = {}
        self.handled: Offsets = {}
        self._committed: Offsets = {}
        self._ahead: deque[StreamRecord] = deque()
        # Partitions that went to another member with records that were given and
        # not committed: whoever reads them now reads those again.
        self._lost: set[Place] = set()

    @property
    def has_ahead(self) -> bool:
        return bool(self._ahead)

    def on_read(self, place: Place, records: list[StreamRecord], next_offset: int) -> None:
        self._ahead.extend(records)
        self.next[place] = next_offset

    def on_nothing_left(self) -> None:
        """All that was read was given, so positions may pass the offsets at the
        end that hold no record."""
        self.given.update(self.next)

    def take(self, count_max: int) -> list[StreamRecord]:
        ahead = self._ahead
        taken = [ahead.popleft() for _ in range(min(count_max, len(ahead)))]
        for record in taken:
            self.given[record.topic, record.partition] = record.offset + 1
        return taken

    def on_handled(self) -> None:
        self.handled.update(self.given)

    def place(self, offsets: Offsets) -> None:
        """Go on from there, whatever was read ahead."""
        self._forget_ahead(offsets)
        self.next.update(offsets)
        self.given.update(offsets)
        self.handled.update(offsets)

    def place_at_cursors(self, cursors: Offsets) -> None:
        """What is new begins at the group's cursor; what is gone is dropped. What
        somebody else has committed meanwhile was gone and has come back."""
        gone = [place for place in self.next if cursors.get(place) != self._committed.get(place)]
        self._lost.update(self.uncommitted({place: self.given[place] for place in gone}))
        self.drop(gone)
        fresh = {place: at for place, at in cursors.items() if place not in self.next}
        self.place(fresh)
        self._committed.update(fresh)

    def drop(self, places: list[Place]) -> None:
        self._forget_ahead(places)
        for place in places:
            for offsets in (self.next, self.given, self.handled, self._committed):
                offsets.pop(place, None)

    def rewind(self) -> None:
        """Give again what was given and not committed."""
        self.place({place: self._committed[place] for place in self.uncommitted(self.given)})

    def take_lost(self) -> set[Place]:
        """What was lost since the last time."""
        lost, self._lost = self._lost, set()
        return lost

    def uncommitted(self, positions: Offsets) -> Offsets:
        return {
            place: offset
            for place, offset in positions.items()
            if self._committed.get(place) != offset
        }

    def on_committed(self, positions: Offsets) -> None:
        self._committed.update(positions)

    def _forget_ahead(self, places: Iterable[Place]) -> None:
        gone = set(places)
        if gone and self._ahead:
            kept = [each for each in self._ahead if (each.topic, each.partition) not in gone]
            self._ahead = deque(kept)
