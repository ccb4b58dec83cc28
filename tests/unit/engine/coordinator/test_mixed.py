"""Groups with members of both protocols, and how a group goes from one to the other."""

from __future__ import annotations

import pytest
from tests.unit.engine.coordinator.conftest import REBALANCE_MS, SESSION_MS, join_request

from headrace.engine.coordinator.assignment_bytes import (
    NoConsumer,
    assigned_partitions,
    encode_assignment,
    owned_partitions,
)
from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.mixed import MixedGroup, downgraded, upgraded
from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.values import (
    GroupError,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
    one_by_one,
)
from headrace.wire.kafka.embedded import decode_assignment, encode_subscription
from headrace.wire.kafka.generated.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)

TOPICS = {"orders": (b"o" * 16, 4)}
RULES = GroupRules()
REBALANCE = GroupError.REBALANCE_IN_PROGRESS


def saying(owned: tuple[int, ...] = (), version: int = 1) -> bytes:
    partitions = (TopicPartition("orders", owned),) if owned else ()
    return encode_subscription(version, ConsumerProtocolSubscription(("orders",), None, partitions))


def joining(member_id: str, owned: tuple[int, ...] = (), **changes: object) -> JoinRequest:
    protocols = (("cooperative-sticky", saying(owned)),)
    request = join_request(member_id, protocols=protocols)
    return request._replace(**changes)  # type: ignore[arg-type]


def classic_group(*members: tuple[str, tuple[int, ...]]) -> ClassicGroup:
    """A stable one, whose members have these partitions."""
    group = ClassicGroup("g")
    assignments = {}
    for number, (member_id, held) in enumerate(members):
        group.on_join(number, joining("", new_member_id=member_id), 0)
        assignments[member_id] = encode_assignment(1, [("orders", each) for each in held])
    # The first had its own generation before the others came.
    for number, (member_id, _) in enumerate(members):
        if group.state == "PreparingRebalance":
            group.on_join(10 + number, joining(member_id), 0)
    leader = members[0][0]
    request = SyncRequest(leader, None, group.generation, None, None, assignments)
    group.on_sync(20, request, 0)
    assert group.state == "Stable"
    return group


class Talk:
    def __init__(self, group: MixedGroup) -> None:
        self.group = group
        self.now_ms = 1_000

    def beat(self, member_id: str, epoch: int, owned: tuple[int, ...] = ()) -> HeartbeatAnswer:
        request = HeartbeatRequest(member_id, epoch)
        if epoch == 0:
            request = request._replace(
                rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=("orders",)
            )
        if epoch >= 0:
            request = request._replace(owned=((b"o" * 16, owned),) if owned else ())
        return self.group.on_heartbeat(request, TOPICS, self.now_ms)

    def join(self, member_id: str, owned: tuple[int, ...] = (), **changes: object) -> JoinAnswer:
        return self.group.on_join(joining(member_id, owned, **changes), TOPICS, self.now_ms)

    def sync(self, member_id: str, generation: int, instance_id: str | None = None) -> SyncAnswer:
        request = SyncRequest(member_id, instance_id, generation, None, None, {})
        return self.group.on_sync(request, TOPICS, self.now_ms)

    def heartbeat(self, member_id: str, generation: int) -> GroupError:
        return self.group.on_classic_heartbeat(member_id, None, generation, self.now_ms)


def indexes(answer: SyncAnswer | HeartbeatAnswer) -> set[int]:
    if isinstance(answer, HeartbeatAnswer):
        assert answer.assignment is not None
        return {index for _, index in one_by_one(answer.assignment)}
    assert answer.error is GroupError.NONE
    message = decode_assignment(answer.assignment).message
    return {index for topic in message.assigned_partitions for index in topic.partitions}


def upgrade(group: ClassicGroup, rules: GroupRules = RULES) -> Talk:
    made = upgraded(group, rules, TOPICS, 0)
    assert isinstance(made, MixedGroup), made
    return Talk(made)


def test_a_group_goes_over_with_what_everyone_has() -> None:
    talk = upgrade(classic_group(("a", (0, 1)), ("b", (2, 3))))
    generation = talk.group.group_epoch
    assert talk.heartbeat("a", generation) is GroupError.NONE
    assert indexes(talk.sync("a", generation)) == {0, 1}
    assert indexes(talk.sync("b", generation)) == {2, 3}
    assert talk.group.check_commit("a", generation) is GroupError.NONE
    assert {each.is_classic for each in talk.group.describe().members} == {True}


