"""Loading: what queue groups did with a partition, brought back from its state log.

Whatever is wrong with that log, the partition opens: its messages are published and
streamed, and every other partition serves. Its queues are stopped, and say so:

    read whole       queues as they were
    anything else    no queue group leases here, nothing is removed by retention, and the
                     files stay as they are until `headrace repair`

Rejected: going on from the last good snapshot by itself. Whatever was acked since would be
delivered again as if it were new, and nobody would have been told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.core.errors import CorruptLog
from headrace.core.system_errors import is_refused
from headrace.engine import state as events
from headrace.engine.catalog import Group
from headrace.engine.replay import Replay
from headrace.engine.soundness import damage_text, is_damage

if TYPE_CHECKING:
    from headrace.engine.partition import Partition

STATE_FOLDER = "state"
# Folders beside it, of a repair: what it makes, and what it puts aside.
REPAIRED_FOLDER = "state.repaired"
DAMAGED_PREFIX = "state.damaged-"


def load_queues(partition: Partition, groups: Mapping[int, Group], now_ms: int) -> None:
    """Never fails because of what is in the state log: `partition.queues_stopped` says
    what is wrong with it."""
    if partition.stopped is not None:
        # Its queues are stopped with it; what they did is not looked at.
        return
    try:
        _load(partition, groups, now_ms)
    except Exception as error:
        if not is_damage(error):
            raise
        _stop(partition, error)


def _load(partition: Partition, groups: Mapping[int, Group], now_ms: int) -> None:
    if not partition.disk.list(f"{partition.path}/{STATE_FOLDER}"):
        if is_cut_short(partition):
            raise CorruptLog("a repair of it was cut short")
        return
    state = partition.open_state(now_ms)
    replay = new_replay(partition, groups, now_ms)
    for event in state.replay():
        replay.apply(event)
    partition.adopt_views(replay.finish())
    if partition.read_only:
        return
    state.cut_torn_snapshot()
    if replay.is_beyond:
        # The log lost its unsynced end, and what takes its place is not what some
        # events were about. Nothing may be appended before that is written down for
        # good.
        state.append_first(events.Cut(partition.log.end_offset), partition.epoch, now_ms)
    state.log.sync_now()


def new_replay(partition: Partition, groups: Mapping[int, Group], now_ms: int) -> Replay:
    return Replay(
        groups,
        partition.topic.settings.ordering,
        partition.open_scanner(),
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.end_offset,
        now_ms,
    )


def is_cut_short(partition: Partition) -> bool:
    """Whether a repair put the state log aside and did not come to its end."""
    names = partition.disk.list(partition.path)
    return any(name == REPAIRED_FOLDER or name.startswith(DAMAGED_PREFIX) for name in names)


def _stop(partition: Partition, error: Exception) -> None:
    if partition.state is not None:
        partition.state.log.close()
        partition.state = None
    partition.views = {}
    advice = "see what can be saved: headrace repair"
    if is_refused(error):
        advice = "give its files to the user that it runs as (chown -R)"
    stopped = CorruptLog(
        f"the queues of {partition.topic.name}:{partition.index} are stopped, because what they "
        f"did cannot be read ({damage_text(error)}); its messages are kept, and can be published "
        f"and streamed. Stop the process that has the directory open, then {advice}"
    )
    stopped.__cause__ = error
    partition.stop_queues(stopped)
