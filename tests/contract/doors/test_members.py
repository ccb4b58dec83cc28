"""Clients that lease call by call, over HTTP or gRPC: members while they hold something."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.doors.conftest import DOORS, Stage
from tests.contract.doors.door import Door, New

from headrace.client.remote import RemoteBackend


@pytest.fixture(params=["http", "grpc"])
def door(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Door]:
    opened = DOORS[request.param](stage)
    yield opened
    opened.close()


@pytest.fixture
def node(stage: Stage) -> Iterator[RemoteBackend]:
    """The node as its operator sees it."""
    backend = RemoteBackend(stage.node.address, clock=stage.clock)
    yield backend
    backend.close()


def test_a_client_without_an_id_is_a_member_until_its_leases_are_settled(
    door: Door, node: RemoteBackend, topic: str, group: str
) -> None:
    for number in range(5):
        door.publish(topic, New(b"%d" % number))
        [leased] = door.lease(topic, group)
        assert len(node.group(group).consumers) == 1
        assert door.settle("ack", [leased.receipt]) == [None]
        assert node.group(group).consumers == ()
    assert door.lease(topic, group) == []
    assert node.group(group).consumers == ()


def test_a_client_that_never_answers_is_forgotten_when_its_leases_run_out(
    door: Door, node: RemoteBackend, topic: str, group: str, stage: Stage
) -> None:
    door.publish(topic, New(b"x"))
    door.lease(topic, group, visibility=30)
    stage.clock.skip(29)
    assert len(node.group(group).consumers) == 1
    stage.clock.skip(2)
    # Nobody leases meanwhile: it takes no other client to be forgotten.
    assert node.group(group).consumers == ()


def test_a_group_counts_as_unread_a_while_after_its_last_call(
    door: Door, node: RemoteBackend, topic: str, group: str, stage: Stage
) -> None:
    # The start itself counts as well.
    stage.clock.skip(60)
    assert door.lease(topic, group) == []
    door.publish(topic, New(b"x"))
    for seconds, expected in [(50, False), (11, True)]:
        stage.clock.skip(seconds)
        [found] = [each for each in node.overview().groups if each.name == group]
        assert (found.members, found.lag, found.is_unread) == (0, 1, expected)
