"""Revival: a redriven message that is made ready again where it is.

    letter  --origin-->  topic id / partition / group / offset
                            | the group's view is there, and calls it dead-lettered
                            | the record is there, and is the letter's
                            | its TTL is not over
                            v
                         Revived in the group's state log: ready, with all attempts

Nothing is published, so nobody but that group sees anything of it. Where one of these does
not hold, a redrive publishes a copy: after retention, DeleteRecords or compaction took the
record, when it had expired or retention was about to take it, in a group that was deleted
and made again, and for a letter that was written by hand.

The lane comes from the record, since a state that is done has none; how often it was
redriven comes from the letter, and is kept in the view until the message is acked.

Rejected: a mark in the record, or a second record. The log never changes, and whoever
streams it would see the message twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.core import limits
from headrace.core.values import DeadLetter
from headrace.engine import dead_letter
from headrace.engine import state as events
from headrace.engine.lane import LANE_COUNT
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.records import Allowance, bytes_of
from headrace.engine.runs import Runs, runs_of
from headrace.engine.scan import key_hash
from headrace.engine.window import DEAD
from headrace.record import Record, read_attributes

# Of a message that has more of them than its letter: those of its story take their place.
_HEADER_BYTES = limits.HEADER_BYTES_READ_MAX
# A letter as it is stored, and what it says.
Letter = tuple[Record, DeadLetter]
# By the view, the messages that one call has chosen before.
Taken = dict[QueueView, set[int]]


class Original(NamedTuple):
    """The message of a dead letter, which is still in its place."""

    view: QueueView
    record: Record
    letter: DeadLetter

    @property
    def is_dead(self) -> bool:
        return self.view.window.state_at(self.record.offset) == DEAD

    @property
    def was_revived(self) -> bool:
        """Whether a redrive of this very letter, which was cut short, came so far."""
        times = self.view.redrives.get(self.record.offset, 0)
        return not self.is_dead or times > self.letter.redrives


def find_originals(partition: Partition, letters: Sequence[Letter]) -> dict[int, Original]:
    """By the offset of their letters, the messages that are still in this partition."""
    allowance = Allowance(sum(bytes_of(record) + _HEADER_BYTES for record, _ in letters))
    start = partition.log.start_offset
    found: dict[int, tuple[QueueView, int, DeadLetter]] = {}
    for record, letter in letters:
        origin = dead_letter.read_origin(record)
        if origin is None or origin[:2] != (partition.topic.id, partition.index):
            continue
        view = partition.views.get(origin.group_id)
        if (
            view is not None
            and view.name == letter.group
            and start <= origin.offset < view.window.end
        ):
            found[record.offset] = (view, origin.offset, letter)
    if not found:
        return {}
    runs = runs_of(sorted({offset for _, offset, _ in found.values()}))
    # Small letters that somebody wrote may name large messages, which are not theirs.
    read, _ = partition.records.read_some(
        runs, partition.high_watermark, allowance, is_scattered=True
    )
    records = {record.offset: record for record in read}
    return {
        place: Original(view, records[offset], letter)
        for place, (view, offset, letter) in found.items()
        if offset in records and is_of(letter, records[offset])
    }


def is_of(letter: DeadLetter, record: Record) -> bool:
    """Another record may have the place of one that a loss of power took."""
    mine = (letter.key, letter.value, letter.created_at_ms)
    return mine == (record.key, record.value, record.timestamp_ms)


def choose_revivable(
    partition: Partition, originals: dict[int, Original], now_ms: int, taken: Taken | None = None
) -> dict[int, Original]:
    """Those that can be made ready again now. Of several letters of one message it is
    the first; `taken` has what the same call chose before."""
    if not originals:
        return {}
    scanner = partition.know_attributes()
    chosen: dict[int, Original] = {}
    taken = {} if taken is None else taken
    for place, original in originals.items():
        view, record, _ = original
        mine = taken.setdefault(view, set())
        expires_at_ms = scanner.expires_at_ms(record)
        if (
            original.is_dead
            and record.offset not in mine
            and (expires_at_ms is None or expires_at_ms > now_ms)
            and _count_revived(view, mine) < limits.REVIVED_MAX
        ):
            mine.add(record.offset)
            chosen[place] = original
    return chosen


def _count_revived(view: QueueView, chosen: set[int]) -> int:
    most = len(view.redrives) + len(chosen)
    # Some of those that were chosen may be revived by now.
    return most if most < limits.REVIVED_MAX else len(view.redrives.keys() | chosen)


def revive(partition: Partition, originals: Sequence[Original], who: str, now_ms: int) -> int:
    """Write it down, and have it take effect at once: whoever calls has written down for
    good that it will do this. Returns the end of the state log."""
    by_group: dict[int, list[Original]] = {}
    for each in sorted(originals, key=_offset_of):
        by_group.setdefault(each.view.group_id, []).append(each)
    changes = [(mine[0].view, _event_of(mine, who, now_ms)) for mine in by_group.values()]
    end = partition.write_all(changes, now_ms, wait=False)
    partition.open_state(now_ms).turned_at = end - 1
    partition.know_attributes().note_revived(each.record for each in originals)
    return end


def _event_of(originals: Sequence[Original], who: str, now_ms: int) -> events.Revived:
    view = originals[0].view
    runs: Runs = []
    marks: list[tuple[int, int, int]] = []
    for _, record, letter in originals:
        lane = read_attributes(record.headers, record.timestamp_ms).lane
        key = key_hash(record.key) if view.order is not None else 0
        mark = (min(lane, LANE_COUNT - 1), letter.redrives + 1, key)
        if runs and runs[-1] == record.offset and marks[-1] == mark:
            runs[-1] += 1
        else:
            runs += (record.offset, record.offset + 1)
            marks.append(mark)
    return events.Revived(view.group_id, who, now_ms, runs, marks)


def _offset_of(original: Original) -> int:
    return original.record.offset
