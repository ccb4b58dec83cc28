"""Share groups: who is in, and which partitions each should ask."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.coordinator.conftest import topic_id, topics

from headrace.engine.coordinator.share import ShareGroup
from headrace.engine.coordinator.values import GroupError, HeartbeatAnswer, ShareRequest

SESSION_MS = 45_000
ORDERS = topic_id("orders")


class Talk:
    def __init__(self, partitions: int, **settings: Any) -> None:
        self.group = ShareGroup("workers", **settings)
        self.catalog = topics(orders=partitions)
        self.now_ms = 1_000
        self.epochs: dict[str, int] = {}

    def join(self, member_id: str, /, **changes: Any) -> HeartbeatAnswer:
        request = ShareRequest(member_id, 0, subscribed_topic_names=("orders",))
        return self.send(request._replace(**changes))

    def beat(self, member_id: str, **changes: Any) -> HeartbeatAnswer:
        return self.send(ShareRequest(member_id, self.epochs[member_id])._replace(**changes))

    def send(self, request: ShareRequest) -> HeartbeatAnswer:
        answer = self.group.on_heartbeat(request, self.catalog, self.now_ms)
        if answer.error is GroupError.NONE:
            self.epochs[request.member_id] = answer.member_epoch
        return answer

    def parts(self) -> dict[str, tuple[int, ...]]:
        """What everyone reads after one more heartbeat of each."""
        for member in self.group.describe().members:
            self.beat(member.member_id)
        return {
            member.member_id: dict(member.assignment).get(ORDERS, ())
            for member in self.group.describe().members
        }


def test_members_share_the_partitions_and_take_their_part_at_once() -> None:
    talk = Talk(4)
    assert talk.join("a").assignment == ((ORDERS, (0, 1, 2, 3)),)
    assert talk.join("b").assignment == ((ORDERS, (2, 3)),)
    assert talk.beat("a").assignment == ((ORDERS, (0, 1)),)
    assert talk.beat("a").assignment is None


def test_with_more_members_than_partitions_each_still_has_one() -> None:
    talk = Talk(2)
    for member_id in "abcde":
        talk.join(member_id)
    parts = list(talk.parts().values())
    assert all(len(part) == 1 for part in parts)
    assert sorted(parts.count((number,)) for number in (0, 1)) == [2, 3]


def test_a_newcomer_moves_nobody_who_can_stay() -> None:
    talk = Talk(2)
    for member_id in "abcd":
        talk.join(member_id)
    before = talk.parts()
    talk.join("e")
    after = talk.parts()
    assert {member_id: after[member_id] for member_id in "abcd"} == before


def test_a_topic_that_grows_reaches_members_with_their_next_heartbeat() -> None:
    talk = Talk(1)
    talk.join("a")
    talk.catalog = topics(orders=2)
    assert talk.beat("a").assignment == ((ORDERS, (0, 1)),)


def test_a_member_that_missed_our_answer_comes_with_its_old_epoch() -> None:
    talk = Talk(4)
    talk.join("a")
    epoch = talk.epochs["a"]
    talk.join("b")
    assert talk.beat("a").assignment == ((ORDERS, (0, 1)),)
    again = talk.beat("a", member_epoch=epoch)
    assert (again.error, again.assignment) == (GroupError.NONE, ((ORDERS, (0, 1)),))


@pytest.mark.parametrize("difference", [-2, 1, 50])
def test_an_epoch_that_the_member_never_had_is_fenced(difference: int) -> None:
    talk = Talk(4)
    for member_id in "abc":
        talk.join(member_id)
    talk.parts(), talk.parts()
    answer = talk.beat("a", member_epoch=talk.epochs["a"] + difference)
    assert answer.error is GroupError.FENCED_MEMBER_EPOCH
    assert talk.join("a").error is GroupError.NONE


def test_a_member_that_leaves_is_gone_and_its_part_with_the_others() -> None:
    talk = Talk(2)
    talk.join("a"), talk.join("b")
    left = talk.beat("b", member_epoch=-1)
    assert (left.error, left.member_epoch, left.assignment) == (GroupError.NONE, -1, None)
    assert not talk.group.has_member("b") and talk.group.has_member("a")
    assert talk.parts() == {"a": (0, 1)}
    assert talk.beat("b", member_epoch=-1).error is GroupError.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_named_so_that_its_leases_end() -> None:
    talk = Talk(2)
    talk.join("a"), talk.join("b")
    talk.now_ms += SESSION_MS - 1
    talk.beat("a")
    assert talk.group.tick(talk.now_ms, talk.catalog) == []
    assert talk.group.next_deadline_ms() == 1_000 + SESSION_MS
    assert talk.group.tick(talk.now_ms + 1, talk.catalog) == ["b"]
    assert talk.parts() == {"a": (0, 1)}


def test_who_subscribes_to_other_topics_reads_those() -> None:
    talk = Talk(2)
    talk.catalog.update(topics(payments=1))
    talk.join("a"), talk.join("b", subscribed_topic_names=("payments",))
    assert talk.parts() == {"a": (0, 1), "b": ()}
    assert talk.group.subscribed_topics() == {"orders", "payments"}
    talk.beat("b", subscribed_topic_names=("orders",))
    assert sorted(talk.parts().values()) == [(0,), (1,)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_id": ""}, GroupError.INVALID_REQUEST),
        ({"member_epoch": -2}, GroupError.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, GroupError.INVALID_REQUEST),
        ({"member_epoch": 3}, GroupError.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(
    change: dict[str, object], error: GroupError
) -> None:
    talk = Talk(1)
    answer = talk.join("a", **change)
    assert (answer.error, bool(answer.message)) == (error, True)
    assert talk.group.is_empty()


def test_a_full_group_takes_nobody_new() -> None:
    talk = Talk(1, members_max=1)
    talk.join("a")
    assert talk.join("b").error is GroupError.GROUP_MAX_SIZE_REACHED
    assert talk.join("a").error is GroupError.NONE


def test_a_share_group_describes_its_members() -> None:
    talk = Talk(1)
    talk.join("a", rack_id="r", client_id="c", client_host="/h")
    described = talk.group.describe()
    assert (described.state, described.assignor) == ("Stable", "simple")
    (member,) = described.members
    assert (member.rack_id, member.client_id, member.client_host) == ("r", "c", "/h")
    assert (member.subscribed_topic_names, member.assignment) == (("orders",), ((ORDERS, (0,)),))
    talk.beat("a", member_epoch=-1)
    assert talk.group.describe().state == "Empty"
    assert talk.group.next_deadline_ms() is None


def test_the_part_of_a_member_that_is_away_is_others_until_it_is_heard_of() -> None:
    talk = Talk(4)
    talk.join("a")
    talk.join("b")
    assert talk.parts() == {"a": (0, 1), "b": (2, 3)}
    talk.group.on_away("b", talk.catalog)
    assert talk.beat("a").assignment == ((ORDERS, (0, 1, 2, 3)),)
    # It is a member still, and goes on where it was.
    assert talk.group.has_member("b")
    assert talk.beat("b").error is GroupError.NONE
    assert talk.parts() == {"a": (0, 1), "b": (2, 3)}


def test_a_member_that_missed_three_heartbeats_is_away_and_has_its_part_when_it_is_back() -> None:
    talk = Talk(4, heartbeat_interval_ms=5_000)
    talk.join("a")
    talk.join("b")
    assert talk.parts() == {"a": (0, 1), "b": (2, 3)}
    for _ in range(3):
        assert talk.group.tick(talk.now_ms, talk.catalog) == []
        assert talk.beat("a").assignment is None
        talk.now_ms += 5_000
    assert talk.group.next_deadline_ms() == talk.now_ms
    # Nobody is gone, and nobody who was heard of is away.
    assert talk.group.tick(talk.now_ms, talk.catalog) == []
    assert talk.beat("a").assignment == ((ORDERS, (0, 1, 2, 3)),)
    assert talk.group.has_member("b")
    assert talk.beat("b").error is GroupError.NONE
    assert talk.parts() == {"a": (0, 1), "b": (2, 3)}


def test_with_long_heartbeats_a_member_is_away_no_later_than_its_session_ends() -> None:
    talk = Talk(1, heartbeat_interval_ms=20_000)
    talk.join("a")
    assert talk.group.next_deadline_ms() == talk.now_ms + SESSION_MS
    talk.now_ms += SESSION_MS
    assert talk.group.tick(talk.now_ms, talk.catalog) == ["a"]


def test_a_member_that_is_away_and_silent_for_a_session_is_gone() -> None:
    talk = Talk(2)
    talk.join("a")
    talk.join("b")
    talk.group.on_away("b", talk.catalog)
    talk.now_ms += SESSION_MS - 1
    talk.beat("a")
    talk.now_ms += 1
    assert talk.group.tick(talk.now_ms, talk.catalog) == ["b"]
    assert talk.parts() == {"a": (0, 1)}
