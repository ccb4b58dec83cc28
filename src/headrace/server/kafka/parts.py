"""Parts of requests that write for very many partitions: each is checked, written and on
disk before the next begins, so that none of it takes long.

    topics    a [0 1 2 3 4]   b [0]   c [0 1]
    parts     a [0 1 2 3]  |  a [4]  b [0]  |  c [0 1]

Each part is like a request of its own. A client that is refused in between, because its
group has moved on, has written what came before: the answer has a code for each
partition, as always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

# Topics and partitions of a part.
PART: Final = 256

# A topic of a request, whichever; the last of its fields are its partitions.
Topic = TypeVar("Topic", bound=tuple[Any, ...])
Answered = TypeVar("Answered")


def is_whole(topics: Iterable[Topic]) -> bool:
    """Whether all of them are one part."""
    # Asked of every Produce: a generator would cost more than what it counts.
    size = 0
    for topic in topics:
        size += 1 + len(topic[-1])
    return size <= PART


def parts_of(topics: Sequence[Topic]) -> Iterator[list[Topic]]:
    """All of them in their order; a topic may go on in the next part."""
    part: list[Topic] = []
    room = PART
    for topic in topics:
        partitions = topic[-1]
        while len(partitions) > room:
            part.append(_with(topic, partitions[:room]))
            yield part
            partitions = partitions[room:]
            part, room = [], PART
        part.append(_with(topic, partitions))
        room -= 1 + len(partitions)
        if room <= 0:
            yield part
            part, room = [], PART
    if part:
        yield part


def joined(
    topics: Iterable[Topic], answered: Iterator[Answered]
) -> Iterator[tuple[Topic, tuple[Answered, ...]]]:
    """What was answered for all partitions, one after the other, topic by topic again."""
    for topic in topics:
        yield topic, tuple(islice(answered, len(topic[-1])))


def _with(topic: Topic, partitions: Sequence[Any]) -> Topic:
    kind: Any = type(topic)
    return kind(*topic[:-1], partitions)  # type: ignore[no-any-return]
