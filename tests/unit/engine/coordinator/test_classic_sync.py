"""Classic groups: fetching the assignment, staying alive, leaving, committing."""

from __future__ import annotations

import pytest
from tests.unit.engine.coordinator.conftest import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicTalk,
    subscription,
)

from headrace.engine.coordinator.values import (
    ClassicMemberDescription,
    GroupError,
    SyncAnswer,
)


def completing(size: int = 2) -> ClassicTalk:
    """A group in which everyone joined and nobody fetched its assignment."""
    talk = ClassicTalk()
    for number in range(size):
        talk.join()
        for earlier in range(number):
            talk.join(f"m{earlier + 1}")
    assert talk.group.state == "CompletingRebalance"
    return talk


# Syncing.


def test_followers_wait_until_the_leader_has_assigned() -> None:
    talk = completing()
    follower = talk.sync("m2")
    assert follower not in talk.answered
    leader = talk.sync("m1", {"m1": b"one", "m2": b"two", "stranger": b"three"})
    assert talk.synced(leader) == SyncAnswer(GroupError.NONE, "consumer", "range", b"one")
    assert talk.synced(follower).assignment == b"two"
    assert talk.group.state == "Stable"


def test_a_follower_that_comes_after_the_leader_is_answered_at_once() -> None:
    talk = completing()
    talk.sync("m1", {"m2": b"two"})
    assert talk.synced(talk.sync("m2")).assignment == b"two"
    assert talk.synced(talk.sync("m2")).assignment == b"two", "a lost answer is given again"


def test_a_member_without_an_assignment_gets_an_empty_one() -> None:
    talk = completing()
    talk.sync("m1", {"m1": b"one"})
    assert talk.synced(talk.sync("m2")) == SyncAnswer(GroupError.NONE, "consumer", "range", b"")


def test_a_sync_that_is_sent_again_replaces_the_one_that_waits() -> None:
    talk = completing()
    lost, retried = talk.sync("m2"), talk.sync("m2")
    assert talk.synced(lost).error is GroupError.REBALANCE_IN_PROGRESS
    talk.sync("m1", {"m2": b"two"})
    assert talk.synced(retried).assignment == b"two"


def test_a_sync_needs_the_right_member_generation_and_protocol() -> None:
    talk = completing()
    assert talk.synced(talk.sync("m3")).error is GroupError.UNKNOWN_MEMBER_ID
    assert talk.synced(talk.sync("m1", generation=1)).error is GroupError.ILLEGAL_GENERATION
    inconsistent = GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert talk.synced(talk.sync("m1", protocol_name="sticky")).error is inconsistent
    assert talk.synced(talk.sync("m1", protocol_type="connect")).error is inconsistent
    right = talk.sync("m1", protocol_name="range", protocol_type="consumer")
    assert talk.synced(right).error is GroupError.NONE


def test_a_sync_during_a_rebalance_is_told_to_join_again() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    talk.join()
    assert talk.synced(talk.sync("m1")).error is GroupError.REBALANCE_IN_PROGRESS


def test_a_newcomer_sends_those_who_wait_for_the_leader_back_to_join() -> None:
    talk = completing()
    waiting = talk.sync("m2")
    talk.join()
    assert talk.synced(waiting).error is GroupError.REBALANCE_IN_PROGRESS
    assert talk.group.state == "PreparingRebalance"


