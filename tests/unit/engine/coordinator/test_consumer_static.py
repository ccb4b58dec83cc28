"""Consumer groups: static members, which leave for a while and come back."""

from __future__ import annotations

import pytest
from tests.unit.engine.coordinator.conftest import ConsumerTalk, topics

from headrace.engine.coordinator.values import GroupError

SESSION_MS = 45_000


def stable() -> ConsumerTalk:
    """Members a1 and b1 of the instances a and b, three partitions each."""
    talk = ConsumerTalk(topics(orders=6))
    talk.join("a1", instance_id="a")
    talk.join("b1", instance_id="b")
    talk.settle("a1", "b1")
    return talk


def test_a_static_member_that_comes_back_gets_its_part_and_nobody_notices() -> None:
    talk = stable()
    epoch, part = talk.group.group_epoch, talk.owned["b1"]
    away = talk.leave("b1", member_epoch=-2, instance_id="b")
    assert (away.error, away.member_epoch) == (GroupError.NONE, -2)
    assert talk.beat("a1").assignment is None
    back = talk.join("b2", instance_id="b")
    assert (back.error, back.assignment) == (GroupError.NONE, part)
    assert talk.group.group_epoch == back.member_epoch == epoch
    assert [member.member_id for member in talk.group.describe().members] == ["a1", "b2"]


def test_a_static_member_that_stays_away_is_dropped_after_its_session() -> None:
    talk = stable()
    talk.leave("b1", member_epoch=-2, instance_id="b")
    talk.wait(SESSION_MS - 1)
    talk.beat("a1")
    assert talk.wait(1) == ["b1"]
    talk.beat("a1")
    assert talk.numbers("a1") == tuple(range(6))


def test_an_instance_id_in_use_is_not_given_to_another() -> None:
    talk = stable()
    assert talk.join("b2", instance_id="b").error is GroupError.UNRELEASED_INSTANCE_ID
    assert talk.beat("b1").error is GroupError.NONE


def test_the_same_member_may_join_again_under_its_instance_id() -> None:
    talk = stable()
    part = talk.owned["b1"]
    assert talk.join("b1", instance_id="b").assignment == part


def test_a_member_does_not_change_its_instance_id() -> None:
    talk = stable()
    assert talk.join("b1").error is GroupError.INVALID_REQUEST
    assert talk.join("b1", instance_id="c").error is GroupError.INVALID_REQUEST
    assert talk.beat("b1", instance_id="b").error is GroupError.NONE


def test_an_old_self_is_fenced_and_an_unknown_instance_unknown() -> None:
    talk = stable()
    talk.leave("b1", member_epoch=-2, instance_id="b")
    talk.join("b2", instance_id="b")
    assert talk.beat("b1", instance_id="b").error is GroupError.FENCED_INSTANCE_ID
    assert talk.leave("b1", instance_id="b").error is GroupError.FENCED_INSTANCE_ID
    assert talk.beat("a1", instance_id="c").error is GroupError.UNKNOWN_MEMBER_ID


def test_a_member_that_said_it_left_does_not_go_on_with_its_old_epoch() -> None:
    talk = stable()
    epoch = talk.epochs["b1"]
    talk.leave("b1", member_epoch=-2, instance_id="b")
    answer = talk.beat("b1", member_epoch=epoch, instance_id="b")
    assert answer.error is GroupError.FENCED_MEMBER_EPOCH


def test_what_an_absent_member_will_not_get_back_is_free_at_once() -> None:
    talk = stable()
    talk.leave("b1", member_epoch=-2, instance_id="b")
    talk.join("c")
    talk.beat("a1"), talk.beat("a1"), talk.beat("c")
    assert len(talk.numbers("c")) == 2
    assert talk.group.state() == "Stable"
    assert len(dict(talk.join("b2", instance_id="b").assignment or ())) == 1
    assert len(talk.numbers("b2")) == 2


def test_a_member_that_goes_away_has_let_go_of_what_it_was_asked_to() -> None:
    talk = ConsumerTalk(topics(orders=6))
    talk.join("a1", instance_id="a")
    talk.join("b")
    talk.beat("a1", owned=None)
    talk.leave("a1", member_epoch=-2, instance_id="a")
    assert len(dict(talk.beat("b").assignment or ())) == 1
    assert talk.numbers("b") == (3, 4, 5)
    assert talk.join("a2", instance_id="a").error is GroupError.NONE
    assert talk.numbers("a2") == (0, 1, 2)


def test_a_static_member_that_leaves_for_good_does_not_keep_its_part() -> None:
    talk = stable()
    talk.leave("b1", instance_id="b")
    talk.beat("a1")
    assert talk.numbers("a1") == tuple(range(6))


@pytest.mark.parametrize("back_as", ["z", "0"])
def test_the_order_of_range_does_not_change_with_the_ids_of_a_restart(back_as: str) -> None:
    talk = ConsumerTalk(topics(orders=4))
    talk.join("m", instance_id="b", server_assignor="range")
    talk.join("n", instance_id="a", server_assignor="range")
    talk.join("l", server_assignor="range")
    talk.settle("m", "n", "l")
    assert [talk.numbers(member_id) for member_id in "nml"] == [(0, 1), (2,), (3,)]
    talk.leave("m", member_epoch=-2, instance_id="b")
    talk.join(back_as, instance_id="b", server_assignor="range")
    talk.catalog.update(topics(orders=3))
    talk.settle(back_as, "n", "l")
    assert [talk.numbers(member_id) for member_id in ("n", back_as, "l")] == [(0,), (1,), (2,)]
