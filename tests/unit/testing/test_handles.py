"""Handles for tests: the real node on a disk and a clock of the test's choice."""

from __future__ import annotations

import threading

import pytest

import headrace
from headrace import testing
from headrace.core import errors
from headrace.testing.fault_disk import keep_nothing


def test_two_handles_in_memory_share_nothing() -> None:
    with testing.open() as one, testing.open() as two:
        one.create_topic("orders")
        assert two.topics() == []


def test_a_disk_keeps_what_its_handle_wrote() -> None:
    disk = testing.MemoryDisk()
    with testing.open(disk=disk, auto_create=True) as handle:
        handle.publish("orders", b"x")
    with testing.open(disk=disk) as handle:
        assert handle.depth("orders") == 1


def test_power_can_be_lost_and_what_was_acknowledged_is_there() -> None:
    disk = testing.FaultDisk()
    with testing.open(disk=disk, auto_create=True) as handle:
        handle.publish("orders", b"x")
        survived = disk.crash(keep_nothing)
    with testing.open(disk=survived) as again:
        assert again.depth("orders") == 1


def test_without_autoskip_a_wait_blocks_until_somebody_skips() -> None:
    clock = testing.ManualClock(autoskip=False)
    with testing.open(clock, auto_create=True) as handle:
        handle.publish("orders", b"x", delay=60)
        queue = handle.queue("orders")
        received: list[headrace.Message[bytes]] = []
        thread = threading.Thread(target=lambda: received.extend(queue.receive()))
        thread.start()
        clock.skip(59)
        assert received == []
        clock.skip(1)
        thread.join(60)
        assert [message.value for message in received] == [b"x"]


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="absent"):
        _ = testing.absent
    with pytest.raises(AttributeError, match="absent"):
        _ = headrace.absent


def test_every_name_that_the_packages_promise_is_there() -> None:
    for package in (headrace, testing):
        for name in package.__all__:
            assert getattr(package, name) is not None
            assert name in dir(package)


def test_every_error_is_a_name_of_the_package() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.HeadraceError)
    }
    assert defined <= set(headrace.__all__)
