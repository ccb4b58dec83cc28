"""Standing: how some messages of a partition stand in every group, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from headrace.core.trace_values import GroupTrace, TraceState
from headrace.engine.broker import STATES, Broker
from headrace.engine.catalog import DEAD_LETTER_GROUP
from headrace.engine.cursor import Cursor
from headrace.engine.delayed import due_ms_of
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.runs import runs_of
from headrace.engine.window import ABSENT, ACKED, CANCELLED, DELAYED, LEASED, RETRYING
from headrace.record import Record


class Standing:
    def __init__(
        self,
        broker: Broker,
        partition: Partition,
        records: Mapping[int, Record],
        offsets: Sequence[int],
    ) -> None:
        self._groups: dict[int, list[tuple[int, GroupTrace]]] = {offset: [] for offset in offsets}
        self._transactions: dict[int, Literal["open", "aborted"]] = {}
        stable = partition.last_stable_offset
        committed = {record.offset for record in partition.read_committed(runs_of(records))}
        for offset in records:
            if offset >= stable:
                self._transactions[offset] = "open"
            elif offset not in committed:
                self._transactions[offset] = "aborted"
        for view in partition.views.values():
            seen = [offset for offset in offsets if 0 <= offset < view.window.end]
            states = view.window.states_at(seen)
            retries = _retries_of(view, seen, states)
            for offset, state in zip(seen, states, strict=True):
                found = _in_queue(view, offset, state, retries)
                if state == DELAYED and offset in records:
                    found = found._replace(due_ms=due_ms_of(partition, records[offset]))
                self._groups[offset].append((view.group_id, found))
        place = (partition.topic.id, partition.index)
        for name in sorted(broker.cursors.groups()):
            cursor = broker.cursors.find(name, place)
            if cursor is not None:
                for offset in offsets:
                    self._groups[offset].append((-1, _in_stream(name, cursor, offset)))

    def transaction_of(self, offset: int) -> Literal["open", "aborted"] | None:
        return self._transactions.get(offset)

    def of(self, offset: int, starts: Mapping[int, int]) -> tuple[GroupTrace, ...]:
        """By name. `starts` says where groups began to read."""
        found: list[GroupTrace] = []
        for number, each in self._groups[offset]:
            if offset < starts.get(number, 0):
                found.append(GroupTrace(each.group, each.kind, "skipped"))
            elif each.state != "skipped":
                found.append(each)
        return tuple(sorted(found, key=_group_of))


def _group_of(trace: GroupTrace) -> tuple[str, str]:
    return trace.group, trace.kind


def _retries_of(view: QueueView, offsets: Sequence[int], states: Sequence[int]) -> dict[int, int]:
    """When those that rest before a retry come back: found in one go for all."""
    resting = {offset for offset, state in zip(offsets, states, strict=True) if state == RETRYING}
    return {offset: due for due, offset in view.retries if offset in resting} if resting else {}


def _in_queue(view: QueueView, offset: int, state: int, retries: Mapping[int, int]) -> GroupTrace:
    window = view.window
    if state == ABSENT:
        # Because the group began behind it, or because there is nothing for it.
        return GroupTrace(view.name, "queue", "skipped")
    consumer = due_ms = None
    if state == LEASED:
        grant = view.grants[window.grant_at(offset)]
        consumer, due_ms = grant.owner, grant.until_ms
    elif state == RETRYING:
        due_ms = retries.get(offset)
    attempts = window.attempts_at(offset)
    named = state_in_queue(view, state)
    return GroupTrace(view.name, "queue", named, attempts, consumer, due_ms)


def state_in_queue(view: QueueView, state: int) -> TraceState:
    """What a state of the window is called in a trace. Nobody acks or cancels the dead
    letters themselves."""
    if view.name == DEAD_LETTER_GROUP and state == ACKED:
        return "redriven"
    if view.name == DEAD_LETTER_GROUP and state == CANCELLED:
        return "purged"
    return STATES.get(state, "skipped")


def _in_stream(name: str, cursor: Cursor, offset: int) -> GroupTrace:
    return GroupTrace(
        name,
        "stream",
        "read" if offset < cursor.offset else "unread",
        cursor=cursor.offset,
        at_ms=cursor.at_ms,
    )
