"""Assignors against naive twins: level, complete, and moving the least."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.coordinator.assignors import (
    ASSIGNORS,
    Current,
    Sizes,
    Subscriptions,
    Target,
    assign_range,
    assign_simple,
    assign_uniform,
)
from headrace.engine.coordinator.values import TopicPartition

TOPICS = [b"t", b"u", b"v"]

members = st.sets(st.sampled_from("abcdefghij"), max_size=10)
sizes = st.fixed_dictionaries({}, optional=dict.fromkeys(TOPICS, st.integers(0, 12)))


@st.composite
def equal(draw: st.DrawFn) -> tuple[Subscriptions, Sizes, Current]:
    """Members that all read the same, and have any part of it, or of more."""
    names = draw(st.sets(st.sampled_from("abcde"), min_size=1))
    wanted = draw(st.sets(st.sampled_from(TOPICS), min_size=1))
    sizes = {topic: draw(st.integers(0, 9)) for topic in TOPICS}
    # One of those who have something is gone, and some may be new.
    return dict.fromkeys(names, wanted), sizes, draw_current(draw, "abcdef")


@st.composite
def mixed(draw: st.DrawFn) -> tuple[Subscriptions, Sizes, Current]:
    subscriptions = {name: draw(st.sets(st.sampled_from(TOPICS))) for name in draw(members)}
    return subscriptions, draw(sizes), draw_current(draw, "abcdefghijkl")


def draw_current(draw: st.DrawFn, names: str) -> dict[str, set[TopicPartition]]:
    """Who has what now; nobody shares, as in any assignment that was made."""
    current: dict[str, set[TopicPartition]] = {}
    for topic in TOPICS:
        owners = draw(st.lists(st.sampled_from(names + "-"), max_size=14))
        for partition, owner in enumerate(owners):
            if owner != "-":
                current.setdefault(owner, set()).add((topic, partition))
    return current


def wanted_partitions(subscriptions: Subscriptions, sizes: Sizes) -> set[TopicPartition]:
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    return {(topic, number) for topic in wanted for number in range(sizes.get(topic, 0))}


def check_whole(target: Target, subscriptions: Subscriptions, sizes: Sizes) -> None:
    """Everything wanted has one reader, and the reader wanted it."""
    assert target.keys() == subscriptions.keys()
    for member, held in target.items():
        assert all(topic in subscriptions[member] for topic, _ in held)
    placed = [partition for held in target.values() for partition in held]
    assert len(placed) == len(set(placed))
    assert set(placed) == wanted_partitions(subscriptions, sizes)


@given(equal())
def test_uniform_is_level_and_nothing_moves_that_could_have_stayed(
    case: tuple[Subscriptions, Sizes, Current],
) -> None:
    subscriptions, sizes, current = case
    target = assign_uniform(*case)
    check_whole(target, subscriptions, sizes)
    loads = sorted(map(len, target.values()))
    assert loads[-1] - loads[0] <= 1
    partitions = wanted_partitions(subscriptions, sizes)
    share, odd = divmod(len(partitions), len(subscriptions))
    had = [len(current.get(member, set()) & partitions) for member in subscriptions]
    most = sum(min(count, share) for count in had) + min(odd, sum(n > share for n in had))
    assert sum(len(target[m] & current.get(m, set())) for m in subscriptions) == most


@given(mixed())
def test_every_assignor_gives_everything_to_somebody_who_wants_it(
    case: tuple[Subscriptions, Sizes, Current],
) -> None:
    for assign in ASSIGNORS.values():
        check_whole(assign(*case), case[0], case[1])


@given(mixed())
def test_an_assignment_that_was_made_stays_when_nothing_changed(
    case: tuple[Subscriptions, Sizes, Current],
) -> None:
    subscriptions, sizes, _ = case
    for assign in ASSIGNORS.values():
        target = assign(*case)
        assert assign(subscriptions, sizes, target) == target


@given(mixed())
def test_the_order_of_what_is_given_does_not_matter(
    case: tuple[Subscriptions, Sizes, Current],
) -> None:
    subscriptions, sizes, current = case
    backwards = tuple(dict(reversed(list(part.items()))) for part in case)
    for assign in (*ASSIGNORS.values(), assign_simple):
        assert assign(*backwards) == assign(subscriptions, sizes, current)  # type: ignore[arg-type]


@st.composite
def small(draw: st.DrawFn) -> tuple[Subscriptions, Sizes, Current]:
    topics = st.sets(st.sampled_from(TOPICS), min_size=1)
    subscriptions = {name: draw(topics) for name in "abc"[: draw(st.integers(1, 3))]}
    sizes = {topic: draw(st.integers(0, 2)) for topic in TOPICS}
    return subscriptions, sizes, draw_current(draw, "abc")


@given(small())
def test_mixed_subscriptions_are_as_level_as_any_assignment_could_be(
    case: tuple[Subscriptions, Sizes, Current],
) -> None:
    subscriptions, sizes, _ = case
    partitions = sorted(wanted_partitions(subscriptions, sizes))
    readers = [[m for m in subscriptions if topic in subscriptions[m]] for topic, _ in partitions]
    best = min(
        sum(choice.count(member) ** 2 for member in subscriptions) for choice in product(*readers)
    )
    assert sum(len(held) ** 2 for held in assign_uniform(*case).values()) == best


@given(mixed())
def test_range_is_what_the_range_assignor_of_kafka_gives(
    case: tuple[Subscriptions, Sizes, Current],
) -> None:
    subscriptions, sizes, _ = case
    naive: Target = {member: set() for member in subscriptions}
    for topic, size in sizes.items():
        readers = sorted(m for m, topics in subscriptions.items() if topic in topics)
        for place, member in enumerate(readers):
            each, extra = size // len(readers), size % len(readers)
            start = each * place + min(place, extra)
            length = each + (0 if place + 1 > extra else 1)
            naive[member] |= {(topic, number) for number in range(start, start + length)}
    assert assign_range(*case) == naive


@given(equal())
def test_simple_leaves_nobody_idle_and_no_partition_alone(
    case: tuple[Subscriptions, Sizes, Current],
) -> None:
    subscriptions, sizes, _ = case
    target = assign_simple(*case)
    partitions = wanted_partitions(subscriptions, sizes)
    if not partitions:
        assert not any(target.values())
        return
    shares = [sum(partition in held for held in target.values()) for partition in partitions]
    loads = [len(held) for held in target.values()]
    assert min(shares) >= 1 and min(loads) >= 1
    assert max(shares) - min(shares) <= 1 and max(loads) - min(loads) <= 1
    assert sum(loads) == max(len(partitions), len(subscriptions))
    assert assign_simple(subscriptions, sizes, target) == target


@given(mixed())
def test_simple_with_mixed_subscriptions_gives_everyone_something_it_wants(
    case: tuple[Subscriptions, Sizes, Current],
) -> None:
    subscriptions, sizes, _ = case
    target = assign_simple(*case)
    placed = {partition for held in target.values() for partition in held}
    assert placed == wanted_partitions(subscriptions, sizes)
    for member, held in target.items():
        wants = {topic for topic in subscriptions[member] if sizes.get(topic, 0)}
        assert bool(held) == bool(wants)
        assert {topic for topic, _ in held} <= wants
