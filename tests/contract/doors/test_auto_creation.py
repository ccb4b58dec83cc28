"""Topics that are made by publishing to them, at every door: where it is wanted every
publish makes its topic, and nothing else does."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.contract.doors.conftest import DOORS, Stage
from tests.contract.doors.door import Door, New
from tests.contract.doors.sdk_door import SdkDoor
from tests.contract.doors.test_messages import refused

from headrace import testing

PARTITIONS = 3


@pytest.fixture(params=DOORS)
def creating(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Door]:
    """A door of a node whose settings want topics to be made."""
    assert stage.node.broker is not None
    stage.node.broker.topics.auto_create_partitions = PARTITIONS
    try:
        if request.param == "embedded":
            disk = testing.MemoryDisk()
            handle = testing.open(stage.clock, path=":memory:", disk=disk, auto_create=True)
            door: Door = SdkDoor(handle)
        else:
            door = DOORS[request.param](stage)
        yield door
        door.close()
    finally:
        stage.node.broker.topics.auto_create_partitions = 0


@pytest.fixture
def absent() -> str:
    return f"absent-{uuid.uuid4().hex[:12]}"


def test_publishing_makes_the_topic_where_that_is_wanted(creating: Door, absent: str) -> None:
    [place] = creating.publish(absent, New(b"x"))
    assert len(creating.bounds(absent)) == PARTITIONS
    seen, _ = creating.read(absent, place.partition, 0, 10)
    assert [each.value for each in seen] == [b"x"]


def test_a_transaction_makes_its_topics_where_that_is_wanted(creating: Door, absent: str) -> None:
    creating.transact([(absent, New(b"x"))], [])
    assert absent in creating.topics()


def test_publishing_to_a_missing_topic_is_refused_elsewhere(door: Door, absent: str) -> None:
    with refused("unknown-topic", absent):
        door.publish(absent, New(b"x"))
    with refused("unknown-topic", absent):
        door.transact([(absent, New(b"x"))], [])
    assert absent not in door.topics()


def test_reading_and_leasing_never_make_a_topic(creating: Door, absent: str) -> None:
    with refused("unknown-topic", absent):
        creating.read(absent, 0, 0, 10)
    with refused("unknown-topic", absent):
        creating.lease(absent, "g")
    with refused("unknown-topic", absent):
        creating.seek("s", absent, 0)
    assert absent not in creating.topics()


def test_what_only_the_node_writes_to_is_not_made_by_publishing(
    creating: Door, absent: str
) -> None:
    creating.publish(absent, New(b"x"))
    with refused("unknown-topic", f"{absent}.dlq"):
        creating.publish(f"{absent}.dlq", New(b"x"))
    with refused("invalid-name", "__trace"):
        creating.publish("__trace", New(b"x"))


def test_any_other_name_is_a_users(creating: Door, absent: str) -> None:
    for name in (f"__{absent}", f"{absent}.dlq"):
        creating.publish(name, New(b"x"))
        assert name in creating.topics()


def test_what_was_refused_when_it_was_to_be_made_is_not_made_by_publishing(
    creating: Door, absent: str
) -> None:
    with refused("invalid-argument", "segment_bytes"):
        creating.create_topic(absent, 1, segment_bytes=1)
    with refused("unknown-topic", "segment_bytes"):
        creating.publish(absent, New(b"x"))
    with refused("unknown-topic", absent):
        creating.transact([(absent, New(b"x"))], [])
    assert absent not in creating.topics()
    creating.create_topic(absent, 1)
    creating.publish(absent, New(b"x"))
    assert len(creating.bounds(absent)) == 1
    creating.delete_topic(absent)
    creating.publish(absent, New(b"x"))
    assert len(creating.bounds(absent)) == PARTITIONS