def test_a_partition_is_given_on_when_its_classic_member_let_go_of_it() -> None:
    talk = upgrade(classic_group(("a", (0, 1, 2, 3))))
    generation = talk.group.group_epoch
    new = talk.beat("new", 0)
    assert new.error is GroupError.NONE and indexes(new) == set()
    # It is told to join again, and says what it has: it keeps its old generation.
    assert talk.heartbeat("a", generation) is REBALANCE
    joined = talk.join("a", (0, 1, 2, 3))
    assert (joined.generation, joined.leader, joined.members) == (generation, "", ())
    kept = indexes(talk.sync("a", generation))
    assert len(kept) == 2
    assert talk.beat("new", new.member_epoch).assignment is None
    # It gave up the rest, and says so by joining again.
    joined = talk.join("a", tuple(kept))
    assert joined.generation == talk.group.group_epoch
    assert indexes(talk.sync("a", joined.generation)) == kept
    assert talk.heartbeat("a", joined.generation) is GroupError.NONE
    assert indexes(talk.beat("new", new.member_epoch)) == {0, 1, 2, 3} - kept


def test_an_eager_member_gives_up_everything_before_it_joins() -> None:
    talk = upgrade(classic_group(("a", (0, 1, 2, 3))))
    new = talk.beat("new", 0)
    assert talk.heartbeat("a", talk.group.group_epoch - 1) is REBALANCE
    joined = talk.join("a")
    kept = indexes(talk.sync("a", joined.generation))
    assert len(kept) == 2
    assert indexes(talk.beat("new", new.member_epoch)) == {0, 1, 2, 3} - kept


def test_a_classic_member_that_waits_is_called_when_its_part_is_free() -> None:
    talk = Talk(MixedGroup("g"))
    first = talk.beat("new", 0)
    assert indexes(first) == {0, 1, 2, 3}
    joined = talk.join("a")
    assert indexes(talk.sync("a", joined.generation)) == set()
    assert talk.heartbeat("a", joined.generation) is GroupError.NONE
    kept = indexes(talk.beat("new", first.member_epoch, (0, 1, 2, 3)))
    assert talk.heartbeat("a", joined.generation) is GroupError.NONE
    talk.beat("new", first.member_epoch, tuple(kept))
    assert talk.heartbeat("a", joined.generation) is REBALANCE
    joined = talk.join("a")
    assert indexes(talk.sync("a", joined.generation)) == {0, 1, 2, 3} - kept


def test_a_member_without_an_id_is_sent_back_with_one() -> None:
    talk = Talk(MixedGroup("g"))
    talk.beat("new", 0)
    refused = talk.join("", requires_known_member_id=True, new_member_id="a")
    assert (refused.error, refused.member_id) == (GroupError.MEMBER_ID_REQUIRED, "a")
    assert talk.join("a").error is GroupError.NONE


def test_who_is_no_consumer_or_asks_for_too_much_is_refused() -> None:
    talk = Talk(MixedGroup("g"))
    talk.beat("new", 0)
    inconsistent = GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert talk.join("a", protocol_type="connect").error is inconsistent
    assert talk.join("a", protocols=(("range", b"x"),)).error is inconsistent
    assert talk.join("a", session_timeout_ms=1).error is GroupError.INVALID_SESSION_TIMEOUT
    assert talk.join("a").error is GroupError.NONE
    # Were the others gone, the two would have nothing in common.
    assert talk.join("b", protocols=(("range", saying()),)).error is inconsistent


def test_an_unknown_member_and_an_old_generation_are_told_apart() -> None:
    talk = Talk(MixedGroup("g"))
    new = talk.beat("new", 0)
    generation = talk.join("a").generation
    assert talk.heartbeat("b", generation) is GroupError.UNKNOWN_MEMBER_ID
    # Nor is it one that speaks the other protocol.
    assert talk.heartbeat("new", new.member_epoch) is GroupError.UNKNOWN_MEMBER_ID
    assert talk.heartbeat("a", generation + 1) is GroupError.ILLEGAL_GENERATION
    assert talk.group.check_commit("a", generation + 1) is GroupError.ILLEGAL_GENERATION
    assert talk.sync("a", generation + 1).error is GroupError.ILLEGAL_GENERATION


