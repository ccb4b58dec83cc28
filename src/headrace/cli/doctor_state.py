"""What `headrace doctor` asks of topics and groups, of a node or of a directory that is
opened read-only: the same questions, by the same calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.cli.findings import Finding, Outcome
from headrace.cli.output import counted, iso_time, shown_bytes, shown_duration, shown_string, typed
from headrace.core.attention import STUCK_MS
from headrace.core.errors import HeadraceError
from headrace.core.overview_values import GroupTotals, Overview
from headrace.core.values import GroupInfo, TopicInfo

if TYPE_CHECKING:
    from headrace.client.backend import Backend

# A record that is younger than now by more than this has the time of a wrong clock.
FUTURE_MS = 5 * 60 * 1000
# More partitions than these are not asked one by one.
PARTITIONS_ASKED_MAX = 2_000
OLDEST_MS = 60 * 60 * 1000


def check_letters(overview: Overview) -> Outcome:
    found = [
        Finding(
            "warn",
            topic.name,
            f"{counted(topic.dead_letters, 'dead letter')} to be seen to",
            "messages that were given up stay until they are redriven or purged",
            f"headrace dlq list {topic.name}, then headrace dlq redrive {topic.name}",
        )
        for topic in overview.topics
        if topic.dead_letters
    ]
    return "no message was given up and left", found


def check_transactions(overview: Overview) -> Outcome:
    found = []
    for each in overview.transactions:
        age_ms = overview.at_ms - each.started_at_ms
        if age_ms < STUCK_MS:
            continue
        name = typed(each.name)
        found.append(
            Finding(
                "bad" if age_ms > each.timeout_ms else "warn",
                shown_string(each.name),
                f"has been open for {shown_duration(age_ms)}, and may be for "
                f"{shown_duration(each.timeout_ms)}",
                "readers of committed messages wait for its end, in every partition it has "
                "written to",
                f"headrace txn describe {name}, then headrace txn abort {name}",
            )
        )
    return f"{counted(overview.open_transactions, 'transaction')} open", found


def check_stopped(overview: Overview) -> Outcome:
    found = [
        Finding(
            "bad",
            topic.name,
            f"{counted(topic.stopped, 'partition')} stopped",
            "what was written is damaged: messages, which are then neither read nor written, or "
            "what queues did with them, which are then leased to nobody",
            f"headrace log verify {topic.name}, where the files are, says which; queues are "
            "mended by headrace repair, when the node is stopped",
        )
        for topic in overview.topics
        if topic.stopped
    ]
    return "every partition takes and gives", found


def check_messages(stopped: Sequence[tuple[str, int, str]]) -> Outcome:
    """Of a directory, by name; a node only says how many there are."""
    found = [
        Finding(
            "bad",
            f"{topic}:{partition}",
            reason,
            "its messages are neither read nor written, and its files are left as they are",
            "stop the node and put the file back from a copy; without one, give up the topic: "
            f"headrace topic delete {topic}",
        )
        for topic, partition, reason in stopped
    ]
    return "those of every partition can be read", found


def check_queues(stopped: Sequence[tuple[str, int, str]]) -> Outcome:
    """Of a directory, by name; a node only says how many there are."""
    found = [
        Finding(
            "bad",
            f"{topic}:{partition}",
            reason,
            "its messages are leased to nobody, and nothing is removed by retention",
            "stop the node, then see what can be saved: headrace repair",
        )
        for topic, partition, reason in stopped
    ]
    return "what every one did can be read", found


def check_cursors(
    backend: Backend, groups: Sequence[GroupInfo], topics: Sequence[TopicInfo]
) -> Outcome:
    """A cursor behind the end is of messages that are not there any more: a disk was
    put back to an earlier state, or lost what was never synced."""
    ends = {
        (topic.name, each.partition): each.high_watermark
        for topic in topics
        for each in topic.partitions
    }
    found: list[Finding] = []
    looked_at = 0
    for group in groups:
        if group.kind != "stream":
            continue
        for name in group.topics:
            try:
                positions = backend.committed(group.name, name)
            except HeadraceError:
                # Deleted meanwhile.
                continue
            looked_at += len(positions)
            beyond = [
                index
                for index, offset in sorted(positions.items())
                if offset > ends.get((name, index), offset)
            ]
            if beyond:
                found.append(_beyond(group.name, name, beyond, positions, ends))
    return f"{counted(looked_at, 'cursor')}, all within their topics", found


def _beyond(
    group: str,
    topic: str,
    beyond: Sequence[int],
    positions: dict[int, int],
    ends: dict[tuple[str, int], int],
) -> Finding:
    first = beyond[0]
    return Finding(
        "bad",
        shown_string(group),
        f"its cursor on {topic}:{first} is at {positions[first]:,} and the end is at "
        f"{ends[topic, first]:,}" + (f", and {len(beyond) - 1} more" if len(beyond) > 1 else ""),
        "messages that it had read are gone, and new ones that take their offsets are skipped",
        f"headrace group reset {typed(group)} --topic {topic} --to latest",
    )


def check_lag(before: Overview, after: Overview, *, knows_members: bool) -> Outcome:
    """What grows is seen between two looks."""
    if not knows_members:
        return "who reads is known to the node alone: ask it, with --server", []
    earlier = {group.name: group.lag for group in before.groups}
    found = []
    for group in after.groups:
        grown = group.lag - earlier.get(group.name, group.lag)
        # Of some nobody knows who reads: a query on Spark is no member.
        if not group.is_unread or not group.lag or group.lag == group.delayed:
            continue
        grows = f", {grown:,} more than a moment ago" if grown > 0 else ""
        found.append(
            Finding(
                "warn",
                shown_string(group.name),
                f"{counted(group.lag, 'message')} behind{grows}, and nobody reads",
                "messages that a group still has to see are kept, and their age is its delay",
                f"start its consumers; or forget it: headrace group delete {typed(group.name)}",
            )
        )
    return f"{counted(len(after.groups), 'group')}, each lag is somebody's work", found


def check_oldest(overview: Overview) -> Outcome:
    found = []
    for group in overview.groups:
        if group.oldest_ms is None or overview.at_ms - group.oldest_ms < OLDEST_MS:
            continue
        found.append(_old(group, overview.at_ms - group.oldest_ms))
    return "nothing has waited for an hour", found


def _old(group: GroupTotals, age_ms: int) -> Finding:
    command = "queue stats" if group.kind == "queue" else "group describe"
    return Finding(
        "warn",
        shown_string(group.name),
        f"its next message has waited for {shown_duration(age_ms)}",
        "consumers are too few, too slow, or away",
        f"headrace {command} {typed(group.name)}; start more consumers",
    )


def check_retention(topics: Sequence[TopicInfo]) -> Outcome:
    """A topic that keeps everything and has more than one segment: it grows."""
    found = []
    for topic in topics:
        settings = topic.settings
        cleanup = settings.get("cleanup", "delete")
        has_limit = (
            cleanup == "compact"
            or settings.get("retention") == "acked"
            or settings.get("retention_ms") is not None
            or settings.get("retention_bytes") is not None
        )
        is_limited = has_limit and cleanup is not None
        if is_limited or all(each.segments <= 1 for each in topic.partitions):
            continue
        size = sum(each.size_bytes for each in topic.partitions)
        found.append(
            Finding(
                "warn",
                topic.name,
                f"keeps everything for ever, {shown_bytes(size)} so far",
                "it grows until the disk is full, and then nothing is published anywhere",
                f"headrace topic alter {topic.name} --set "
                + ("retention_ms=30d" if cleanup else "cleanup=delete"),
            )
        )
    return f"{counted(len(topics), 'topic')}, each with a limit or one segment", found


def check_future(backend: Backend, topics: Sequence[TopicInfo], now_ms: int) -> Outcome:
    asked = 0
    found: list[Finding] = []
    for topic, each in _partitions(topics):
        if asked >= PARTITIONS_ASKED_MAX:
            break
        asked += 1
        try:
            at = backend.offset_at(topic.name, each, now_ms + FUTURE_MS)
            records, _ = backend.read(topic.name, each, at, count_max=1)
        except HeadraceError:
            # Another check says so.
            continue
        # What was published since is behind the end that we were told.
        if records and records[0].timestamp_ms > now_ms + FUTURE_MS:
            found.append(
                Finding(
                    "warn",
                    f"{topic.name}:{each}",
                    f"offset {records[0].offset:,} is from {iso_time(records[0].timestamp_ms)}",
                    "a producer's clock is wrong: retention by time keeps it and all behind it "
                    "until then, and reading by time finds it too early",
                    "set the clock of the producer's machine: timedatectl status",
                )
            )
    return f"{counted(asked, 'partition')}, no record from the future", found


def _partitions(topics: Sequence[TopicInfo]) -> Iterator[tuple[TopicInfo, int]]:
    for topic in topics:
        for each in topic.partitions:
            if each.high_watermark > each.start_offset:
                yield topic, each.partition
