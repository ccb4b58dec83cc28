"""Streams groups: what is refused, which commits are taken, and what is described."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.coordinator.streams.conftest import (
    AT_ONCE,
    COUNTING,
    StreamsTalk,
    catalog,
    talk_of,
    tasks,
    topics,
)

from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.coordinator.streams.values import (
    NOTHING,
    Endpoint,
    Held,
    InternalTopic,
    StreamsRequest,
    Subtopology,
    Topology,
)
from headrace.engine.coordinator.values import GroupError

NOT_POSSIBLE = COUNTING._replace(
    subtopologies=(Subtopology("0", ("orders",), (), (InternalTopic("r"),)),)
)


@pytest.mark.parametrize(
    "changes",
    [
        {"member_id": ""},
        {"rack_id": ""},
        {"member_epoch": -2},
        {"member_epoch": -3},
        {"rebalance_timeout_ms": -1},
        {"owned": Held(tasks("0_0"))},
        {"topology": None},
        {"topology": COUNTING._replace(epoch=-1)},
        {"member_epoch": 5},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    talk = talk_of("a")
    answer = talk.join("b", **changes)
    assert answer.error is GroupError.INVALID_REQUEST and answer.message
    assert [each.member_id for each in talk.group.describe().members] == ["a"]


@pytest.mark.parametrize(
    "owned", [Held(tasks("9_0")), Held(tasks("0_2")), Held(standby=tasks("1_-1"))]
)
def test_tasks_that_there_are_not_are_refused(owned: Held) -> None:
    talk = talk_of("a")
    assert talk.beat("a", owned=owned).error is GroupError.INVALID_REQUEST


def test_a_stranger_is_told_to_join() -> None:
    talk = talk_of("a")
    assert talk.send(StreamsRequest("b", 3)).error is GroupError.UNKNOWN_MEMBER_ID
    assert talk.leave("b").error is GroupError.UNKNOWN_MEMBER_ID
    empty = StreamsGroup("app")
    answer = empty.on_heartbeat(StreamsRequest("b", 3), {}, 0)
    assert answer.error is GroupError.UNKNOWN_MEMBER_ID
    assert not empty.is_known()


def test_a_full_group_takes_no_more() -> None:
    talk = talk_of("a", rules=AT_ONCE._replace(streams_members_max=1))
    assert talk.join("b").error is GroupError.GROUP_MAX_SIZE_REACHED
    assert talk.join("a").error is GroupError.NONE


def test_an_impossible_topology_is_refused() -> None:
    talk = StreamsTalk()
    answer = talk.join("a", topology=NOT_POSSIBLE)
    assert answer.error is GroupError.STREAMS_INVALID_TOPOLOGY
    twice = Topology(0, (Subtopology("0", ("orders",)),) * 2)
    assert talk.join("a", topology=twice).error is GroupError.STREAMS_INVALID_TOPOLOGY
    assert talk.group.is_empty() and not talk.group.is_known()


def test_an_impossible_topology_may_show_when_its_topics_are_made() -> None:
    talk = StreamsTalk({})
    assert talk.join("a", topology=NOT_POSSIBLE).error is GroupError.NONE
    talk.catalog = topics(orders=1)
    assert talk.beat("a").error is GroupError.STREAMS_INVALID_TOPOLOGY


# Offsets.


def orders(*partitions: int) -> Any:
    return lambda: [("orders", partition) for partition in partitions]


def test_members_commit_with_their_epoch() -> None:
    talk = talk_of("a")
    epoch = talk.epochs["a"]
    check = talk.group.check_commit
    assert check("a", epoch) is GroupError.NONE
    assert check("a", epoch + 1) is GroupError.STALE_MEMBER_EPOCH
    assert check("b", epoch) is GroupError.UNKNOWN_MEMBER_ID
    assert check("", -1) is GroupError.UNKNOWN_MEMBER_ID
    assert check("", -1, transactional=True) is GroupError.NONE


def test_a_commit_that_was_under_way_while_the_epoch_rose_is_right_for_tasks_held_then() -> None:
    talk = talk_of("a", "b")
    old = talk.epochs["a"]
    (before,) = (partition for name, partition in talk.held["a"].active if name == "0")
    talk.leave("b")
    assert talk.beat("a").member_epoch > old
    check = talk.group.check_commit
    assert check("a", old, orders(before)) is GroupError.NONE
    assert check("a", old, orders(before), transactional=True) is GroupError.NONE
    came = 1 - before
    assert check("a", old, orders(came)) is GroupError.STALE_MEMBER_EPOCH
    assert check("a", old, orders(before, came)) is GroupError.STALE_MEMBER_EPOCH
    assert check("a", old, lambda: [("unrelated", 0)]) is GroupError.STALE_MEMBER_EPOCH


def test_tasks_that_are_to_be_given_up_may_still_be_committed() -> None:
    talk = talk_of("a")
    epoch = talk.epochs["a"]
    talk.join("b")
    talk.beat("a", owned=None)
    assert talk.group.check_commit("a", epoch, orders(0, 1)) is GroupError.NONE


def test_any_caller_commits_while_there_are_no_members() -> None:
    talk = talk_of("a")
    talk.leave("a")
    assert talk.group.check_commit("", -1) is GroupError.NONE


def test_members_read_offsets_with_their_epoch_and_others_without() -> None:
    talk = talk_of("a")
    epoch = talk.epochs["a"]
    check = talk.group.check_fetch
    assert check("a", epoch) is check(None, -1) is GroupError.NONE
    assert check("a", epoch - 1) is GroupError.STALE_MEMBER_EPOCH
    assert check("b", epoch) is GroupError.UNKNOWN_MEMBER_ID


# What others are shown.


def test_a_group_is_described_with_its_sizes_members_and_tasks() -> None:
    talk = StreamsTalk()
    talk.join(
        "a", rack_id="r", process_id="p", endpoint=Endpoint("h", 1), client_tags=(("zone", "z"),),
        client_id="c", client_host="/1.2.3.4",
    )  # fmt: skip
    found = talk.group.describe()
    assert found.state == "Stable"
    assert found.group_epoch == found.assignment_epoch == talk.epochs["a"]
    assert found.topology is not None
    assert [each.partitions for each in found.topology.internal_topics()] == [2, 2]
    (member,) = found.members
    assert member.assignment == member.target_assignment == Held(tasks("0_0", "0_1", "1_0", "1_1"))
    assert member[1:9] == (
        talk.epochs["a"], "r", "c", "/1.2.3.4", 0, "p", Endpoint("h", 1), (("zone", "z"),),
    )  # fmt: skip


def test_a_group_that_is_not_ready_is_described_as_the_application_says() -> None:
    talk = StreamsTalk({})
    talk.join("a")
    assert talk.group.describe().topology == COUNTING


def test_a_group_is_described_after_its_members_left() -> None:
    talk = talk_of("a")
    talk.leave("a")
    found = talk.group.describe()
    assert (found.state, found.members) == ("Empty", ())
    assert found.topology is not None and found.topology.internal_topics()[0].partitions == 2
    assert talk.group.next_deadline_ms() is None


def test_topics_are_read_while_there_are_members() -> None:
    talk = talk_of("a")
    assert talk.group.subscribed_topics() == {"orders", "app-by-region-repartition"}
    talk.leave("a")
    assert talk.group.subscribed_topics() == frozenset()


def test_what_is_kept_is_counted() -> None:
    talk = talk_of("a")
    with_member = sum(talk.group.member_sizes())
    talk.leave("a")
    without = sum(talk.group.member_sizes())
    assert with_member > without > 0
    assert not list(StreamsGroup("new").member_sizes())


def test_a_new_group_goes_on_counting_epochs() -> None:
    group = StreamsGroup("app", epoch=7, rules=AT_ONCE)
    request = StreamsRequest(
        "a", 0, rebalance_timeout_ms=1, topology=COUNTING, owned=NOTHING, process_id="p"
    )
    assert group.on_heartbeat(request, catalog(), 0).member_epoch > 7
