"""Consumer groups: the broker assigns, and members follow one by one."""

from __future__ import annotations

import pytest
from tests.unit.engine.coordinator.conftest import (
    REBALANCE_MS,
    ConsumerTalk,
    topic_id,
    topics,
)

from headrace.engine.coordinator.values import GroupError, HeartbeatRequest

SESSION_MS = 45_000
ORDERS = topic_id("orders")


def talk_of(*member_ids: str, partitions: int = 6) -> ConsumerTalk:
    """A stable group of these members over one topic."""
    talk = ConsumerTalk(topics(orders=partitions))
    for member_id in member_ids:
        talk.join(member_id)
    talk.settle(*member_ids)
    return talk


# Joining and following.


def test_the_first_member_gets_everything_with_its_first_answer() -> None:
    talk = ConsumerTalk(topics(orders=3, payments=2))
    answer = talk.join("a", "orders", "payments", "not made yet")
    assert (answer.error, answer.member_epoch) == (GroupError.NONE, talk.group.group_epoch)
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.assignment == ((ORDERS, (0, 1, 2)), (topic_id("payments"), (0, 1)))


def test_an_assignment_that_did_not_change_is_not_sent() -> None:
    talk = talk_of("a")
    assert talk.beat("a").assignment is None
    assert talk.beat("a", owned=None).assignment is None


def test_a_full_heartbeat_is_answered_with_the_whole_assignment() -> None:
    talk = talk_of("a")
    answer = talk.beat("a", rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=("orders",))
    assert answer.assignment == ((ORDERS, (0, 1, 2, 3, 4, 5)),)


def test_a_partition_is_granted_only_after_its_owner_let_go() -> None:
    talk = talk_of("a")
    newcomer = talk.join("b")
    assert newcomer.assignment == ()
    asked = talk.beat("a", owned=None)
    assert asked.assignment == ((ORDERS, (0, 1, 2)),)
    assert asked.member_epoch < newcomer.member_epoch, "it keeps its epoch until it let go"
    still_reading = talk.group.on_heartbeat(
        HeartbeatRequest("a", asked.member_epoch, owned=((ORDERS, (0, 1, 2, 4)),)),
        talk.catalog,
        talk.now_ms,
    )
    assert still_reading.member_epoch == asked.member_epoch
    assert talk.beat("b").assignment is None
    assert talk.beat("a").member_epoch == newcomer.member_epoch
    assert talk.beat("b").assignment == ((ORDERS, (3, 4, 5)),)
    assert talk.group.state() == "Stable"


def test_a_member_that_holds_none_of_what_it_should_give_up_is_not_asked() -> None:
    talk = talk_of("a")
    talk.join("b")
    answer = talk.beat("a", owned=((ORDERS, (0, 1, 2)),))
    assert answer.member_epoch == talk.group.group_epoch
    assert talk.beat("b").assignment == ((ORDERS, (3, 4, 5)),)


def test_what_a_member_left_behind_goes_to_the_others_at_once() -> None:
    talk = talk_of("a", "b")
    kept = set(talk.numbers("a"))
    assert talk.leave("b").member_epoch == -1
    talk.beat("a")
    assert kept < set(talk.numbers("a")) == set(range(6))


def test_a_third_member_takes_from_both_and_nothing_else_moves() -> None:
    talk = talk_of("a", "b")
    before = {member_id: set(talk.numbers(member_id)) for member_id in "ab"}
    talk.join("c")
    talk.settle("a", "b", "c")
    for member_id in "ab":
        assert set(talk.numbers(member_id)) < before[member_id]
    assert sorted(len(talk.numbers(member_id)) for member_id in "abc") == [2, 2, 2]


def test_a_member_that_subscribes_to_something_else_gives_up_the_old_first() -> None:
    talk = ConsumerTalk(topics(orders=2, payments=2))
    talk.join("a")
    asked = talk.beat("a", subscribed_topic_names=("payments",), owned=None)
    assert asked.assignment == ()
    talk.settle("a")
    assert talk.owned["a"] == ((topic_id("payments"), (0, 1)),)


