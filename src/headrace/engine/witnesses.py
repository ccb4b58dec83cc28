"""Dead letters as witnesses: a message whose letter waits was given up.

    letter, not yet redriven or purged --origin--> topic id / partition / group / offset

A repair asks them about a partition whose state log is damaged: where the end of a move is
lost, the message would be ready again, and its letter beside it. A letter that was redriven
says nothing, since its message is alive again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from headrace.core.errors import CorruptLog
from headrace.engine import dead_letter
from headrace.engine.partition import Partition
from headrace.engine.revival import Letter, is_of
from headrace.engine.runs import runs_of
from headrace.engine.scanner import NORMAL
from headrace.engine.window import DEAD, EXPIRED, READY

# How many letters are read at once.
AT_ONCE = 1_000

# How a message ended, by the number of its group and its offset.
Ends = dict[tuple[int, int], int]


def ends_by_letters(partition: Partition, letters: Iterable[Partition], keeper: int) -> Ends:
    """Of messages of this partition. `keeper` is the number of the group that keeps the
    letters; where what that did is damaged too, nothing is known."""
    ends: Ends = {}
    for each in letters:
        view = each.views.get(keeper)
        start = 0 if view is None else view.window.start
        while view is not None and (runs := view.window.find(NORMAL << 4 | READY, start, AT_ONCE)):
            start = runs[-1]
            # Rot stops that partition and says why; it is no reason to repair nothing.
            with contextlib.suppress(CorruptLog):
                found = [
                    (record, dead_letter.read_letter(each.topic.name, each.index, record))
                    for record in each.read(runs)
                ]
                ends.update(_ends_of(partition, found))
    return ends


def _ends_of(partition: Partition, letters: Iterable[Letter]) -> Ends:
    origins = []
    for record, letter in letters:
        origin = dead_letter.read_origin(record)
        if origin is not None and origin[:2] == (partition.topic.id, partition.index):
            origins.append((origin, letter))
    start, end = partition.log.start_offset, partition.high_watermark
    wanted = sorted({origin.offset for origin, _ in origins if start <= origin.offset < end})
    records = {record.offset: record for record in partition.read(runs_of(wanted))}
    return {
        (origin.group_id, origin.offset): EXPIRED if letter.reason == "expired" else DEAD
        for origin, letter in origins
        if origin.offset in records and is_of(letter, records[origin.offset])
    }
