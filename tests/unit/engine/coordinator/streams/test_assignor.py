"""Which member should have which task: level, sticky, and copies in other processes."""

from __future__ import annotations

from collections import Counter

from tests.unit.engine.coordinator.streams.conftest import tasks

from headrace.engine.coordinator.streams.assignor import Seat, assign
from headrace.engine.coordinator.streams.values import NOTHING, Held

NO_STATE: frozenset[str] = frozenset()
STATE = frozenset({"0"})


def seats(*members: str, before: dict[str, Held] | None = None) -> dict[str, Seat]:
    """`p.1` is thread 1 of process p."""
    held = before or {}
    return {each: Seat(each.partition(".")[0], held.get(each, NOTHING)) for each in members}


def sizes(target: dict[str, Held]) -> dict[str, int]:
    return {member: len(held.active) for member, held in target.items()}


def test_without_members_there_is_nothing_to_say() -> None:
    assert assign({}, {"0": 3}, STATE, 1) == {}


def test_the_only_member_gets_everything_and_no_copies() -> None:
    target = assign(seats("a"), {"0": 2, "1": 1}, STATE, 2)
    assert target == {"a": Held(tasks("0_0", "0_1", "1_0"))}


def test_tasks_are_level_to_within_one() -> None:
    target = assign(seats("a", "b", "c"), {"0": 4, "1": 4}, NO_STATE, 0)
    assert sorted(sizes(target).values()) == [2, 3, 3]


def test_a_process_with_more_threads_gets_more() -> None:
    target = assign(seats("p.1", "p.2", "p.3", "q.1"), {"0": 8}, NO_STATE, 0)
    assert set(sizes(target).values()) == {2}


def test_fewer_tasks_than_threads_are_spread_over_processes() -> None:
    target = assign(seats("p.1", "p.2", "q.1", "q.2"), {"0": 2}, NO_STATE, 0)
    busy = Counter(member.partition(".")[0] for member, count in sizes(target).items() if count)
    assert busy == {"p": 1, "q": 1}


def test_nothing_moves_that_need_not() -> None:
    first = assign(seats("a", "b"), {"0": 4}, STATE, 1)
    assert assign(seats("a", "b", before=first), {"0": 4}, STATE, 1) == first


def test_a_newcomer_gets_its_share_and_the_others_keep_the_rest() -> None:
    first = assign(seats("a", "b"), {"0": 6}, NO_STATE, 0)
    target = assign(seats("a", "b", "c", before=first), {"0": 6}, NO_STATE, 0)
    assert sizes(target) == {"a": 2, "b": 2, "c": 2}
    assert target["a"].active < first["a"].active
    assert target["b"].active < first["b"].active


def test_those_that_stay_keep_theirs_when_one_goes() -> None:
    first = assign(seats("a", "b", "c"), {"0": 6}, NO_STATE, 0)
    target = assign(seats("a", "b", before=first), {"0": 6}, NO_STATE, 0)
    assert sizes(target) == {"a": 3, "b": 3}
    assert first["a"].active < target["a"].active
    assert first["b"].active < target["b"].active


def test_every_task_with_state_has_its_copies_in_other_processes() -> None:
    target = assign(seats("a", "b", "c"), {"0": 6, "1": 3}, STATE, 1)
    copies = Counter(task for held in target.values() for task in held.standby)
    assert copies == dict.fromkeys(tasks(*(f"0_{number}" for number in range(6))), 1)
    assert all(not held.active & held.standby for held in target.values())
    assert all(not {"1"} & {task[0] for task in held.standby} for held in target.values())


def test_threads_of_one_process_do_not_keep_each_others_copies() -> None:
    target = assign(seats("p.1", "p.2"), {"0": 4}, STATE, 2)
    assert all(not held.standby for held in target.values())


def test_there_are_as_many_copies_as_there_are_other_processes() -> None:
    target = assign(seats("a", "b"), {"0": 2}, STATE, 5)
    assert Counter(task for held in target.values() for task in held.standby) == dict.fromkeys(
        tasks("0_0", "0_1"), 1
    )


def test_a_member_with_a_copy_takes_over_when_the_process_goes() -> None:
    first = assign(seats("a", "b", "c"), {"0": 6}, STATE, 1)
    target = assign(seats("b", "c", before=first), {"0": 6}, STATE, 1)
    for member in ("b", "c"):
        came = target[member].active - first[member].active
        assert came and came <= first[member].standby


def test_the_former_owner_of_a_task_keeps_a_copy_of_its_state() -> None:
    before = {"a": Held(tasks("0_0", "0_1"))}
    target = assign(seats("a", "b", "c", before=before), {"0": 2}, STATE, 1)
    (moved,) = before["a"].active - target["a"].active
    assert moved in target["a"].standby


def test_tasks_that_are_gone_are_forgotten() -> None:
    before = {"a": Held(tasks("0_0", "0_7"), tasks("9_0"))}
    target = assign(seats("a", before=before), {"0": 1}, STATE, 1)
    assert target == {"a": Held(tasks("0_0"))}


def test_the_order_of_members_makes_no_difference() -> None:
    one = assign(seats("a", "b", "c"), {"0": 5, "1": 4}, STATE, 1)
    other = assign(seats("c", "a", "b"), {"1": 4, "0": 5}, STATE, 1)
    assert one == other
