"""The assignor: which member should have which task, given which had it before.

    active      every task once. The member that had it keeps it, or else one that has a
                copy of its state gets it; but no member has two tasks more than another.
    standby     of tasks with state, as many copies as the group asks for, each in another
                process than the task and its other copies. A member that has a copy keeps it.

A member is one thread of a process, and has room for as much as any other. The other tasks
go to the member with the fewest, in the process with the least load, one subtopology after
the other.

A pure function; the result does not depend on the order of mappings or sets.

Rejected: the process with the least load first, and its idlest member second, as Kafka
does. It is the same while processes have what they are entitled to, but can leave a thread
without work beside one that has two tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headrace.engine.coordinator.streams.values import NO_TASKS, Held, Task


class Seat(NamedTuple):
    """A member, as the assignor sees it."""

    process_id: str
    before: Held


class _Load:
    """What members and processes have got so far."""

    def __init__(self, seats: Mapping[str, Seat]) -> None:
        self._process = {member: seat.process_id for member, seat in seats.items()}
        self.counts = dict.fromkeys(seats, 0)
        self._threads: dict[str, int] = {}
        for process in self._process.values():
            self._threads[process] = self._threads.get(process, 0) + 1
        self._process_counts = dict.fromkeys(self._threads, 0)
        self._present: dict[str, set[Task]] = {process: set() for process in self._threads}
        self.active: dict[str, set[Task]] = {member: set() for member in seats}
        self.standby: dict[str, set[Task]] = {member: set() for member in seats}
        self._queue = [(self._key(member), member) for member in seats]
        heapify(self._queue)

    @property
    def process_count(self) -> int:
        return len(self._threads)

    def has(self, member: str, task: Task) -> bool:
        """Whether its process has the task, in whatever role."""
        return task in self._present[self._process[member]]

    def give(self, member: str, task: Task, role: dict[str, set[Task]]) -> None:
        process = self._process[member]
        role[member].add(task)
        self._present[process].add(task)
        self.counts[member] += 1
        self._process_counts[process] += 1

    def idlest(self, members: Iterable[str]) -> Iterator[str]:
        return iter(sorted(members, key=self._key))

    def give_to_idlest(self, task: Task, role: dict[str, set[Task]]) -> bool:
        """To the member with the least to do whose process does not have the task. False
        if every process has it."""
        passed_over = []
        given = False
        while self._queue and not given:
            key, member = heappop(self._queue)
            now = self._key(member)
            if now != key:
                # Keys only grow, so the first with one that still holds is the idlest.
                heappush(self._queue, (now, member))
            elif self.has(member, task):
                passed_over.append((key, member))
            else:
                self.give(member, task, role)
                heappush(self._queue, (self._key(member), member))
                given = True
        for entry in passed_over:
            heappush(self._queue, entry)
        return given

    def _key(self, member: str) -> tuple[int, float, str, str]:
        process = self._process[member]
        return (
            self.counts[member],
            self._process_counts[process] / self._threads[process],
            process,
            member,
        )


class _Quota:
    """Level to within one: `odd` members may have one task more than `share`."""

    def __init__(self, tasks: int, members: int) -> None:
        self._share, self._odd = divmod(tasks, members)

    def take(self, count: int) -> bool:
        """Whether a member that has so many may have one more."""
        if count < self._share:
            return True
        if count == self._share and self._odd:
            self._odd -= 1
            return True
        return False


def assign(
    seats: Mapping[str, Seat],
    task_counts: Mapping[str, int],
    stateful: Set[str],
    standby_replicas: int,
) -> dict[str, Held]:
    """`task_counts` by subtopology; `stateful` are the subtopologies with state. There may
    be fewer standby tasks than asked for, if there are not as many processes."""
    if not seats:
        return {}
    load = _Load(seats)
    _assign_active(load, seats, task_counts)
    _assign_standby(load, seats, task_counts, stateful, standby_replicas)
    return {
        member: Held(
            frozenset(load.active[member]) or NO_TASKS, frozenset(load.standby[member]) or NO_TASKS
        )
        for member in seats
    }


def _assign_active(load: _Load, seats: Mapping[str, Seat], task_counts: Mapping[str, int]) -> None:
    owner = {task: member for member in sorted(seats) for task in seats[member].before.active}
    keepers = _keepers(seats)
    quota = _Quota(sum(task_counts.values()), len(seats))
    # By partition first: tasks of the same partition stay together as far as they were.
    tasks = sorted(_tasks(task_counts), key=lambda task: (task[1], task[0]))
    left = []
    for task in tasks:
        member = owner.get(task)
        if member is not None and quota.take(load.counts[member]):
            load.give(member, task, load.active)
        else:
            left.append(task)
    homeless = []
    for task in left:
        for member in load.idlest(keepers.get(task, ())):
            if quota.take(load.counts[member]):
                load.give(member, task, load.active)
                break
        else:
            homeless.append(task)
    for task in sorted(homeless):
        load.give_to_idlest(task, load.active)


def _assign_standby(
    load: _Load,
    seats: Mapping[str, Seat],
    task_counts: Mapping[str, int],
    stateful: Set[str],
    replicas: int,
) -> None:
    replicas = min(replicas, load.process_count - 1)
    tasks = sorted(task for task in _tasks(task_counts) if task[0] in stateful)
    if replicas <= 0 or not tasks:
        return
    former = {task: member for member in sorted(seats) for task in seats[member].before.active}
    keepers = _keepers(seats)
    total = sum(task_counts.values()) + replicas * len(tasks)
    most = -(-total // len(seats))
    left = []
    for task in tasks:
        wanted = replicas
        # Members that have the state already: the task was active there, or a standby.
        entitled = [former[task]] if task in former else []
        entitled += load.idlest(keepers.get(task, ()))
        for member in entitled:
            if wanted and not load.has(member, task) and load.counts[member] < most:
                load.give(member, task, load.standby)
                wanted -= 1
        left += [task] * wanted
    for task in left:
        load.give_to_idlest(task, load.standby)


def _tasks(task_counts: Mapping[str, int]) -> Iterator[Task]:
    for subtopology, count in task_counts.items():
        for partition in range(count):
            yield subtopology, partition


def _keepers(seats: Mapping[str, Seat]) -> dict[Task, list[str]]:
    """The members that have a copy of a task's state."""
    keepers: dict[Task, list[str]] = {}
    for member in sorted(seats):
        for task in seats[member].before.standby:
            keepers.setdefault(task, []).append(member)
    return keepers
