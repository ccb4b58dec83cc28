"""What needs somebody's attention, from looks at a node: what is wrong, and what to type.

    bad     something is lost or about to stop        shown first
    warn    something grows that should not

The same words in `headrace top` and in `headrace doctor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from headrace.cli.output import counted, shown_bytes, shown_duration, shown_string, typed
from headrace.cli.top_look import Look
from headrace.core.overview_values import GroupTotals, NodeFigures, OpenTransaction, TopicTotals

# A transaction that is open for so long keeps readers waiting, whatever its time-out.
STUCK_MS = 60_000
# Growth is looked for over at least so long: less is how work comes and goes.
GROWTH_MS = 5_000
# Free space that is less than so many times the floor, or than this share of the disk.
FLOOR_TIMES = 8
FREE_SHARE = 0.05
FILES_SHARE = 0.9

Level = Literal["bad", "warn"]


class Remark(NamedTuple):
    level: Level
    about: str
    what: str
    # What to type next.
    command: str


def remarks(looks: Sequence[Look]) -> list[Remark]:
    """About the last of the looks, what is bad first."""
    if not looks:
        return []
    last = looks[-1]
    found = [
        *_about_partitions(last.overview.topics),
        *_about_disk(last.figures),
        *_about_transactions(last.overview.transactions, last.overview.at_ms),
        *_about_letters(looks),
        *_about_lag(looks),
        *_about_files(last.figures),
    ]
    return sorted(found, key=lambda each: each.level != "bad")


def _about_partitions(topics: Iterable[TopicTotals]) -> Iterator[Remark]:
    for topic in topics:
        if topic.stopped:
            yield Remark(
                "bad",
                topic.name,
                f"{counted(topic.stopped, 'partition')} stopped: data that was written is damaged",
                "headrace doctor --data DIR, where the files are",
            )


def _about_disk(figures: NodeFigures | None) -> Iterator[Remark]:
    if figures is None or figures.disk_free_bytes is None or not figures.disk_total_bytes:
        return
    free, floor = figures.disk_free_bytes, figures.disk_floor_bytes
    if free <= floor:
        what = f"{shown_bytes(free)} free: publishing has stopped at {shown_bytes(floor)}"
        yield Remark("bad", "disk", what, f"df -h {figures.data}")
    elif free < FLOOR_TIMES * floor or free < FREE_SHARE * figures.disk_total_bytes:
        what = f"{shown_bytes(free)} free; publishing stops at {shown_bytes(floor)}"
        yield Remark("warn", "disk", what, f"df -h {figures.data}")


def _about_files(figures: NodeFigures | None) -> Iterator[Remark]:
    if figures is None or figures.open_files is None or not figures.open_files_max:
        return
    if figures.open_files >= FILES_SHARE * figures.open_files_max:
        what = f"{figures.open_files:,} of {figures.open_files_max:,} files are open"
        yield Remark("warn", "files", what, "ulimit -n")


def _about_transactions(opened: Iterable[OpenTransaction], now_ms: int) -> Iterator[Remark]:
    for each in opened:
        age_ms = now_ms - each.started_at_ms
        if age_ms >= STUCK_MS:
            name = shown_string(each.name)
            what = f"transaction open for {shown_duration(age_ms)}: readers wait for its end"
            yield Remark("bad", name, what, f"headrace txn describe {typed(each.name)}")


def _about_letters(looks: Sequence[Look]) -> Iterator[Remark]:
    before = {topic.name: topic.dead_letters for topic in looks[0].overview.topics}
    span_ms = looks[-1].overview.at_ms - looks[0].overview.at_ms
    for topic in looks[-1].overview.topics:
        if not topic.dead_letters:
            continue
        grown = topic.dead_letters - before.get(topic.name, topic.dead_letters)
        what = f"{counted(topic.dead_letters, 'dead letter')}"
        if grown > 0:
            what += f", {grown:,} more in {shown_duration(span_ms)}"
        yield Remark("warn", topic.name, what, f"headrace dlq list {topic.name}")


def _about_lag(looks: Sequence[Look]) -> Iterator[Remark]:
    last = looks[-1].overview
    for group in last.groups:
        name, command = shown_string(group.name), f"headrace group describe {typed(group.name)}"
        grown = _growth(looks, group)
        wait = counted(group.lag, "message")
        if grown is not None:
            what = f"{wait} behind, {grown[0]:,} more in {shown_duration(grown[1])}"
            yield Remark("warn", name, what, command)
        elif group.lag and group.is_unread and group.lag != group.delayed:
            what = f"{wait} behind and nobody reads"
            yield Remark("warn", name, what, command)


def _growth(looks: Sequence[Look], group: GroupTotals) -> tuple[int, int] | None:
    """By how much its lag has grown and in how long, if it did so all the time: at the
    end it is more than in the middle, and there more than at the beginning."""
    known = [
        (look.overview.at_ms, each.lag)
        for look in looks
        for each in look.overview.groups
        if each.name == group.name
    ]
    if len(known) < 3:
        return None
    first, middle, last = known[0], known[len(known) // 2], known[-1]
    span_ms = last[0] - first[0]
    if span_ms < GROWTH_MS or not first[1] < middle[1] < last[1]:
        return None
    return last[1] - first[1], span_ms
