"""What needs somebody's attention: the one rule for the dashboard, `headrace top` and alerts.

    Overview, Machine --- judge ---> findings, the gravest first

    critical    something is lost, or has stopped
    warning     something will, or somebody waits

A condition has a code, a level and the alert of deploy/prometheus/alerts.yml that says the
same to whoever is not looking. The figures are here and nowhere else: a test compares the
alerts with them. An alert waits some minutes before it wakes anybody; who looks is told at
once.

Rejected: a lag that grows. It needs a history, which an API that is asked once and a
`top --once` do not have, and work that comes in bursts grows and shrinks all the time. How
long the next message has waited says it without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from headrace.core.overview_values import GroupTotals, Overview
from headrace.core.wording import counted, shown_bytes, shown_duration

# Free space of less than so many times the floor, at which publishing stops.
FLOOR_TIMES = 8
# A transaction that is open for so long keeps readers waiting, whatever its time-out.
STUCK_MS = 60_000
# The next message of a group has waited for so long although somebody reads.
LAGGING_MS = 300_000
# Above these every client feels it: 99 of 100 times round the loop, and syncs.
LOOP_LAG_MS = 250
SYNC_MS = 250
FILES_SHARE = 0.9

Level = Literal["critical", "warning"]
Kind = Literal["node", "topic", "letters", "group", "transaction"]


class Condition(NamedTuple):
    level: Level
    # The rule of alerts.yml.
    alert: str


CONDITIONS = {
    "sync-failed": Condition("critical", "HeadraceFails"),
    "corrupt-log": Condition("critical", "HeadracePartitionStopped"),
    "disk-full": Condition("critical", "HeadraceDiskFull"),
    "disk-low": Condition("warning", "HeadraceDiskLow"),
    "stuck-transaction": Condition("warning", "HeadraceTransactionStuck"),
    "dead-letters": Condition("warning", "HeadraceDeadLetters"),
    # Of streams. A queue that nobody reads is told of by HeadraceLagging.
    "nobody-reads": Condition("warning", "HeadraceStreamStuck"),
    "group-lagging": Condition("warning", "HeadraceLagging"),
    "loop-lag": Condition("warning", "HeadraceLoopLags"),
    "syncs-slow": Condition("warning", "HeadraceSyncsSlow"),
    "files-low": Condition("warning", "HeadraceFilesLow"),
}
# A node that is away shows nothing, and what will be is told by a history.
ALERTS_ALONE = frozenset(("HeadraceNodeDown", "HeadraceDiskFills"))


class Machine(NamedTuple):
    """What is known of the process and the disk; None is what is not."""

    disk_free_bytes: int | None = None
    disk_floor_bytes: int = 0
    open_files: int | None = None
    open_files_max: int | None = None
    sync_failed: str | None = None
    loop_lag_ms: float | None = None
    sync_ms: float | None = None


class Finding(NamedTuple):
    code: str
    text: str
    kind: Kind
    # Of the topic, the group or the transaction; empty for the node.
    name: str = ""

    @property
    def level(self) -> Level:
        return CONDITIONS[self.code].level


def judge(overview: Overview, machine: Machine) -> list[Finding]:
    """The gravest first; among equals those that are worst."""
    found = [
        *_about_disk(machine),
        *_about_topics(overview),
        *_about_transactions(overview),
        *_about_groups(overview),
        *_about_process(machine),
    ]
    return sorted(found, key=lambda each: each.level != "critical")


def _about_disk(machine: Machine) -> Iterator[Finding]:
    if machine.sync_failed is not None:
        yield Finding("sync-failed", machine.sync_failed, "node")
    free, floor = machine.disk_free_bytes, machine.disk_floor_bytes
    if free is None:
        return
    if free <= floor:
        text = f"{shown_bytes(free)} free: publishing has stopped at {shown_bytes(floor)}"
        yield Finding("disk-full", text, "node")
    elif free < FLOOR_TIMES * floor:
        text = f"{shown_bytes(free)} free; publishing stops at {shown_bytes(floor)}"
        yield Finding("disk-low", text, "node")


def _about_topics(overview: Overview) -> Iterator[Finding]:
    for topic in overview.topics:
        if topic.stopped:
            text = (
                f"{counted(topic.stopped, 'partition')} stopped: data that was written is damaged"
            )
            yield Finding("corrupt-log", text, "topic", topic.name)
    for topic in sorted(overview.topics, key=lambda each: -each.dead_letters):
        if topic.dead_letters:
            text = counted(topic.dead_letters, "dead letter")
            yield Finding("dead-letters", text, "letters", topic.name)


def _about_transactions(overview: Overview) -> Iterator[Finding]:
    for each in overview.transactions:
        age_ms = overview.at_ms - each.started_at_ms
        if age_ms >= STUCK_MS:
            text = f"transaction open for {shown_duration(age_ms)}: readers wait for its end"
            yield Finding("stuck-transaction", text, "transaction", each.name)


def _about_groups(overview: Overview) -> Iterator[Finding]:
    for group in sorted(overview.groups, key=lambda each: -each.lag):
        waited_ms = _waited_ms(group, overview.at_ms)
        wait = counted(group.lag, "message")
        # What is delayed waits for its time and not for a reader.
        if group.lag > group.delayed and group.is_unread:
            yield Finding("nobody-reads", f"{wait} behind and nobody reads", "group", group.name)
        elif waited_ms > LAGGING_MS:
            text = f"{wait} behind, the next has waited for {shown_duration(waited_ms)}"
            yield Finding("group-lagging", text, "group", group.name)


def _waited_ms(group: GroupTotals, now_ms: int) -> int:
    return 0 if group.oldest_ms is None else now_ms - group.oldest_ms


def _about_process(machine: Machine) -> Iterator[Finding]:
    if machine.loop_lag_ms is not None and machine.loop_lag_ms > LOOP_LAG_MS:
        text = f"the event loop comes {machine.loop_lag_ms:.0f} ms late: every client feels it"
        yield Finding("loop-lag", text, "node")
    if machine.sync_ms is not None and machine.sync_ms > SYNC_MS:
        text = f"syncs take {machine.sync_ms:.0f} ms: every publish waits for the disk"
        yield Finding("syncs-slow", text, "node")
    used, most = machine.open_files, machine.open_files_max
    if used is not None and most and used > FILES_SHARE * most:
        yield Finding("files-low", f"{used:,} of {most:,} files are open", "node")
