"""What the catalog makes of a topology: tasks, sizes, what is missing, what cannot be."""

from __future__ import annotations

import pytest
from tests.unit.engine.coordinator.streams.conftest import COUNTING, catalog, joined_topics, topics

from headrace.core import limits
from headrace.engine.coordinator.streams.topology import (
    InvalidTopology,
    check,
    configure,
    topology_bytes,
)
from headrace.engine.coordinator.streams.values import (
    CopartitionGroup,
    InternalTopic,
    Status,
    Subtopology,
    Topology,
)

LARGE = InternalTopic("c", configs=(("key", "v" * limits.MEMBER_BYTES_MAX),))
SOURCES, PARTITIONS = Status.MISSING_SOURCE_TOPICS, Status.INCORRECTLY_PARTITIONED_TOPICS


def test_a_subtopology_has_a_task_for_each_partition_of_its_largest_topic() -> None:
    both = Topology(0, (Subtopology("0", ("small", "large")),))
    configured = configure(both, topics(small=2, large=5))
    assert configured.is_ready
    assert configured.task_counts == {"0": 5}


def test_with_all_its_topics_an_application_is_ready() -> None:
    configured = configure(COUNTING, catalog(3))
    assert configured.is_ready and not configured.missing
    assert configured.task_counts == {"0": 3, "1": 3}


def test_missing_source_topics_are_named() -> None:
    configured = configure(joined_topics("a", "b", "c", "d", "e"), topics(b=1))
    assert configured.problem == (
        SOURCES,
        "Source topics a, c, d and 1 additional topics are missing.",
    )
    assert not configured.missing, "nothing is made before it is known how large"


def test_internal_topics_that_are_missing_are_to_be_made_as_large_as_their_source() -> None:
    configured = configure(COUNTING, topics(orders=4))
    assert configured.problem is not None
    assert configured.problem[0] is Status.MISSING_INTERNAL_TOPICS
    assert "app-by-region-repartition, app-counts-changelog" in configured.problem[1]
    assert configured.missing == (
        InternalTopic("app-by-region-repartition", 4),
        InternalTopic("app-counts-changelog", 4, configs=(("cleanup.policy", "compact"),)),
    )


def test_only_those_that_are_not_there_are_to_be_made() -> None:
    found = topics(orders=4, app_by_region_repartition=4)
    assert [each.name for each in configure(COUNTING, found).missing] == ["app-counts-changelog"]


def test_an_internal_topic_of_another_size_is_told_of() -> None:
    found = topics(orders=4, app_by_region_repartition=4, app_counts_changelog=3)
    problem = configure(COUNTING, found).problem
    assert problem is not None and problem[0] is PARTITIONS
    assert "app-counts-changelog" in problem[1] and "expected 4, found 3" in problem[1]


def test_a_repartition_topic_has_the_size_that_the_application_says() -> None:
    chain = Topology(
        0,
        (
            Subtopology("0", ("orders",), ("r",)),
            Subtopology("1", (), ("s",), (InternalTopic("r", 7),)),
            Subtopology("2", (), (), (InternalTopic("s"),)),
        ),
    )
    configured = configure(chain, topics(orders=2))
    assert [(each.name, each.partitions) for each in configured.missing] == [("r", 7), ("s", 7)]
    assert configured.task_counts == {"0": 2, "1": 7, "2": 7}


def test_sizes_are_found_whatever_the_order_of_subtopologies() -> None:
    backwards = Topology(
        0,
        (
            Subtopology("0", (), (), (InternalTopic("s"),)),
            Subtopology("1", (), ("s",), (InternalTopic("r"),)),
            Subtopology("2", ("orders",), ("r",)),
        ),
    )
    assert configure(backwards, topics(orders=3)).task_counts == {"0": 3, "1": 3, "2": 3}


# Topics that are read together.


def test_sources_that_are_read_together_need_as_many_partitions_as_each_other() -> None:
    assert configure(joined_topics("a", "b"), topics(a=3, b=3)).is_ready
    problem = configure(joined_topics("a", "b"), topics(a=3, b=2)).problem
    assert problem is not None and problem[0] is PARTITIONS
    assert "a has 3, b has 2" in problem[1]


