"""Listing dead letters: the messages that wait in a topic of them.

One look has a bound in letters and in bytes, whatever it finds: only those of one group
may be asked for, and there may be none of it among a million.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core import limits
from headrace.core.values import DeadLetter, Looked, MessageId
from headrace.engine.dead_letter import read_letter
from headrace.engine.partition import Partition
from headrace.engine.records import Allowance
from headrace.engine.scanner import NORMAL
from headrace.engine.window import READY

LettersLooked = Looked[DeadLetter, MessageId]


def look_at_letters(
    partitions: Iterable[Partition],
    keeper: int,
    group: str | None,
    after: MessageId | None,
    limit: int,
) -> LettersLooked:
    """Of the next `limit` letters behind `after`, or of as many as have about a megabyte,
    those that failed in the group. `keeper` is the number of the group that keeps them."""
    allowance = Allowance(limits.REMOTE_ANSWER_BYTES_MAX)
    found: list[DeadLetter] = []
    left = limit
    for partition in partitions:
        view = partition.views.get(keeper)
        if view is None or (after is not None and partition.index < after.partition):
            continue
        start = view.window.start
        if after is not None and partition.index == after.partition:
            start = max(start, after.offset + 1)
        while runs := view.window.find(NORMAL << 4 | READY, start, max(1, left)):
            if left <= 0:
                return Looked(found, after, allowance.size_bytes)
            records, gone_over = partition.records.read_some(
                runs, partition.high_watermark, allowance
            )
            for record in records:
                letter = read_letter(partition.topic.name, partition.index, record)
                if group is None or letter.group == group:
                    found.append(letter)
            left -= len(records)
            if gone_over:
                start = gone_over[-1]
                after = MessageId(partition.topic.name, partition.index, start - 1)
            if allowance.is_spent:
                return Looked(found, after, allowance.size_bytes)
    return Looked(found, None, allowance.size_bytes)
