"""How a limit on rows is shared among partitions.

Each gets its part in proportion to what waits there, so that a long backlog does not
starve behind short ones; one row at least while anything waits, so that every
partition moves.
"""

from __future__ import annotations

from headrace.spark.offsets import Position, TopicPosition


def limit_rows(begin: Position, end: Position, rows_max: int) -> Position:
    """An end that is at most about `rows_max` rows away, and moves on everywhere where
    anything waits."""
    sizes = {
        (name, index): max(0, offset - begin[name].partitions[index])
        for name, topic in end.items()
        for index, offset in topic.partitions.items()
    }
    total = sum(sizes.values())
    if total <= rows_max:
        return end
    limited = {
        place: min(size, max(1, size * rows_max // total)) if size else 0
        for place, size in sizes.items()
    }
    # What rounding down left over goes to the longest backlogs.
    left = rows_max - sum(limited.values())
    for place in sorted(sizes, key=lambda each: (-sizes[each], each)):
        if left <= 0:
            break
        more = min(left, sizes[place] - limited[place])
        limited[place] += more
        left -= more
    return {
        name: TopicPosition(
            topic.id,
            {
                index: begin[name].partitions[index] + limited[name, index]
                for index in topic.partitions
            },
        )
        for name, topic in end.items()
    }
