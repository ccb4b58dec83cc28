"""Assignors: who should read what."""

from __future__ import annotations

from headrace.engine.coordinator.assignors import (
    Target,
    assign_range,
    assign_simple,
    assign_uniform,
)

T, U, V = b"t", b"u", b"v"


def everyone(members: str, *topics: bytes) -> dict[str, set[bytes]]:
    return {member: set(topics) for member in members}


def numbers(target: Target, topic: bytes = T) -> dict[str, list[int]]:
    return {
        member: sorted(partition for name, partition in held if name == topic)
        for member, held in target.items()
    }


def parts(topic: bytes, *partitions: int) -> set[tuple[bytes, int]]:
    return {(topic, partition) for partition in partitions}


def test_range_gives_runs_and_the_odd_ones_to_the_first() -> None:
    target = assign_range(everyone("cab", T), {T: 7}, {})
    assert numbers(target) == {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]}


def test_range_treats_each_topic_by_itself() -> None:
    target = assign_range(everyone("ab", T, U), {T: 3, U: 3}, {})
    assert numbers(target, T) == numbers(target, U) == {"a": [0, 1], "b": [2]}


def test_range_leaves_members_without_work_when_partitions_are_few() -> None:
    target = assign_range(everyone("abc", T), {T: 2}, {})
    assert numbers(target) == {"a": [0], "b": [1], "c": []}


def test_range_counts_only_those_who_read_the_topic() -> None:
    target = assign_range({"a": {U}, "b": {T, U}, "c": {T}}, {T: 4, U: 2}, {})
    assert numbers(target, T) == {"a": [], "b": [0, 1], "c": [2, 3]}
    assert numbers(target, U) == {"a": [0], "b": [1], "c": []}


def test_uniform_levels_all_topics_together() -> None:
    target = assign_uniform(everyone("abc", T, U), {T: 2, U: 2}, {})
    assert sorted(len(held) for held in target.values()) == [1, 1, 2]


def test_uniform_leaves_everything_where_it_is_when_nothing_has_to_move() -> None:
    current = {"a": parts(T, 3, 1, 5), "b": parts(T, 0, 2, 4)}
    assert assign_uniform(everyone("ab", T), {T: 6}, current) == current


def test_uniform_lets_those_who_have_most_keep_the_odd_ones() -> None:
    current = {"a": parts(T, 0), "b": parts(T, 1, 2)}
    assert assign_uniform(everyone("ab", T), {T: 3}, current) == current


def test_uniform_forgets_what_is_no_longer_there() -> None:
    current = {"a": parts(T, 0, 7) | parts(U, 0), "gone": parts(T, 1)}
    target = assign_uniform(everyone("ab", T), {T: 2}, current)
    assert target == {"a": parts(T, 0), "b": parts(T, 1)}


def test_uniform_with_mixed_subscriptions_passes_work_along_a_chain() -> None:
    # Only b reads both, so what a has too much can reach c through b alone.
    subscriptions = {"a": {T}, "b": {T, U}, "c": {U}}
    current = {"a": parts(T, 0, 1, 2, 3), "b": parts(U, 0, 1), "c": set[tuple[bytes, int]]()}
    target = assign_uniform(subscriptions, {T: 4, U: 2}, current)
    assert sorted(len(held) for held in target.values()) == [2, 2, 2]
    assert target["c"] == parts(U, 0, 1)


def test_uniform_with_mixed_subscriptions_moves_nothing_that_is_level() -> None:
    subscriptions = {"a": {T}, "b": {T, U}, "c": {U, V}}
    current = {"a": parts(T, 0, 2), "b": parts(T, 1) | parts(U, 0), "c": parts(V, 0)}
    assert assign_uniform(subscriptions, {T: 3, U: 1, V: 1}, current) == current


def test_nobody_and_nothing_are_assigned_to_nobody() -> None:
    for assign in (assign_range, assign_uniform, assign_simple):
        assert assign({}, {T: 3}, {}) == {}
        assert assign(everyone("ab", T), {}, {}) == {"a": set(), "b": set()}
        assert assign(everyone("ab", T), {T: 0}, {}) == {"a": set(), "b": set()}
        assert assign({"a": set()}, {T: 1}, {}) == {"a": set()}


def test_simple_shares_each_partition_among_equally_many() -> None:
    target = assign_simple(everyone("abcdefg", T), {T: 3}, {})
    assert all(len(held) == 1 for held in target.values())
    taken = [partition for held in target.values() for _, partition in held]
    assert sorted(taken.count(number) for number in range(3)) == [2, 2, 3]


def test_simple_ends_the_sharing_when_members_go() -> None:
    before = assign_simple(everyone("abcd", T), {T: 2}, {})
    target = assign_simple(everyone("ab", T), {T: 2}, before)
    assert sorted(map(len, target.values())) == [1, 1]
    assert target["a"] != target["b"]


def test_simple_gives_work_to_everyone_whose_topic_exists() -> None:
    subscriptions = {"a": {T}, "b": {T}, "c": {T, U}, "d": {V}}
    target = assign_simple(subscriptions, {T: 1, U: 1}, {})
    assert target["a"] == target["b"] == parts(T, 0)
    assert target["c"] == parts(U, 0)
    assert target["d"] == set()
