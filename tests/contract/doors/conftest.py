"""Every door over which the contract is run, on one node and one clock.

    embedded     the SDK in this process
    connect      the SDK at a node
    http, json, msgpack, grpc    clients that know nothing of the SDK, at the same node

Tests keep to topics and groups of their own, and move the clock forward only.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from tests.contract.doors.door import Door, New
from tests.contract.doors.grpc_door import GrpcDoor
from tests.contract.doors.http_door import HttpDoor
from tests.contract.doors.sdk_door import SdkDoor
from tests.contract.doors.socket_door import SocketDoor
from tests.contract.loop_node import SETTINGS, LoopNode

import headrace
from headrace import testing
from headrace.client.remote import RemoteBackend


class Stage(NamedTuple):
    clock: testing.ManualClock
    node: LoopNode


def _embedded(stage: Stage) -> Door:
    return SdkDoor(testing.open(stage.clock, path=":memory:", disk=testing.MemoryDisk()))


def _connect(stage: Stage) -> Door:
    backend = RemoteBackend(stage.node.address, clock=stage.clock)
    return SdkDoor(headrace.Headrace(backend, "node"))


DOORS: dict[str, Callable[[Stage], Door]] = {
    "embedded": _embedded,
    "connect": _connect,
    "http": lambda stage: HttpDoor(str(stage.node.addresses["http"])),
    "json": lambda stage: SocketDoor(str(stage.node.addresses["http"]), binary=False),
    "msgpack": lambda stage: SocketDoor(str(stage.node.addresses["http"]), binary=True),
    "grpc": lambda stage: GrpcDoor(str(stage.node.addresses["grpc"])),
}


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    clock = testing.ManualClock(autoskip=False)
    settings = replace(SETTINGS, auto_create_topics=False)
    node = LoopNode(testing.MemoryDisk(), clock, ("kafka", "http", "grpc"), settings)
    opened = Stage(clock, node)
    _warm(opened)
    yield opened
    node.close()


def _warm(stage: Stage) -> None:
    """The node's threads start as they are needed: here, and not within a test that
    would be said to have left them."""
    door = DOORS["http"](stage)
    door.create_topic("warm", 8)
    door.publish("warm", *(New(b"x", partition=number) for number in range(8)))
    door.delete_topic("warm")
    door.close()


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Door]:
    opened = DOORS[request.param](stage)
    yield opened
    opened.close()


@pytest.fixture
def clock(stage: Stage) -> testing.ManualClock:
    return stage.clock


@pytest.fixture
def topic(door: Door) -> str:
    """A topic of one partition, which no other test has."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    door.create_topic(name)
    return name


@pytest.fixture
def group(topic: str) -> str:
    return f"g-{topic}"
