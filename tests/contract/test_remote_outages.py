"""Long-lived clients of a node that is not there yet, goes away and comes back, on a real
node in a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contract.cli.conftest import PROGRAM
from tests.interop.conftest import NodeProcess

import headrace
from headrace.core.errors import Disconnected, Unreachable

WAIT = 60

SHOP = """
import headrace

app = headrace.App()

@app.worker("orders")
def bill(value: bytes) -> None:
    print("billed", value.decode(), flush=True)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path / "data")
    with headrace.connect(process.bootstrap) as handle:
        handle.create_topic("orders", 1)
    yield process
    process.stop()


def in_thread(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def publish(node: NodeProcess, topic: str, value: str) -> None:
    with headrace.connect(node.bootstrap) as handle:
        handle.publish(topic, value)


def test_loops_over_queues_and_streams_and_producers_outlast_the_node(
    node: NodeProcess, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[object] = []
    read: list[object] = []
    begun = threading.Semaphore(0)
    with (
        headrace.connect(node.bootstrap, retry=0) as handle,
        handle.queue("orders") as queue,
        handle.stream("orders", "readers", auto_commit=0) as stream,
        handle.producer(timeout=WAIT) as producer,
    ):

        def handle_two() -> None:
            for message in queue:
                with message:
                    handled.append(message.value)
                begun.release()
                if message.value == "two":
                    return

        def read_two() -> None:
            for record in stream:
                read.append(record.value)
                begun.release()
                if record.value == "two":
                    return

        threads = [in_thread(handle_two), in_thread(read_two)]
        producer.publish("orders", "one").result()
        assert begun.acquire(timeout=WAIT) and begun.acquire(timeout=WAIT)
        node.kill()
        pending = producer.publish("orders", "two")
        node.restart(kill=True)
        assert pending.result().offset == 1
        for thread in threads:
            thread.join(WAIT)
    # What was handled when the node was killed may come twice.
    assert list(dict.fromkeys(handled)) == list(dict.fromkeys(read)) == ["one", "two"]
    waiting = [each for each in caplog.messages if "waiting for the node at" in each]
    assert len(waiting) == 1


def test_an_async_loop_over_a_queue_outlasts_the_node(node: NodeProcess) -> None:
    async def main() -> list[object]:
        seen: list[object] = []
        async with (
            headrace.connect_async(node.bootstrap, retry=0) as handle,
            handle.queue("orders") as queue,
        ):
            await handle.publish("orders", "one")
            async for message in queue:
                async with message:
                    seen.append(message.value)
                if len(seen) == 2:
                    break
                await asyncio.to_thread(node.kill)
                coming = asyncio.create_task(asyncio.to_thread(node.restart))
                coming.add_done_callback(lambda _: publish(node, "orders", "two"))
        return seen

    assert asyncio.run(main()) == ["one", "two"]


def test_leases_of_a_killed_node_stand_over_its_restart(node: NodeProcess) -> None:
    publish(node, "orders", "long")
    with (
        headrace.connect(node.bootstrap) as handle,
        headrace.connect(node.bootstrap) as other,
        handle.queue("orders", visibility=3600) as queue,
        other.queue("orders") as beside,
    ):
        [message] = queue.receive()
        node.restart(kill=True)
        # It is asked first: it has nothing before the other is back.
        assert beside.receive(wait=0) == []
        message.ack()
        assert queue.stats().acked == 1
        assert not message.lost


def test_who_is_told_so_does_not_wait_for_the_node(node: NodeProcess) -> None:
    with headrace.connect(node.bootstrap, retry=0, reconnect=False) as handle:
        queue = handle.queue("orders")
        node.kill()
        try:
            # Which of them depends on whether the end has been seen by then.
            with pytest.raises((Unreachable, Disconnected)):
                next(iter(queue))
            with pytest.raises(Unreachable):
                headrace.connect(node.bootstrap)
            with pytest.raises(Unreachable):
                headrace.connect(node.bootstrap, wait=0.1)
        finally:
            queue.close()


def test_a_block_that_ends_while_the_node_is_away_does_not_wait_for_it(
    node: NodeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(node, "orders", "bad")
    with (
        headrace.connect(node.bootstrap, retry=None) as handle,
        pytest.raises(ValueError, match="bad") as raised,
        handle.queue("orders", backoff_ms=0) as queue,
    ):
        for _ in queue:
            node.kill()
            raise ValueError("bad")
    assert raised.value.__notes__[0].startswith("and nacking 1 message failed: ")
    monkeypatch.setenv("HEADRACE_LEASE_GRACE_MS", "0")
    node.restart(kill=True)
    # The connection broke, so the delivery counted.
    with headrace.connect(node.bootstrap) as handle, handle.queue("orders") as queue:
        [again] = queue.receive()
        assert again.attempt == 2


def test_a_worker_waits_for_a_node_that_is_not_there_yet_and_outlasts_one_that_goes(
    node: NodeProcess, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    node.kill()
    worker = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--server", node.bootstrap, "work", "shop:app"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert worker.stdout is not None and worker.stderr is not None
        assert b"waiting for the node at" in worker.stderr.readline()
        node.restart(kill=True)
        publish(node, "orders", "one")
        assert worker.stdout.readline() == b"billed one\n"
        node.restart(kill=True)
        publish(node, "orders", "two")
        assert worker.stdout.readline() in (b"billed two\n", b"billed one\n")
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=WAIT)
        assert worker.returncode == 0
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.communicate()


def depth_of(line: bytes) -> int:
    return sum(each["depth"] for each in json.loads(line)["queues"])


def records_of(line: bytes) -> int:
    return sum(each["records"] for each in json.loads(line)["topics"])


LOOKS = ("--json", "--every", "100ms")


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("consume", "orders", "--follow"), lambda line: {b"1\n": 1, b"2\n": 2}[line]),
        (("queue", "stats", "--follow", *LOOKS), depth_of),
        (("top", *LOOKS), records_of),
    ],
    ids=["consume", "queue stats", "top"],
)
def test_a_command_that_goes_on_waits_for_a_node_and_outlasts_it(
    node: NodeProcess, words: tuple[str, ...], count: Callable[[bytes], int]
) -> None:
    with headrace.connect(node.bootstrap) as handle:
        handle.queue("orders", "billing").close()
    node.kill()
    command = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--server", node.bootstrap, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert command.stdout is not None and command.stderr is not None
        assert b"waiting for the node at" in command.stderr.readline()
        for number in (1, 2):
            node.restart(kill=True)
            publish(node, "orders", str(number))
            while count(line := command.stdout.readline()) < number:
                assert line
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=WAIT)
        assert b"Traceback" not in said
    finally:
        if command.poll() is None:
            command.kill()
            command.communicate()


