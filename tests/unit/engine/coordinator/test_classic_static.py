"""Classic groups: static members, whose place survives a restart."""

from __future__ import annotations

import pytest
from tests.unit.engine.coordinator.conftest import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicTalk,
    subscription,
)

from headrace.engine.coordinator.values import GroupError


def stable() -> ClassicTalk:
    """m1 leads and has instance a; m2 has instance b."""
    talk = ClassicTalk()
    talk.join(group_instance_id="a")
    talk.join(group_instance_id="b")
    talk.join("m1", group_instance_id="a")
    talk.sync("m2", instance_id="b")
    talk.sync("m1", {"m1": b"one", "m2": b"two"}, instance_id="a")
    assert (talk.group.state, talk.group.generation) == ("Stable", 2)
    return talk


def test_a_static_member_needs_no_id_before_it_joins() -> None:
    talk = ClassicTalk()
    joined = talk.joined(talk.join(group_instance_id="a", requires_known_member_id=True))
    assert joined.error is GroupError.NONE
    assert joined.members[0].group_instance_id == "a"


def test_a_static_member_that_comes_back_takes_up_its_work_without_a_rebalance() -> None:
    talk = stable()
    back = talk.joined(talk.join(group_instance_id="b"))
    assert (back.error, back.member_id) == (GroupError.NONE, "m3")
    assert (back.generation, back.leader, back.members) == (2, "m1", ())
    assert talk.synced(talk.sync("m3", instance_id="b")).assignment == b"two"
    assert talk.heartbeat("m1", instance_id="a") is GroupError.NONE


def test_what_only_the_assignor_reads_does_not_make_a_static_member_another() -> None:
    talk = stable()
    metadata = subscription("orders", owned=b"nothing yet")
    back = talk.joined(talk.join(group_instance_id="b", protocols=(("range", metadata),)))
    assert (back.error, back.generation) == (GroupError.NONE, 2)


def test_a_static_member_that_reads_other_topics_now_starts_a_rebalance() -> None:
    talk = stable()
    back = talk.join(group_instance_id="b", protocols=(("range", subscription("payments")),))
    assert back not in talk.answered
    talk.join("m1", group_instance_id="a")
    assert talk.joined(back).generation == 3


def test_outside_of_consumers_any_other_metadata_starts_a_rebalance() -> None:
    talk = ClassicTalk()
    change = {"protocol_type": "connect", "group_instance_id": "a"}
    talk.join(protocols=(("range", subscription("orders", owned=b"1")),), **change)
    talk.sync("m1", instance_id="a")
    talk.join(protocols=(("range", subscription("orders", owned=b"2")),), **change)
    assert talk.group.generation == 2


def test_the_old_self_of_a_static_member_is_fenced() -> None:
    talk = stable()
    talk.join(group_instance_id="b")
    fenced = GroupError.FENCED_INSTANCE_ID
    assert talk.heartbeat("m2", instance_id="b") is fenced
    assert talk.synced(talk.sync("m2", instance_id="b")).error is fenced
    assert talk.joined(talk.join("m2", group_instance_id="b")).error is fenced
    assert talk.group.check_commit("m2", "b", 2) is fenced
    assert talk.leave(("m2", "b")) == (fenced,)
    assert talk.group.state == "Stable"


def test_an_old_self_that_waits_is_fenced_at_once() -> None:
    talk = stable()
    waiting = talk.join("m1", group_instance_id="a")
    back = talk.join(group_instance_id="a")
    assert talk.joined(waiting).error is GroupError.FENCED_INSTANCE_ID
    talk.join("m2", group_instance_id="b")
    assert talk.joined(back).leader == "m3"


def test_a_leader_that_comes_back_does_not_assign_again() -> None:
    talk = stable()
    new = talk.joined(talk.join(group_instance_id="a", can_skip_assignment=True))
    assert (new.leader, new.skip_assignment, len(new.members)) == ("m3", True, 2)
    old = talk.joined(talk.join(group_instance_id="a"))
    assert (old.leader, old.skip_assignment, old.members) == ("m3", False, ())
    assert old.member_id == "m4"
    assert talk.synced(talk.sync("m4", instance_id="a")).assignment == b"one"


def test_a_static_member_that_comes_back_in_a_rebalance_takes_part_in_it() -> None:
    talk = stable()
    leader = talk.join("m1", group_instance_id="a")
    back = talk.join(group_instance_id="b")
    assert talk.joined(leader).generation == talk.joined(back).generation == 3


def test_a_static_member_that_comes_back_while_work_is_shared_out_starts_over() -> None:
    talk = stable()
    talk.join("m1", group_instance_id="a")
    talk.join("m2", group_instance_id="b")
    waiting = talk.sync("m2", instance_id="b")
    back = talk.join(group_instance_id="a")
    assert talk.synced(waiting).error is GroupError.REBALANCE_IN_PROGRESS
    talk.join("m2", group_instance_id="b")
    assert talk.joined(back).generation == 4


def test_a_static_member_keeps_its_place_through_a_rebalance_that_it_misses() -> None:
    talk = ClassicTalk()
    talk.join(group_instance_id="a", session_timeout_ms=10 * REBALANCE_MS)
    talk.sync("m1", {"m1": b"one"}, instance_id="a")
    newcomer = talk.join(session_timeout_ms=10 * REBALANCE_MS)
    talk.wait(REBALANCE_MS)
    joined = talk.joined(newcomer)
    assert joined.leader == "m2"
    assert [member.group_instance_id for member in joined.members] == ["a", None]
    talk.sync("m2", {"m1": b"one", "m2": b"two"})
    assert talk.heartbeat("m1", 1, "a") is GroupError.ILLEGAL_GENERATION
    back = talk.joined(talk.join(group_instance_id="a", session_timeout_ms=10 * REBALANCE_MS))
    assert (back.error, back.generation) == (GroupError.NONE, 2)
    assert talk.synced(talk.sync("m3", instance_id="a")).assignment == b"one"


def test_a_rebalance_in_which_nobody_joins_goes_on_until_sessions_end() -> None:
    talk = stable()
    talk.join("m1", group_instance_id="a")
    talk.join(group_instance_id="a", protocols=(("range", subscription("payments")),))
    assert talk.leave(("m3", "a")) == (GroupError.NONE,)
    talk.wait(SESSION_MS)
    assert talk.group.state == "Empty"


def test_a_static_member_is_dropped_after_its_session_like_any_other() -> None:
    talk = stable()
    talk.wait(SESSION_MS - 1)
    talk.heartbeat("m1", instance_id="a")
    talk.wait(1)
    assert talk.heartbeat("m2", instance_id="b") is GroupError.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("member_id", ["", "m2"])
def test_a_static_member_can_be_made_to_leave_by_its_instance_id(member_id: str) -> None:
    talk = stable()
    assert talk.leave((member_id, "b"), ("", "unknown")) == (
        GroupError.NONE,
        GroupError.UNKNOWN_MEMBER_ID,
    )
    assert talk.heartbeat("m1", instance_id="a") is GroupError.REBALANCE_IN_PROGRESS
