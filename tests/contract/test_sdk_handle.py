"""The handle itself: reopened, shared, closed, forked, inside a running loop."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conftest import SdkBackend

import headrace


def test_what_was_acked_stays_acked_when_the_handle_is_opened_again(
    sdk_backend: SdkBackend,
) -> None:
    with sdk_backend.open() as handle:
        handle.create_topic("orders")
        handle.publish_many("orders", [b"%d" % n for n in range(10)])
        with handle.queue("orders") as queue:
            assert set(queue.ack(queue.receive(max=10))) == {None}
    with sdk_backend.open() as handle:
        assert handle.depth("orders") == 0
        with handle.queue("orders") as queue:
            assert queue.receive(wait=100) == []


def test_what_was_not_acked_comes_again_when_the_handle_is_opened_again(
    sdk_backend: SdkBackend,
) -> None:
    with sdk_backend.open() as handle:
        handle.create_topic("orders")
        handle.publish("orders", b"x")
        assert len(handle.queue("orders").receive()) == 1
    with sdk_backend.open() as handle, handle.queue("orders") as queue:
        assert [message.value for message in queue.receive(wait=60)] == [b"x"]


def test_nothing_works_on_a_closed_handle(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open()
    handle.create_topic("orders")
    queue = handle.queue("orders")
    stream = handle.stream("orders")
    handle.close()
    handle.close()
    assert handle.closed and queue.closed and stream.closed
    for call in (
        lambda: handle.publish("orders", b"x"),
        lambda: handle.topics(),
        lambda: handle.queue("orders"),
        lambda: queue.receive(wait=0),
        lambda: stream.poll(wait=0),
        lambda: list(handle.dead_letters("orders")),
        lambda: list(handle.delayed("orders")),
    ):
        with pytest.raises(headrace.Closed):
            call()


def test_a_handle_does_not_cross_a_fork(handle: headrace.Headrace) -> None:
    handle.create_topic("orders")
    queue = handle.queue("orders")
    pid = os.fork()
    if pid == 0:
        forked = 0
        for call in (
            lambda: handle.publish("orders", b"x"),
            lambda: queue.lease(),
            lambda: handle.topics(),
        ):
            try:
                call()
            except headrace.Forked:
                forked += 1
        queue.close()
        handle.close()
        os._exit(forked)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    # The child's close was its own business.
    handle.publish("orders", b"y")
    assert len(queue.receive()) == 1


def test_the_blocking_handle_works_inside_a_running_loop(handle: headrace.Headrace) -> None:
    async def notebook_cell() -> Any:
        handle.create_topic("orders")
        handle.publish("orders", {"cell": 1})
        with handle.queue("orders") as queue, queue.receive()[0] as message:
            return message.value

    assert asyncio.run(notebook_cell()) == {"cell": 1}


def test_a_directory_has_one_writer_and_says_who(tmp_path: Path) -> None:
    with headrace.open(tmp_path / "data") as handle:
        handle.create_topic("orders")
        with pytest.raises(headrace.InUse, match="this process"):
            headrace.open(tmp_path / "data")
    with headrace.open(str(tmp_path / "data")) as handle:
        assert [topic.name for topic in handle.topics()] == ["orders"]


def test_a_reader_works_beside_the_writer_and_writes_nothing(tmp_path: Path) -> None:
    with headrace.open(tmp_path / "data") as writer:
        writer.create_topic("orders", 1)
        writer.publish_many("orders", [b"a", b"b"])
        with headrace.open(tmp_path / "data", read_only=True) as reader:
            with reader.stream("orders") as stream:
                assert [record.value for record in stream.poll(wait=0)] == [b"a", b"b"]
            for call in (
                lambda: reader.publish("orders", b"x"),
                lambda: reader.create_topic("more"),
                lambda: reader.queue("orders"),
            ):
                with pytest.raises(headrace.ReadOnly):
                    call()


@pytest.mark.parametrize("path", ["", None, 7, b"bytes"])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(headrace.InvalidArgument):
        headrace.open(path)


def test_memory_is_gone_when_its_handle_is_closed() -> None:
    with headrace.open(":memory:") as handle:
        handle.create_topic("orders")
    with headrace.open(":memory:") as handle:
        assert handle.topics() == []