def joined_with_repartition(size: int) -> Topology:
    return Topology(
        0,
        (
            Subtopology("0", ("orders",), ("r",)),
            Subtopology(
                "1",
                ("customers",),
                (),
                (InternalTopic("r", size),),
                (InternalTopic("c"),),
                (CopartitionGroup((0,), (0,)),),
            ),
        ),
    )


def test_a_repartition_topic_follows_the_source_that_it_is_joined_with() -> None:
    configured = configure(joined_with_repartition(0), topics(orders=8, customers=3))
    assert {each.name: each.partitions for each in configured.missing} == {"r": 3, "c": 3}
    assert configured.task_counts == {"0": 8, "1": 3}


def test_a_repartition_topic_of_a_size_that_does_not_fit_its_partner_is_refused() -> None:
    problem = configure(joined_with_repartition(5), topics(orders=8, customers=3)).problem
    assert problem is not None and problem[0] is PARTITIONS
    assert "[5]" in problem[1] and "[3]" in problem[1]


def two_repartitions(first: int, second: int) -> Topology:
    return Topology(
        0,
        (
            Subtopology("0", ("small",), ("r",)),
            Subtopology("1", ("large",), ("s",)),
            Subtopology(
                "2",
                (),
                (),
                (InternalTopic("r", first), InternalTopic("s", second)),
                (),
                (CopartitionGroup((), (0, 1)),),
            ),
        ),
    )


@pytest.mark.parametrize(("first", "second", "size"), [(0, 0, 6), (4, 0, 4), (0, 4, 4), (4, 4, 4)])
def test_repartition_topics_are_made_equal(first: int, second: int, size: int) -> None:
    configured = configure(two_repartitions(first, second), topics(small=2, large=6))
    assert {each.name: each.partitions for each in configured.missing} == {"r": size, "s": size}


def test_two_sizes_that_the_application_says_contradict_each_other() -> None:
    problem = configure(two_repartitions(4, 5), topics(small=2, large=6)).problem
    assert problem is not None and problem[0] is PARTITIONS


# What no catalog can cure.


def test_repartition_topics_in_a_circle_have_no_size() -> None:
    circle = Topology(
        0,
        (
            Subtopology("0", (), ("r",), (InternalTopic("s"),)),
            Subtopology("1", (), ("s",), (InternalTopic("r"),)),
        ),
    )
    with pytest.raises(InvalidTopology, match=r"in a circle: r, s"):
        configure(circle, {})


def test_a_repartition_topic_that_nothing_writes_to_has_no_size() -> None:
    unwritten = Topology(0, (Subtopology("0", ("orders",), (), (InternalTopic("r"),)),))
    with pytest.raises(InvalidTopology, match="nothing writes"):
        configure(unwritten, topics(orders=1))


def test_there_are_no_more_tasks_than_can_be_shared_out() -> None:
    many = Topology(0, tuple(Subtopology(str(number), ("orders",)) for number in range(10)))
    with pytest.raises(InvalidTopology, match="10010 tasks"):
        configure(many, topics(orders=limits.STREAMS_TASKS_MAX // 10 + 1))


@pytest.mark.parametrize(
    ("subtopologies", "reason"),
    [
        ((Subtopology("0", ("a",)), Subtopology("0", ("b",))), "twice"),
        ((Subtopology("0"),), "reads no topic"),
        ((Subtopology("0", ("a",), (), (), (InternalTopic("c", 3),)),), "changelog topic c"),
        ((Subtopology("0", ("a",), (), (InternalTopic("r", -1),)),), "-1 partitions"),
        ((Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((1,)),)),), "names a"),
        ((Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((-1,)),)),), "names a"),
        ((Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((), (0,)),)),), "names a"),
        (tuple(Subtopology(str(number), ("a",)) for number in range(1_001)), "1001 subtopologies"),
        ((Subtopology("0", tuple(map(str, range(2_001)))),), "2001 topics"),
        ((Subtopology("0", ("a",), (), (), (LARGE,)),), "more than"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_or_is_too_large_is_refused(
    subtopologies: tuple[Subtopology, ...], reason: str
) -> None:
    with pytest.raises(InvalidTopology, match=reason):
        check(Topology(0, subtopologies))


def test_a_sound_topology_passes_and_has_a_size() -> None:
    check(COUNTING)
    assert topology_bytes(COUNTING) > len("app-by-region-repartition") * 2
