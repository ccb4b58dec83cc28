"""A door whose address is taken: an error where somebody chose the address."""

from __future__ import annotations

import asyncio
import errno

import pytest

from headrace.core.errors import InUse
from headrace.core.node_settings import Address, NodeSettings
from headrace.node.serving import open_door


class TakenDoor:
    address = Address("127.0.0.1", 9080)

    async def open(self) -> None:
        raise OSError(errno.EADDRINUSE, "taken")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_a_default_address_that_was_given_and_is_taken_is_an_error(name: str) -> None:
    with pytest.raises(InUse, match=f"--{name}"):
        asyncio.run(open_door(name, TakenDoor(), NodeSettings(), {name}))


@pytest.mark.parametrize("name", ["http", "grpc"])
def test_a_default_address_that_nobody_chose_leaves_its_door_shut(name: str) -> None:
    assert not asyncio.run(open_door(name, TakenDoor(), NodeSettings(), {"kafka"}))


def test_the_kafka_door_is_never_left_shut() -> None:
    with pytest.raises(InUse):
        asyncio.run(open_door("kafka", TakenDoor(), NodeSettings(), ()))
