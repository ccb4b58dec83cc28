"""Assignors: who should read which partition, given who reads it now.

Pure functions from the same three arguments:

    subscriptions   member to the topics it wants
    sizes           topic to its number of partitions
    current         member to the partitions that it has, or is meant to have

    range      each topic by itself, in runs:    a: 0 1 2   b: 3 4   c: 5 6
    uniform    all partitions together, level to within one, moving the fewest
    simple     for share groups: like uniform, but nobody goes without work
               because there are more members than partitions

The result does not depend on the order of mappings or sets: two coordinators that
know the same things say the same thing.

Rejected: one algorithm for equal and for mixed subscriptions. With equal ones a
quota decides at once and the movement is provably least; with mixed ones a level
share is a flow problem, solved here by moving along chains of members.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Set
from typing import TypeVar

from headrace.engine.coordinator.values import TopicPartition

Subscriptions = Mapping[str, Set[bytes]]
Sizes = Mapping[bytes, int]
Current = Mapping[str, Set[TopicPartition]]
Target = dict[str, set[TopicPartition]]
Item = TypeVar("Item", bound=Hashable)
Bin = TypeVar("Bin", bound=Hashable)
Assignor = Callable[[Subscriptions, Sizes, Current], Target]


def assign_range(subscriptions: Subscriptions, sizes: Sizes, current: Current) -> Target:
    """Runs of partitions to members in the order of their ids; the first
    members get the odd ones. Topics of equal size and readers fall alike, so
    that partition 3 of both is read by the same member."""
    target: Target = {member: set() for member in subscriptions}
    for topic, members in _readers(subscriptions, sizes).items():
        share, odd = divmod(sizes[topic], len(members))
        start = 0
        for place, member in enumerate(members):
            end = start + share + (place < odd)
            target[member].update((topic, partition) for partition in range(start, end))
            start = end
    return target


def assign_uniform(subscriptions: Subscriptions, sizes: Sizes, current: Current) -> Target:
    readers = _readers(subscriptions, sizes)
    if len(set(map(tuple, readers.values()))) > 1:
        return _level(readers, subscriptions, sizes, current)
    target: Target = {member: set() for member in subscriptions}
    for members in list(readers.values())[:1]:
        partitions = _partitions(readers, sizes)
        target.update(_share_out(partitions, members, current))
    return target


def assign_simple(subscriptions: Subscriptions, sizes: Sizes, current: Current) -> Target:
    """Every partition to somebody and, as far as subscriptions allow, to
    everybody something. Where there are more members than partitions, the
    partitions have equally many members to within one. With mixed
    subscriptions, who shares a partition with whom may change with any call:
    nothing is handed over, so nothing is lost by it."""
    readers = _readers(subscriptions, sizes)
    partitions = _partitions(readers, sizes)
    members = sorted({member for names in readers.values() for member in names})
    if len(set(map(tuple, readers.values()))) == 1 and len(partitions) < len(members):
        # The same question with the roles exchanged: members to partitions.
        holders: dict[TopicPartition, set[str]] = {}
        for member in members:
            for partition in current.get(member, ()):
                holders.setdefault(partition, set()).add(member)
        target: Target = {member: set() for member in subscriptions}
        for partition, chosen in _share_out(members, partitions, holders).items():
            for member in chosen:
                target[member].add(partition)
        return target
    target = assign_uniform(subscriptions, sizes, current)
    shares = dict.fromkeys(partitions, 0)
    for held in target.values():
        for partition in held:
            shares[partition] += 1
    for member in members:
        if not target[member]:
            before = current.get(member, frozenset())
            choice = min(
                (partition for partition in partitions if partition[0] in subscriptions[member]),
                key=lambda partition: (shares[partition], partition not in before, partition),
            )
            target[member].add(choice)
            shares[choice] += 1
    return target


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def _readers(subscriptions: Subscriptions, sizes: Sizes) -> dict[bytes, list[str]]:
    """Each topic that exists and is read, with its readers; both in order."""
    readers: dict[bytes, list[str]] = {}
    for member in sorted(subscriptions):
        for topic in subscriptions[member]:
            if sizes.get(topic, 0) > 0:
                readers.setdefault(topic, []).append(member)
    return {topic: readers[topic] for topic in sorted(readers)}


def _partitions(readers: Mapping[bytes, list[str]], sizes: Sizes) -> list[TopicPartition]:
    return [(topic, partition) for topic in readers for partition in range(sizes[topic])]


def _share_out(
    items: list[Item], bins: list[Bin], current: Mapping[Bin, Set[Item]]
) -> dict[Bin, set[Item]]:
    """Items into bins, level to within one. Each bin keeps what it has up to
    its quota, and the larger quotas go to the bins that have most, so no item
    moves that could have stayed."""
    place = {item: number for number, item in enumerate(items)}
    loose = dict.fromkeys(items)
    held: dict[Bin, list[Item]] = {}
    for bin in bins:
        held[bin] = sorted((i for i in current.get(bin, ()) if i in loose), key=place.__getitem__)
        for item in held[bin]:
            del loose[item]
    share, odd = divmod(len(items), len(bins))
    # Sorting is stable: among equals the first bins get the odd items.
    fullest = sorted(bins, key=lambda bin: -len(held[bin]))
    quota = {bin: share + (number < odd) for number, bin in enumerate(fullest)}
    result = {}
    for bin in bins:
        loose.update(dict.fromkeys(held[bin][quota[bin] :]))
        result[bin] = set(held[bin][: quota[bin]])
    hungry = deque(bin for bin in bins if len(result[bin]) < quota[bin])
    for item in sorted(loose, key=place.__getitem__):
        bin = hungry.popleft()
        result[bin].add(item)
        if len(result[bin]) < quota[bin]:
            hungry.append(bin)
    return result


def _level(
    readers: Mapping[bytes, list[str]],
    subscriptions: Subscriptions,
    sizes: Sizes,
    current: Current,
) -> Target:
    """Mixed subscriptions: as level as they allow, from what is now."""
    loose = dict.fromkeys(_partitions(readers, sizes))
    target: Target = {}
    for member in sorted(subscriptions):
        target[member] = {
            partition
            for partition in current.get(member, ())
            if partition in loose and partition[0] in subscriptions[member]
        }
        for partition in target[member]:
            del loose[partition]
    # What few can read is placed first, while those few still have room.
    for partition in sorted(loose, key=lambda partition: len(readers[partition[0]])):
        target[min(readers[partition[0]], key=lambda m: (len(target[m]), m))].add(partition)
    improving = True
    while improving:
        improving = False
        for member in sorted(target, key=lambda m: (-len(target[m]), m)):
            while chain := _chain_down(member, target, readers):
                # From its far end, so that nobody on the way gives what it got.
                for giver, taker, topic in reversed(chain):
                    _move(topic, target[giver], target[taker], current.get(taker, frozenset()))
                improving = True
    return target


def _chain_down(
    source: str, target: Target, readers: Mapping[bytes, list[str]]
) -> list[tuple[str, str, bytes]]:
    """Hand-overs (giver, taker, topic) from `source` to the least busy member
    that can be reached, if that one is busy with at least two fewer."""
    came_from: dict[str, tuple[str, bytes] | None] = {source: None}
    seen: set[bytes] = set()
    queue = deque([source])
    while queue:
        giver = queue.popleft()
        for topic in sorted({topic for topic, _ in target[giver]} - seen):
            seen.add(topic)
            for taker in readers[topic]:
                if taker not in came_from:
                    came_from[taker] = (giver, topic)
                    queue.append(taker)
    last = min(came_from, key=lambda m: (len(target[m]), m))
    chain = []
    if len(target[last]) <= len(target[source]) - 2:
        while (step := came_from[last]) is not None:
            chain.append((step[0], last, step[1]))
            last = step[0]
    return chain[::-1]


def _move(
    topic: bytes,
    giver: set[TopicPartition],
    taker: set[TopicPartition],
    taker_had: Set[TopicPartition],
) -> None:
    candidates = [partition for partition in giver if partition[0] == topic]
    # Best is what goes back to where it was; else the last, as good as any.
    moved = max(candidates, key=lambda partition: (partition in taker_had, partition))
    giver.remove(moved)
    taker.add(moved)
