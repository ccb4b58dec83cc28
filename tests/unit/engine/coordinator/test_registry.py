"""The registry: one name, one kind of group."""

from __future__ import annotations

import pytest
from tests.unit.engine.coordinator.conftest import join_request
from tests.unit.engine.coordinator.streams.conftest import COUNTING

from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.registry import GroupRegistry
from headrace.engine.coordinator.share import ShareGroup
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.coordinator.streams.values import StreamsRequest
from headrace.engine.coordinator.values import GroupError, HeartbeatRequest, ShareRequest


def filled(registry: GroupRegistry, kind: str, name: str = "g") -> None:
    """Give the group of this name a member of this kind."""
    group = getattr(registry, kind)(name)
    if isinstance(group, ClassicGroup):
        group.on_join(1, join_request(new_member_id="m"), 0)
    elif isinstance(group, ConsumerGroup):
        request = HeartbeatRequest(
            "m", 0, rebalance_timeout_ms=1, subscribed_topic_names=(), owned=()
        )
        group.on_heartbeat(request, {}, 0)
    elif isinstance(group, StreamsGroup):
        group.on_heartbeat(StreamsRequest("m", 0, rebalance_timeout_ms=1, topology=COUNTING), {}, 0)
    else:
        assert isinstance(group, ShareGroup)
        group.on_heartbeat(ShareRequest("m", 0, subscribed_topic_names=()), {}, 0)
    assert not group.is_empty()


@pytest.mark.parametrize("kind", ["classic", "consumer", "share", "streams"])
def test_a_group_is_made_once_and_found_again(kind: str) -> None:
    registry = GroupRegistry()
    assert registry.find("g") is None
    group = getattr(registry, kind)("g")
    assert getattr(registry, kind)("g") is group is registry.find("g")
    assert list(registry) == [group]
    assert getattr(registry, kind)("") is GroupError.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("kind", "other", "error"),
    [
        ("classic", "consumer", GroupError.GROUP_ID_NOT_FOUND),
        ("classic", "share", GroupError.GROUP_ID_NOT_FOUND),
        ("consumer", "classic", GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "share", GroupError.GROUP_ID_NOT_FOUND),
        ("share", "classic", GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ("share", "consumer", GroupError.GROUP_ID_NOT_FOUND),
        ("share", "streams", GroupError.GROUP_ID_NOT_FOUND),
        ("consumer", "streams", GroupError.GROUP_ID_NOT_FOUND),
        ("classic", "streams", GroupError.GROUP_ID_NOT_FOUND),
        ("streams", "classic", GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ("streams", "consumer", GroupError.GROUP_ID_NOT_FOUND),
        ("streams", "share", GroupError.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_member_of_another_kind_is_refused(kind: str, other: str, error: GroupError) -> None:
    registry = GroupRegistry()
    filled(registry, kind)
    assert getattr(registry, other)("g") is error


@pytest.mark.parametrize("other", ["consumer", "share", "streams"])
def test_an_empty_group_becomes_another_kind_and_its_numbers_go_on(other: str) -> None:
    registry = GroupRegistry()
    filled(registry, "classic")
    classic = registry.classic("g")
    assert isinstance(classic, ClassicGroup)
    classic.on_leave([("m", None)], 1)
    filled(registry, other)
    group = registry.find("g")
    assert isinstance(group, ConsumerGroup | ShareGroup | StreamsGroup)
    assert group.group_epoch > classic.generation


def test_only_an_empty_group_can_be_deleted() -> None:
    registry = GroupRegistry()
    filled(registry, "classic")
    assert registry.delete("g") is GroupError.NON_EMPTY_GROUP
    assert registry.delete("h") is GroupError.GROUP_ID_NOT_FOUND
    registry.consumer("h")
    assert registry.delete("h") is GroupError.NONE
    assert registry.find("h") is None


def test_idle_groups_make_room_for_new_ones_and_busy_ones_do_not() -> None:
    registry = GroupRegistry(groups_max=2)
    filled(registry, "classic", "busy")
    registry.classic("idle")
    filled(registry, "consumer", "new")
    assert registry.find("idle") is None
    assert registry.share("one too many") is GroupError.POLICY_VIOLATION


def test_the_next_deadline_is_that_of_the_most_urgent_group() -> None:
    registry = GroupRegistry()
    assert registry.next_deadline_ms() is None
    filled(registry, "consumer", "a")
    filled(registry, "classic", "b")
    registry.share("empty")
    assert registry.next_deadline_ms() == 10_000


def test_groups_that_make_room_are_told_of() -> None:
    forgotten: list[str] = []
    registry = GroupRegistry(groups_max=2, on_forgotten=forgotten.append)
    filled(registry, "streams", "busy")
    registry.streams("idle")
    registry.streams("new")
    assert forgotten == ["idle"]
    assert [group.name for group in registry] == ["busy", "new"]
