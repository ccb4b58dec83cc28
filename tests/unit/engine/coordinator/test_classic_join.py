"""Classic groups: joining, leading, choosing a protocol."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.coordinator.conftest import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicTalk,
    subscription,
)

from headrace.engine.coordinator.values import GroupError, JoinedMember

ORDERS = subscription("orders")


def test_the_first_member_leads_and_alone_sees_the_metadata_of_all() -> None:
    talk = ClassicTalk()
    first = talk.joined(talk.join())
    assert (first.error, first.generation, first.leader) == (GroupError.NONE, 1, "m1")
    second, again = talk.join(), talk.join("m1")
    leader, follower = talk.joined(again), talk.joined(second)
    assert leader.generation == follower.generation == 2
    assert leader.leader == follower.leader == "m1"
    assert leader.members == (JoinedMember("m1", None, ORDERS), JoinedMember("m2", None, ORDERS))
    assert follower.members == ()
    assert (leader.protocol_type, leader.protocol_name) == ("consumer", "range")


def test_a_client_without_an_id_is_sent_back_with_one() -> None:
    talk = ClassicTalk()
    refused = talk.joined(talk.join(requires_known_member_id=True))
    assert (refused.error, refused.member_id) == (GroupError.MEMBER_ID_REQUIRED, "m1")
    assert talk.group.state == "Empty"
    assert talk.joined(talk.join("m1")).error is GroupError.NONE


def test_an_id_that_was_given_out_and_not_used_expires() -> None:
    talk = ClassicTalk()
    talk.join(requires_known_member_id=True)
    talk.wait(SESSION_MS)
    assert talk.group.is_empty()
    assert talk.joined(talk.join("m1")).error is GroupError.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_an_id_that_was_given_out() -> None:
    talk = ClassicTalk()
    talk.stable(1)
    talk.join(requires_known_member_id=True)
    again = talk.join("m1")
    assert again not in talk.answered
    newcomer = talk.join("m2")
    assert talk.joined(again).generation == talk.joined(newcomer).generation == 2


def test_a_rebalance_goes_on_when_the_id_it_waits_for_is_given_back() -> None:
    talk = ClassicTalk()
    talk.stable(1)
    talk.join(requires_known_member_id=True)
    again = talk.join("m1")
    assert talk.leave("m2") == (GroupError.NONE,)
    assert talk.joined(again).generation == 2


def test_an_id_that_nobody_gave_out_is_unknown() -> None:
    talk = ClassicTalk()
    assert talk.joined(talk.join("stranger")).error is GroupError.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_a_session_outside_the_limits_is_refused(session_timeout_ms: int) -> None:
    talk = ClassicTalk()
    refused = talk.joined(talk.join(session_timeout_ms=session_timeout_ms))
    assert refused.error is GroupError.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize(
    "change", [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}, {"protocols": ()}]
)
def test_who_shares_no_protocol_with_the_others_is_refused(change: dict[str, Any]) -> None:
    talk = ClassicTalk()
    talk.stable(1)
    assert talk.joined(talk.join(**change)).error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert talk.group.state == "Stable"


@pytest.mark.parametrize("change", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_first_member_has_to_bring_a_protocol(change: dict[str, Any]) -> None:
    talk = ClassicTalk()
    assert talk.joined(talk.join(**change)).error is GroupError.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_alone_may_change_its_protocol() -> None:
    talk = ClassicTalk()
    talk.stable(1)
    changed = talk.joined(talk.join("m1", protocols=(("sticky", b"s"),)))
    assert (changed.error, changed.protocol_name) == (GroupError.NONE, "sticky")


def test_the_protocol_that_most_prefer_among_the_common_ones_is_chosen() -> None:
    talk = ClassicTalk()
    first = (("only-mine", b""), ("range", b"r1"), ("sticky", b"s1"))
    second = (("sticky", b"s2"), ("range", b"r2"))
    talk.join(protocols=first)
    talk.join(protocols=second)
    talk.join("m1", protocols=first)
    third = talk.join(protocols=second)
    talk.join("m2", protocols=second)
    leader = talk.join("m1", protocols=first)
    assert talk.joined(third).protocol_name == "sticky"
    assert [m.metadata for m in talk.joined(leader).members] == [b"s1", b"s2", b"s2"]


def test_a_full_group_takes_nobody_but_those_who_have_a_place() -> None:
    talk = ClassicTalk(members_max=2)
    talk.stable(1)
    talk.join(requires_known_member_id=True)
    assert talk.joined(talk.join()).error is GroupError.GROUP_MAX_SIZE_REACHED
    talk.join("m1")
    assert talk.joined(talk.join("m2")).error is GroupError.NONE


def test_the_first_rebalance_waits_for_a_fleet_that_starts_together() -> None:
    talk = ClassicTalk(rebalance_delay_ms=3_000)
    first = talk.join()
    talk.wait(2_000)
    second = talk.join()
    talk.wait(1_000)
    assert talk.answered == {}
    talk.wait(3_000)
    assert talk.joined(first).generation == talk.joined(second).generation == 1
    assert len(talk.joined(first).members) == 2


def test_newcomers_put_the_first_rebalance_off_no_longer_than_its_timeout() -> None:
    talk = ClassicTalk(rebalance_delay_ms=3_000)
    first = talk.join(rebalance_timeout_ms=7_000)
    for _ in range(7):
        assert first not in talk.answered
        talk.join(rebalance_timeout_ms=7_000)
        talk.wait(1_000)
    assert talk.joined(first).generation == 1


def test_a_member_that_joins_twice_is_answered_twice_and_counts_once() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    lost, retried = talk.join("m1"), talk.join("m1")
    assert talk.joined(lost).error is GroupError.REBALANCE_IN_PROGRESS
    talk.join("m2")
    assert len(talk.joined(retried).members) == 2


@pytest.mark.parametrize("member_id", ["m1", "m2"])
def test_who_lost_the_answer_to_its_join_is_told_again(member_id: str) -> None:
    talk = ClassicTalk()
    talk.join()
    second, first = talk.join(), talk.join("m1")
    again = talk.joined(talk.join(member_id))
    assert again == talk.joined(first if member_id == "m1" else second)
    assert talk.group.state == "CompletingRebalance"


def test_a_follower_that_joins_a_stable_group_unchanged_disturbs_nobody() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    answer = talk.joined(talk.join("m2"))
    assert (answer.error, answer.generation, answer.leader) == (GroupError.NONE, 2, "m1")
    assert talk.group.state == "Stable"


def test_a_leader_that_joins_a_stable_group_starts_a_rebalance() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    leader = talk.join("m1")
    assert talk.group.state == "PreparingRebalance"
    talk.join("m2")
    assert talk.joined(leader).generation == 3


def test_a_member_that_reads_other_topics_now_starts_a_rebalance() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    changed = talk.join("m2", protocols=(("range", subscription("payments")),))
    assert talk.heartbeat("m1") is GroupError.REBALANCE_IN_PROGRESS
    leader = talk.join("m1")
    assert talk.joined(changed).generation == 3
    assert talk.joined(leader).members[1].metadata == subscription("payments")
    assert talk.group.subscribed_topics() == frozenset({"orders", "payments"})


def test_who_does_not_join_in_time_is_out_and_another_leads() -> None:
    talk = ClassicTalk()
    talk.stable(3)
    second, third = talk.join("m2", protocols=(("range", b"new"),)), talk.join("m3")
    for _ in range(REBALANCE_MS // 5_000):
        assert talk.heartbeat("m1", 3) is GroupError.REBALANCE_IN_PROGRESS
        talk.wait(5_000)
    assert talk.joined(third).leader == "m2"
    assert [member.member_id for member in talk.joined(second).members] == ["m2", "m3"]
    assert talk.heartbeat("m1", 3) is GroupError.UNKNOWN_MEMBER_ID


def test_a_rebalance_takes_as_long_as_the_slowest_member_asks() -> None:
    talk = ClassicTalk()
    talk.join(rebalance_timeout_ms=20_000)
    talk.join(rebalance_timeout_ms=50_000)
    talk.join("m1", rebalance_timeout_ms=20_000)
    talk.sync("m2")
    talk.sync("m1")
    waiting = talk.join("m1", rebalance_timeout_ms=20_000)
    for _ in range(10):
        assert waiting not in talk.answered
        talk.heartbeat("m2")
        talk.wait(5_000)
    assert talk.joined(waiting).generation == 3


def test_a_client_that_knows_one_timeout_has_it_used_for_both() -> None:
    talk = ClassicTalk()
    talk.join()
    talk.join(rebalance_timeout_ms=-1)
    assert talk.group.next_deadline_ms() == 1_000 + SESSION_MS
    talk.wait(SESSION_MS)
    assert [member.member_id for member in talk.group.describe().members] == ["m2"]


def test_a_newcomer_whose_client_may_be_gone_does_not_wait_for_ever() -> None:
    talk = ClassicTalk()
    talk.stable(1)
    newcomer = talk.join(rebalance_timeout_ms=1_800_000)
    for _ in range(60):
        assert newcomer not in talk.answered
        talk.heartbeat("m1")
        talk.wait(5_000)
    assert talk.joined(newcomer).error is GroupError.UNKNOWN_MEMBER_ID


def test_a_dead_group_answers_all_who_wait_and_takes_nobody() -> None:
    talk = ClassicTalk()
    talk.stable(2)
    waiting = talk.join("m1")
    talk.file(talk.group.become_dead())
    assert talk.joined(waiting).error is GroupError.NOT_COORDINATOR
    assert talk.joined(talk.join()).error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert talk.synced(talk.sync("m1")).error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert talk.leave("m1") == (GroupError.COORDINATOR_NOT_AVAILABLE,)
    assert talk.group.check_commit("", None, -1) is GroupError.COORDINATOR_NOT_AVAILABLE
    assert talk.group.describe().state == "Dead"
    assert talk.group.next_deadline_ms() is None