# It would try to give the message back for as long as it takes.
STUCK = """
import asyncio
import sys
import headrace
from headrace.cli.work_app import run_app

app = headrace.App()

@app.worker("orders", concurrency=2)
async def bill(value: bytes) -> None:
    print("begun", value.decode(), flush=True)
    await asyncio.Event().wait()

run_app(app, headrace.connect_async(sys.argv[1], retry=None), 0.5)
print("ended", flush=True)
"""


@pytest.mark.parametrize("is_hung", [False, True])
def test_a_worker_ends_within_its_grace_when_the_node_is_away_or_hangs(
    is_hung: bool, node: NodeProcess
) -> None:
    for value in ("one", "two", "three"):
        publish(node, "orders", value)
    worker = subprocess.Popen(
        [sys.executable, "-c", STUCK, node.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert worker.stdout is not None
        # Two are at work, and one more may be leased ahead.
        assert [worker.stdout.readline() for _ in range(2)] == [b"begun one\n", b"begun two\n"]
        if is_hung:
            node.process.send_signal(signal.SIGSTOP)
        else:
            node.kill()
        worker.send_signal(signal.SIGTERM)
        said, errors = worker.communicate(timeout=WAIT)
        assert (worker.returncode, said) == (0, b"ended\n"), errors.decode()
    finally:
        node.process.send_signal(signal.SIGCONT)
        if worker.poll() is None:
            worker.kill()
            worker.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_a_node_ends_when_it_is_told_to(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with socket.socket() as taken:
        # Nobody accepts there, and nobody else gets the port.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        worker = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "--server", address, "work", "shop:app"],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        )
        try:
            assert worker.stderr is not None
            assert b"waiting for the node at" in worker.stderr.readline()
            worker.send_signal(number)
            _, said = worker.communicate(timeout=WAIT)
            assert (worker.returncode, said) == (0, b"")
        finally:
            if worker.poll() is None:
                worker.kill()
                worker.communicate()