def test_a_topic_that_grows_is_shared_out_anew() -> None:
    talk = talk_of("a", "b", partitions=2)
    talk.catalog.update(topics(orders=4))
    talk.settle("a", "b")
    assert sorted(talk.numbers("a") + talk.numbers("b")) == [0, 1, 2, 3]
    assert len(talk.numbers("a")) == 2


def test_a_topic_that_is_made_later_is_assigned_then() -> None:
    talk = ConsumerTalk({})
    assert talk.join("a").assignment == ()
    talk.catalog.update(topics(orders=2))
    assert talk.beat("a").assignment == ((ORDERS, (0, 1)),)


def test_a_deleted_topic_is_given_up() -> None:
    talk = talk_of("a")
    del talk.catalog["orders"]
    assert talk.wait(1) == []
    talk.settle("a")
    assert talk.owned["a"] == ()


def test_a_topic_that_was_made_anew_is_another_topic() -> None:
    talk = talk_of("a")
    talk.catalog["orders"] = (b"another id------", 1)
    talk.settle("a")
    assert talk.owned["a"] == ((b"another id------", (0,)),)


def test_topics_nobody_asked_for_do_not_disturb_the_group() -> None:
    talk = talk_of("a")
    epoch = talk.group.group_epoch
    talk.catalog.update(topics(payments=4))
    talk.beat("a")
    assert talk.group.group_epoch == epoch


# Patterns.


def test_a_pattern_finds_topics_that_are_there_and_that_come_later() -> None:
    talk = ConsumerTalk(topics(orders_eu=1, orders_us=1, payments=1))
    talk.join("a", subscribed_topic_names=None, subscribed_topic_regex="orders_.*")
    assert [entry[0] for entry in talk.owned["a"]] == [topic_id("orders_eu"), topic_id("orders_us")]
    talk.catalog.update(topics(orders_jp=1))
    talk.beat("a")
    assert len(talk.owned["a"]) == 3
    assert talk.group.subscribed_topics() == {"orders_eu", "orders_us", "orders_jp"}


def test_an_empty_pattern_ends_the_pattern() -> None:
    talk = ConsumerTalk(topics(orders=1, payments=1))
    talk.join("a", subscribed_topic_regex="pay.*")
    assert len(talk.owned["a"]) == 2
    talk.beat("a", subscribed_topic_regex="")
    talk.settle("a")
    assert dict(talk.owned["a"]) == {ORDERS: (0,)}


def test_a_pattern_that_is_none_is_refused_with_the_reason() -> None:
    talk = ConsumerTalk(topics(orders=1))
    answer = talk.join("a", subscribed_topic_regex="orders(")
    assert answer.error is GroupError.INVALID_REGULAR_EXPRESSION
    assert "not closed" in (answer.message or "")
    assert talk.group.is_empty()


# Epochs and lost answers.


def test_a_member_that_missed_our_answer_comes_with_its_old_epoch() -> None:
    talk = talk_of("a", "b")
    epoch = talk.epochs["a"]
    talk.leave("b")
    owned = talk.owned["a"]
    for _ in range(3):
        talk.catalog.update(topics(orders=talk.catalog["orders"][1] + 1))
        answer = talk.beat("a", member_epoch=epoch, owned=owned)
        assert answer.error is GroupError.NONE
        assert answer.assignment == ((ORDERS, tuple(range(talk.catalog["orders"][1]))),)


def test_an_answer_that_was_missed_is_given_again() -> None:
    talk = talk_of("a", "b")
    epoch, owned = talk.epochs["a"], talk.owned["a"]
    talk.leave("b")
    first = talk.beat("a", member_epoch=epoch, owned=owned)
    again = talk.beat("a", member_epoch=epoch, owned=owned)
    assert again == first
    assert again.assignment == ((ORDERS, (0, 1, 2, 3, 4, 5)),)