def test_a_leader_that_does_not_assign_is_dropped_and_another_leads() -> None:
    talk = completing()
    waiting = talk.sync("m2")
    for _ in range(REBALANCE_MS // 5_000):
        assert waiting not in talk.answered
        talk.heartbeat("m1")
        talk.wait(5_000)
    assert talk.synced(waiting).error is GroupError.REBALANCE_IN_PROGRESS
    assert talk.heartbeat("m1") is GroupError.UNKNOWN_MEMBER_ID
    assert talk.joined(talk.join("m2")).leader == "m2"


def test_a_follower_that_never_fetches_its_assignment_is_dropped() -> None:
    talk = completing()
    talk.sync("m1", {})
    for _ in range(REBALANCE_MS // 5_000):
        talk.heartbeat("m1"), talk.heartbeat("m2")
        talk.wait(5_000)
    assert [member.member_id for member in talk.group.describe().members] == ["m1"]
    assert talk.group.state == "PreparingRebalance"


# Heartbeats and sessions.


def test_a_silent_member_is_dropped_after_its_session() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    talk.wait(SESSION_MS - 1)
    assert talk.heartbeat("m1") is GroupError.NONE
    talk.wait(1)
    assert talk.heartbeat("m1") is GroupError.REBALANCE_IN_PROGRESS
    assert talk.heartbeat("m2") is GroupError.UNKNOWN_MEMBER_ID
    assert talk.joined(talk.join("m1")).generation == 3


def test_a_heartbeat_of_an_earlier_generation_is_shut_out() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    assert talk.heartbeat("m1", 1) is GroupError.ILLEGAL_GENERATION
    assert talk.heartbeat("m1", 3) is GroupError.ILLEGAL_GENERATION


def test_a_heartbeat_between_joining_and_syncing_is_welcome() -> None:
    talk = completing()
    assert talk.heartbeat("m1") is GroupError.NONE


def test_who_waits_for_an_answer_is_not_silent() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    waiting = talk.join("m1")
    for _ in range(5):
        talk.wait(SESSION_MS - 1)
        assert talk.heartbeat("m2") is GroupError.REBALANCE_IN_PROGRESS
    talk.join("m2")
    assert talk.joined(waiting).error is GroupError.NONE
    talk.wait(SESSION_MS - 1)
    assert len(talk.group.describe().members) == 2
    talk.wait(1)
    assert talk.group.state == "Empty"


# Leaving.


def test_a_member_that_leaves_starts_a_rebalance_without_it() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    assert talk.leave("m1") == (GroupError.NONE,)
    assert talk.heartbeat("m2") is GroupError.REBALANCE_IN_PROGRESS
    alone = talk.joined(talk.join("m2"))
    assert (alone.leader, alone.generation) == ("m2", 3)


def test_the_last_member_leaves_an_empty_group_of_a_later_generation() -> None:
    talk = ClassicTalk()
    talk.stable(1)
    talk.leave("m1")
    assert (talk.group.state, talk.group.generation) == ("Empty", 2)
    assert talk.group.is_empty() and talk.group.next_deadline_ms() is None
    assert talk.joined(talk.join()).generation == 3


def test_several_leave_at_once_and_each_has_its_own_answer() -> None:
    talk = ClassicTalk()
    talk.stable(3)
    errors = talk.leave("m1", "stranger", ("m2", "no-such-instance"), "m3")
    unknown = GroupError.UNKNOWN_MEMBER_ID
    assert errors == (GroupError.NONE, unknown, unknown, GroupError.NONE)
    assert [member.member_id for member in talk.group.describe().members] == ["m2"]


def test_who_leaves_while_it_waits_is_answered() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    waiting = talk.join("m1")
    talk.leave("m1")
    assert talk.joined(waiting).error is GroupError.UNKNOWN_MEMBER_ID


def test_leaving_does_not_wait_for_the_one_who_left() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    waiting = talk.join("m1")
    talk.leave("m2")
    assert talk.joined(waiting).generation == 3


def test_a_stranger_that_leaves_disturbs_nobody() -> None:
    talk = ClassicTalk()
    talk.stable(1)
    assert talk.leave("stranger") == (GroupError.UNKNOWN_MEMBER_ID,)
    assert talk.group.state == "Stable"


# Commits.


def test_an_empty_group_lets_anyone_commit_without_a_generation() -> None:
    talk = ClassicTalk()
    assert talk.group.check_commit("", None, -1) is GroupError.NONE
    talk.stable(1)
    assert talk.group.check_commit("", None, -1) is GroupError.UNKNOWN_MEMBER_ID
    assert talk.group.check_commit("", None, -1, transactional=True) is GroupError.NONE


def test_only_a_member_of_this_generation_may_commit() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    check = talk.group.check_commit
    assert check("m1", None, 2) is GroupError.NONE
    assert check("m1", None, 1) is GroupError.ILLEGAL_GENERATION
    assert check("m9", None, 2) is GroupError.UNKNOWN_MEMBER_ID


def test_a_member_may_commit_while_others_join_and_not_while_work_is_shared_out() -> None:
    talk = ClassicTalk()
    talk.stable(1)
    talk.join()
    assert talk.group.check_commit("m1", None, 1) is GroupError.NONE
    talk.join("m1")
    assert talk.group.check_commit("m1", None, 2) is GroupError.REBALANCE_IN_PROGRESS
    assert talk.group.check_commit("m1", None, 2, transactional=True) is GroupError.NONE


def test_a_commit_counts_as_a_heartbeat() -> None:
    talk = ClassicTalk()
    talk.stable(1)
    for _ in range(3):
        talk.wait(SESSION_MS - 1)
        assert talk.group.check_commit("m1", None, 1, talk.now_ms) is GroupError.NONE


# What is shown.


def test_a_stable_group_describes_what_everyone_does() -> None:
    talk = ClassicTalk()
    talk.stable(1)
    described = talk.group.describe()
    assert (described.state, described.generation) == ("Stable", 1)
    assert (described.protocol_type, described.protocol) == ("consumer", "range")
    assert described.members == (
        ClassicMemberDescription("m1", None, "client", "/10.0.0.1", subscription("orders"), b"m1"),
    )


def test_a_group_in_a_rebalance_has_no_protocol_yet() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    talk.join("m1")
    described = talk.group.describe()
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert [(m.metadata, m.assignment) for m in described.members] == [(b"", b"")] * 2


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_what_is_no_subscription_leaves_the_topics_unknown(protocol_type: str) -> None:
    talk = ClassicTalk()
    talk.join(protocol_type=protocol_type, protocols=(("range", b"\xff"),))
    assert talk.group.subscribed_topics() is None
