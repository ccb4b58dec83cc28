"""Lists of names in calls: how long they may be, and what a repeated name means.

A call does something for each name, often for each of its partitions. So a list is
judged before anything is looked up, and a name counts once however often it is given:
a lease that saw one partition twice would grant the same messages twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.errors import LimitExceeded
from headrace.core.limits import TOPICS_PER_CALL_MAX
from headrace.core.wording import counted


def distinct_topics(names: Sequence[str]) -> Sequence[str]:
    """The topics that one call names: each once, in the order given. LimitExceeded for
    more than TOPICS_PER_CALL_MAX, repetitions included."""
    if len(names) < 2:
        return names
    if len(names) > TOPICS_PER_CALL_MAX:
        raise LimitExceeded(
            f"{counted(len(names), 'topic')} in one call; at most {TOPICS_PER_CALL_MAX:,} are "
            "taken: use several calls"
        )
    return tuple(dict.fromkeys(names))