def test_a_member_that_joins_anew_has_let_go_of_what_it_was_asked_to() -> None:
    talk = talk_of("a")
    talk.join("b")
    talk.beat("a", owned=None)
    assert talk.join("a").assignment == ((ORDERS, (0, 1, 2)),)
    assert talk.beat("b").assignment == ((ORDERS, (3, 4, 5)),)
    assert talk.group.state() == "Stable"
    assert talk.wait(REBALANCE_MS // 2) == []


def test_a_member_that_missed_being_asked_to_let_go_is_asked_again() -> None:
    talk = talk_of("a")
    epoch, owned = talk.epochs["a"], talk.owned["a"]
    talk.catalog.update(topics(orders=7))
    talk.beat("a")
    talk.join("b")
    for _ in range(3):
        asked = talk.beat("a", member_epoch=epoch, owned=owned)
        assert (asked.error, asked.assignment) == (GroupError.NONE, ((ORDERS, (0, 1, 2, 3)),))
        assert talk.beat("b").assignment is None


@pytest.mark.parametrize("owned", [None, ((ORDERS, (0, 1, 2, 3, 4, 5)),)])
def test_an_old_epoch_with_partitions_that_it_gave_up_is_fenced(owned: object) -> None:
    talk = talk_of("a")
    epoch = talk.epochs["a"]
    talk.join("b")
    talk.beat("a", owned=((ORDERS, (0, 1, 2)),))
    answer = talk.beat("a", member_epoch=epoch, owned=owned)
    assert answer.error is GroupError.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("difference", [-2, 1, 100])
def test_an_epoch_that_the_member_never_had_is_fenced(difference: int) -> None:
    talk = talk_of("a", "b", "c")
    answer = talk.beat("a", member_epoch=talk.epochs["a"] + difference)
    assert answer.error is GroupError.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_and_gets_its_part_back() -> None:
    talk = talk_of("a", "b")
    before = talk.owned["a"]
    assert talk.join("a").assignment == before
    assert talk.group.state() == "Stable"


def test_a_stranger_with_an_epoch_is_told_that_it_is_one() -> None:
    talk = talk_of("a")
    answer = talk.send(HeartbeatRequest("stranger", 3))
    assert answer.error is GroupError.UNKNOWN_MEMBER_ID
    assert talk.leave("stranger").error is GroupError.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "change",
    [
        {"member_id": ""},
        {"instance_id": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": ((ORDERS, (0,)),)},
        {"subscribed_topic_names": None},
    ],
)
def test_a_join_that_lacks_something_is_refused(change: dict[str, object]) -> None:
    talk = ConsumerTalk(topics(orders=1))
    answer = talk.join("a", **change)
    assert answer.error is GroupError.INVALID_REQUEST
    assert answer.message
    assert talk.group.is_empty()


def test_a_full_group_takes_nobody_new() -> None:
    talk = ConsumerTalk(topics(orders=1), members_max=1)
    talk.join("a")
    assert talk.join("b").error is GroupError.GROUP_MAX_SIZE_REACHED
    assert talk.join("a").error is GroupError.NONE


# Assignors.


def test_an_assignor_that_does_not_exist_is_refused() -> None:
    talk = ConsumerTalk(topics(orders=1))
    answer = talk.join("a", server_assignor="magic")
    assert answer.error is GroupError.UNSUPPORTED_ASSIGNOR
    assert "uniform" in (answer.message or "")


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    talk = ConsumerTalk(topics(orders=2, payments=2))
    talk.join("a", "orders", "payments", server_assignor="range")
    talk.join("b", "orders", "payments")
    assert talk.group.describe().assignor == "range"
    talk.settle("a", "b")
    assert talk.owned["a"] == ((ORDERS, (0,)), (topic_id("payments"), (0,)))
    talk.beat("a", server_assignor="uniform")
    assert talk.group.describe().assignor == "uniform"


# Time.


def test_a_silent_member_is_dropped_after_its_session() -> None:
    talk = talk_of("a", "b")
    assert talk.group.next_deadline_ms() == talk.now_ms + SESSION_MS
    assert talk.wait(SESSION_MS - 1) == []
    talk.beat("a")
    assert talk.wait(1) == ["b"]
    talk.beat("a")
    assert talk.numbers("a") == tuple(range(6))
    assert talk.beat("b").error is GroupError.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_let_go_in_time_is_dropped() -> None:
    talk = talk_of("a")
    talk.join("b")
    asked = talk.beat("a", owned=None)
    held = ((ORDERS, tuple(range(6))),)
    for _ in range(REBALANCE_MS // 10_000):
        answer = talk.beat("a", owned=held)
        assert (answer.error, answer.member_epoch) == (GroupError.NONE, asked.member_epoch)
        talk.beat("b")
        dropped = talk.wait(10_000)
    assert dropped == ["a"]
    talk.beat("b")
    assert talk.numbers("b") == tuple(range(6))


def test_a_member_that_let_go_in_time_stays() -> None:
    talk = talk_of("a")
    talk.join("b")
    talk.beat("a", owned=None)
    talk.wait(REBALANCE_MS // 2)
    talk.beat("a"), talk.beat("b")
    talk.wait(REBALANCE_MS // 2)
    talk.settle("a", "b")


def test_an_empty_group_has_nothing_to_wait_for() -> None:
    talk = talk_of("a")
    talk.leave("a")
    assert talk.group.is_empty() and talk.group.next_deadline_ms() is None
    assert talk.group.describe().state == "Empty"


# Commits.


def test_a_commit_needs_the_epoch_that_the_member_has() -> None:
    talk = talk_of("a")
    check = talk.group.check_commit
    assert check("a", talk.epochs["a"]) is GroupError.NONE
    assert check("a", talk.epochs["a"] - 1) is GroupError.STALE_MEMBER_EPOCH
    assert check("b", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert check("", -1) is GroupError.UNKNOWN_MEMBER_ID
    assert check("", -1, transactional=True) is GroupError.NONE


def test_an_empty_group_lets_anyone_commit() -> None:
    assert ConsumerTalk({}).group.check_commit("", -1) is GroupError.NONE


def test_a_member_that_has_to_let_go_can_still_commit_what_it_read() -> None:
    talk = talk_of("a")
    talk.join("b")
    asked = talk.beat("a", owned=None)
    assert talk.group.check_commit("a", asked.member_epoch) is GroupError.NONE


def test_whoever_claims_to_be_a_member_must_be_it_to_read_offsets() -> None:
    talk = talk_of("a")
    check = talk.group.check_fetch
    assert check(None, -1) is GroupError.NONE
    assert check("a", talk.epochs["a"]) is GroupError.NONE
    assert check("a", talk.epochs["a"] + 1) is GroupError.STALE_MEMBER_EPOCH
    assert check("b", -1) is GroupError.UNKNOWN_MEMBER_ID


# What is shown.


def test_a_group_describes_what_members_have_and_what_they_should_have() -> None:
    talk = talk_of("a")
    talk.join("b", rack_id="r", client_id="c", client_host="/h")
    talk.beat("a", owned=None)
    described = talk.group.describe()
    assert (described.state, described.assignor) == ("Reconciling", "uniform")
    assert described.assignment_epoch == described.group_epoch
    first, second = described.members
    assert first.assignment == first.target_assignment == ((ORDERS, (0, 1, 2)),)
    assert (second.assignment, second.target_assignment) == ((), ((ORDERS, (3, 4, 5)),))
    assert (second.rack_id, second.client_id, second.client_host) == ("r", "c", "/h")
    assert second.subscribed_topic_names == ("orders",)