def test_a_classic_member_that_does_not_come_back_is_dropped() -> None:
    talk = upgrade(classic_group(("a", (0, 1, 2, 3))))
    generation = talk.group.group_epoch
    talk.beat("new", 0)
    for _ in range(REBALANCE_MS // SESSION_MS + 1):
        talk.heartbeat("a", generation)
        talk.beat("new", talk.group.group_epoch)
        talk.now_ms += SESSION_MS - 1
        talk.group.tick(talk.now_ms, TOPICS)
    assert talk.heartbeat("a", generation) is GroupError.UNKNOWN_MEMBER_ID


def test_a_member_that_was_dropped_gives_up_what_it_has() -> None:
    talk = Talk(MixedGroup("g"))
    talk.beat("new", 0)
    assert talk.join("a", (0, 1)).error is GroupError.UNKNOWN_MEMBER_ID
    assert talk.join("a").error is GroupError.NONE


def test_a_static_member_changes_its_protocol_and_keeps_its_part() -> None:
    talk = Talk(MixedGroup("g"))
    joined = talk.join("", group_instance_id="i", new_member_id="a")
    assert indexes(talk.sync("a", joined.generation, "i")) == {0, 1, 2, 3}
    request = HeartbeatRequest(
        "b", 0, "i", rebalance_timeout_ms=1, subscribed_topic_names=("orders",), owned=()
    )
    answer = talk.group.on_heartbeat(request, TOPICS, talk.now_ms)
    assert indexes(answer) == {0, 1, 2, 3}
    fenced = talk.group.on_classic_heartbeat("a", "i", joined.generation, talk.now_ms)
    assert fenced is GroupError.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("migration", "may"),
    [("bidirectional", True), ("upgrade", True), ("downgrade", False), ("disabled", False)],
)
def test_the_policy_says_whether_a_group_goes_over(migration: str, may: bool) -> None:
    rules = RULES._replace(migration=migration)  # type: ignore[arg-type]
    made = upgraded(classic_group(("a", (0,))), rules, TOPICS, 0)
    assert isinstance(made, MixedGroup) is may
    assert may or migration in str(made)


def test_a_group_of_others_than_consumers_stays_as_it_is() -> None:
    group = ClassicGroup("g")
    connect = joining("", new_member_id="a", protocol_type="connect")
    group.on_join(1, connect, 0)
    group.on_sync(2, SyncRequest("a", None, 1, None, None, {"a": b"work"}), 0)
    assert upgraded(group, RULES, TOPICS, 0) == "its members are no consumers"


def test_a_group_goes_back_with_what_everyone_has() -> None:
    talk = upgrade(classic_group(("a", (0, 1)), ("b", (2, 3))))
    generation = talk.group.group_epoch
    talk.beat("new", 0)
    assert not talk.group.has_only_classic()
    talk.beat("new", -1)
    assert talk.group.has_only_classic()
    group = downgraded(talk.group, RULES, TOPICS, talk.now_ms)
    # They may commit what they have read, and are told to share out the work anew.
    assert group.check_commit("a", None, generation) is GroupError.NONE
    assert group.on_heartbeat("a", None, generation, talk.now_ms) is REBALANCE
    assert group.on_join(1, joining("a"), talk.now_ms) == []
    answers = group.on_join(2, joining("b"), talk.now_ms)
    assert {answer.message.error for answer in answers} == {GroupError.NONE}
    assert group.generation == generation + 1


def test_bytes_of_consumers_are_read_as_the_codec_writes_them() -> None:
    assert owned_partitions(saying((1, 2))) == {("orders", 1), ("orders", 2)}
    assert owned_partitions(saying(version=0)) == frozenset()
    data = encode_assignment(7, [("orders", 2), ("orders", 0), ("bills", 1)])
    assert assigned_partitions(data) == {("orders", 0), ("orders", 2), ("bills", 1)}
    assert decode_assignment(data).version == 3
    assert assigned_partitions(b"") == frozenset()
    for size in range(1, len(data) - 4):
        with pytest.raises(NoConsumer):
            assigned_partitions(data[:size])
    with pytest.raises(NoConsumer):
        assigned_partitions(b"\x00\x01\x7f\xff\xff\xff")
