"""Opening: a partition's log, with its producers and the ids that it must not take twice.

A log that cannot be read at this moment does not keep its directory from opening:

    read             the partition as it was
    anything else    the partition is stopped: nobody reads, publishes or leases here, and
                     its files stay as they are until the missing one is back

The node's own records of positions and of transactions are needed whole: a stream without
its position would begin anew, and nobody would have been told. They raise.

Rejected: going on with what is left. New messages would take offsets that acks and
positions already speak of.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.core.errors import CorruptLog
from headrace.core.ports import Disk
from headrace.core.system_errors import is_refused
from headrace.engine.catalog import CURSOR_TOPIC, TRANSACTION_TOPIC, Topic
from headrace.engine.dedup import DedupWindow
from headrace.engine.dedup_replay import load_window
from headrace.engine.producer import ProducerState
from headrace.engine.producer_note import ProducerNote
from headrace.engine.soundness import damage_text, is_damage
from headrace.log import Log, LogSettings, UnreadableLog

# What the node itself goes by.
NEEDED_WHOLE = frozenset((CURSOR_TOPIC, TRANSACTION_TOPIC))


class Opened(NamedTuple):
    log: Log
    note: ProducerNote
    producers: ProducerState
    dedup: DedupWindow | None
    # Why nothing of it can be read.
    damage: CorruptLog | None


def open_messages(
    disk: Disk, topic: Topic, index: int, path: str, now_ms: int, *, read_only: bool
) -> Opened:
    """CorruptLog only for topics that the node itself goes by."""
    try:
        return _open(disk, topic, path, now_ms, read_only=read_only)
    except Exception as error:
        if not is_damage(error):
            raise
        text = damage_text(error)
        if topic.name in NEEDED_WHOLE:
            if is_refused(error):
                raise
            raise CorruptLog(
                f"{topic.name} cannot be read, without which nothing can be done here: {text}. "
                "Nothing was changed; the file is damaged or missing, so put it back from a copy"
            ) from error
        advice = "put the file back from a copy; or delete the topic"
        if is_refused(error):
            advice = "give its files to the user that it runs as (chown -R)"
        damage = CorruptLog(
            f"{topic.name}:{index} is stopped, because its messages cannot be read ({text}); its "
            "files are left as they are, and other partitions serve. Stop the process that has "
            f"the directory open and {advice}"
        )
        damage.__cause__ = error
        log = UnreadableLog(disk, path, LogSettings.of(topic.settings), damage)
        return Opened(log, ProducerNote(disk, log), ProducerState(), None, damage)


def _open(disk: Disk, topic: Topic, path: str, now_ms: int, *, read_only: bool) -> Opened:
    log = Log.open(disk, path, LogSettings.of(topic.settings), now_ms, read_only=read_only)
    try:
        if not read_only:
            # What a crash left behind the last sync may be in the system's memory only.
            log.sync_now()
        note = ProducerNote(disk, log)
        producers = note.load()
        return Opened(log, note, producers, load_window(log, topic.settings, now_ms), None)
    except BaseException:
        log.close()
        raise
