"""What becomes of a handle on a node when the connection or the node goes, on a real
node in a process of its own.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from tests.contract.cut_proxy import CutProxy
from tests.interop.conftest import NodeProcess

import headrace
from headrace.client.caller import Caller
from headrace.client.probing import probe
from headrace.client.socket_link import SocketLink
from headrace.core.errors import Disconnected, InvalidArgument, Unreachable
from headrace.core.node_settings import Address
from headrace.wire.remote import codec

# Nothing here may come back because a lease ended by time.
HOURS = 6 * 3600
WAIT = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path_factory.mktemp("links") / "data")
    yield process
    process.stop()


@pytest.fixture
def topic(node: NodeProcess, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with one partition and three messages."""
    name = str(request.node.name).replace("[", "-").replace("]", "")
    with headrace.connect(node.bootstrap) as handle:
        handle.create_topic(name, 1)
        handle.publish_many(name, ["one", "two", "three"])
    return name


def caller_of(handle: headrace.Headrace) -> Caller:
    backend = handle.connection.reach()
    assert isinstance(backend, Caller)
    return backend


def cut(handle: headrace.Headrace) -> None:
    """As a broken network does it, without a word."""
    link = caller_of(handle)._link
    assert isinstance(link, SocketLink)
    link._socket.shutdown(socket.SHUT_RDWR)


def test_a_connection_that_breaks_for_good_gives_its_leases_back_after_the_grace(
    node: NodeProcess, topic: str
) -> None:
    way = CutProxy(node.bootstrap)
    with headrace.connect(way.address) as gone, headrace.connect(node.bootstrap) as other:
        queue = gone.queue(topic, visibility=HOURS)
        assert len(queue.receive(10, wait=WAIT)) == 3
        second = other.queue(topic)
        way.close()
        again = second.receive(10, wait=WAIT)
        assert [message.value for message in again] == ["one", "two", "three"]
        # Whoever is gone without a word may be gone because of what it was given.
        assert {message.attempt for message in again} == {2}


def test_a_handle_that_closes_gives_its_leases_back_and_they_do_not_count(
    node: NodeProcess, topic: str
) -> None:
    with headrace.connect(node.bootstrap) as gone:
        gone.queue(topic, visibility=HOURS).receive(10, wait=WAIT)
    with headrace.connect(node.bootstrap) as other:
        again = other.queue(topic).receive(10, wait=WAIT)
        assert {message.attempt for message in again} == {1}


def test_a_queue_goes_on_over_a_new_connection_and_its_old_receipts_are_good(
    node: NodeProcess, topic: str
) -> None:
    with headrace.connect(node.bootstrap) as handle:
        queue = handle.queue(topic, visibility=HOURS)
        [job] = queue.receive(1, wait=WAIT)
        cut(handle)
        rest = queue.receive(10, wait=WAIT)
        assert [message.value for message in rest] == ["two", "three"]
        job.ack()
        assert handle.status(job.id, "default").state == "acked"
        assert queue.ack(rest) == [None] * len(rest)
        assert handle.group("default").consumers == (queue.consumer,)


def test_a_member_whose_connection_breaks_leaves_its_partitions_to_others(
    node: NodeProcess, topic: str
) -> None:
    with headrace.connect(node.bootstrap) as gone, headrace.connect(node.bootstrap) as other:
        gone.grow_topic(topic, 2)
        group = f"{topic}-readers"
        first = gone.stream(topic, group)
        second = other.stream(topic, group)
        assert len(first.assignment()) == len(second.assignment()) == 1
        # The others are told when the node has noticed.
        with headrace.connect(node.bootstrap) as watching:
            news = threading.Event()
            caller_of(watching).add_listener(news.set, [topic])
            watching.topics()
            cut(gone)
            assert news.wait(WAIT)
        assert len(second.assignment()) == 2


def test_a_stream_goes_on_over_a_new_connection(node: NodeProcess, topic: str) -> None:
    with headrace.connect(node.bootstrap) as handle:
        stream = handle.stream(topic, f"{topic}-readers")
        assert [each.value for each in stream.poll(10, wait=WAIT)] == ["one", "two", "three"]
        stream.commit()
        cut(handle)
        handle.publish(topic, "four")
        assert [each.value for each in stream.poll(10, wait=WAIT)] == ["four"]
        stream.commit()


def test_a_wait_ends_when_another_handle_publishes(node: NodeProcess, topic: str) -> None:
    with headrace.connect(node.bootstrap) as handle, headrace.connect(node.bootstrap) as other:
        queue = handle.queue(topic)
        queue.ack(queue.receive(10, wait=WAIT))
        found: list[object] = []
        thread = threading.Thread(
            target=lambda: found.extend(each.value for each in queue.receive(10, wait=WAIT))
        )
        thread.start()
        # The calls of others are answered while one waits.
        assert other.depth(topic, group="default") == handle.depth(topic, group="default") == 0
        other.publish(topic, "four")
        thread.join(WAIT)
        assert found == ["four"]


def test_a_wait_sees_what_a_kafka_client_publishes_to_a_partition_that_it_added(
    node: NodeProcess, topic: str
) -> None:
    with headrace.connect(node.bootstrap) as handle:
        queue = handle.queue(topic)
        queue.ack(queue.receive(10, wait=WAIT))
        found: list[object] = []
        thread = threading.Thread(
            target=lambda: found.extend(each.raw for each in queue.receive(10, wait=WAIT))
        )
        thread.start()
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        producer.produce(topic, b"four", partition=1)
        assert producer.flush(WAIT) == 0
        thread.join(WAIT)
        assert found == [b"four"]


def test_a_wait_ends_when_the_queue_is_closed(node: NodeProcess, topic: str) -> None:
    with headrace.connect(node.bootstrap) as handle:
        queue = handle.queue(topic)
        queue.ack(queue.receive(10, wait=WAIT))
        found: list[object] = ["not yet"]

        def wait() -> None:
            found[:] = queue.receive(10, wait=WAIT)

        thread = threading.Thread(target=wait)
        thread.start()
        queue.close()
        thread.join(WAIT)
        assert found == []


def test_a_message_that_is_delayed_comes_by_time_alone(node: NodeProcess, topic: str) -> None:
    with headrace.connect(node.bootstrap) as handle:
        queue = handle.queue(topic)
        queue.ack(queue.receive(10, wait=WAIT))
        handle.publish(topic, "later", delay=0.2)
        assert [each.value for each in queue.receive(10, wait=WAIT)] == ["later"]


def test_more_than_fits_into_one_answer_is_all_there(node: NodeProcess, topic: str) -> None:
    with headrace.connect(node.bootstrap) as handle:
        queue = handle.queue(topic, leases_per_consumer_max=10_000)
        queue.ack(queue.receive(10, wait=WAIT))
        large = [b"%d" % number + b"." * 100_000 for number in range(40)]
        assert len(handle.publish_many(topic, large)) == 40
        leased: list[headrace.Message[Any]] = []
        while len(leased) < 40:
            found = queue.receive(100, wait=WAIT)
            assert 0 < len(found) <= 40
            leased += found
        assert [each.raw for each in leased] == large
        assert queue.reject(leased) == [None] * 40
        letters = list(handle.dead_letters(topic))
        assert [each.raw for each in letters] == large
        assert handle.dead_letters(topic).purge() == 40


def test_many_messages_travel_in_parts_and_keep_their_order(node: NodeProcess, topic: str) -> None:
    with headrace.connect(node.bootstrap) as handle:
        published = handle.publish_many(topic, [b"%d" % number for number in range(10_000)])
        assert [each.offset for each in published] == list(range(3, 10_003))
        mixed = handle.publish_many(topic, [{"n": number} for number in range(3_000)], key="k")
        assert [each.offset for each in mixed] == list(range(10_003, 13_003))
        stream = handle.stream(topic, start={0: 9_990})
        seen: list[headrace.Record[Any]] = []
        while len(seen) < 13:
            seen += stream.poll(500, wait=WAIT)
        assert [each.raw for each in seen[:13]] == [b"%d" % n for n in range(9_987, 10_000)]


def test_the_async_handle_is_the_same(node: NodeProcess, topic: str) -> None:
    async def main() -> None:
        async with headrace.connect_async(node.bootstrap) as handle:
            queue = await handle.queue(topic)
            messages = await queue.receive(10, wait=WAIT)
            assert [each.value for each in messages] == ["one", "two", "three"]
            await queue.ack(messages)
            waiting = asyncio.ensure_future(queue.receive(10, wait=WAIT))
            await handle.publish(topic, "four")
            assert [each.value for each in await waiting] == ["four"]

    asyncio.run(main())


def test_a_topic_is_made_by_the_first_publish_where_that_is_wanted(node: NodeProcess) -> None:
    with headrace.connect(node.bootstrap) as handle:
        handle.publish("made-by-publish", b"x")
    with headrace.connect(node.bootstrap, auto_create=False) as handle:
        with pytest.raises(headrace.UnknownTopic):
            handle.publish("not-made", b"x")


# Nodes that come and go.


def test_a_killed_node_is_a_clear_error_and_a_restarted_one_is_found_again(
    tmp_path: Path,
) -> None:
    node = NodeProcess(tmp_path / "data")
    handle = headrace.connect(node.bootstrap, retry=0)
    try:
        handle.create_topic("orders", 1)
        queue = handle.queue("orders", visibility=HOURS)
        handle.publish("orders", "one")
        node.kill()
        # Which of them depends on whether the end has been seen by then; now it has.
        with pytest.raises((Unreachable, Disconnected)):
            handle.publish("orders", "two")
        with pytest.raises(Unreachable, match="headrace serve"):
            handle.topics()
        node.restart(kill=True)
        handle.publish("orders", "three")
        messages: list[headrace.Message[Any]] = []
        while len(messages) < 2:
            messages += queue.receive(10, wait=WAIT)
        assert [each.value for each in messages] == ["one", "three"]
    finally:
        handle.close()
        node.stop()


def test_calls_under_way_when_the_node_is_killed_end_with_an_error(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    handle = headrace.connect(node.bootstrap, retry=0)
    try:
        handle.create_topic("orders", 1)
        ended: list[BaseException] = []
        begun = threading.Barrier(5)

        def publish() -> None:
            begun.wait(WAIT)
            try:
                while True:
                    handle.publish("orders", b"x" * 1_000)
            except headrace.HeadraceError as error:
                ended.append(error)

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait(WAIT)
        node.kill()
        for thread in threads:
            thread.join(WAIT)
        assert len(ended) == 4
        assert all(isinstance(each, Disconnected | Unreachable) for each in ended)
    finally:
        handle.close()
        node.stop()


def test_calls_that_can_do_no_harm_wait_for_a_node_that_comes_back(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    with headrace.connect(node.bootstrap, retry=WAIT) as handle:
        handle.create_topic("orders", 1)
        node.kill()
        restarting = threading.Thread(target=node.restart)
        restarting.start()
        assert [each.name for each in handle.topics()] == ["orders"]
        restarting.join(WAIT)
    node.stop()


def test_where_no_node_is_the_error_says_how_to_start_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Unreachable, match=f"headrace serve --kafka 127.0.0.1:{port}"):
        headrace.connect(f"127.0.0.1:{port}")


API_VERSIONS = struct.pack(">iihi", 10, 1, 0, 0)
HELLO = struct.pack(">iiB", 5, 2, 1)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        # Apache Kafka hangs up on an API that it does not know, and answers ApiVersions.
        ([b"", API_VERSIONS], "speaks Kafka but is not"),
        # A node that was killed leaves a connection that nobody has accepted.
        ([b""], "closed the connection before it answered, and nobody listens there now"),
        # One that was started again meanwhile.
        ([b"", API_VERSIONS + HELLO], "closed the connection before it answered, and answers now"),
        ([b"", b""], "closes every connection before it answers"),
        ([b"", b"SSH-2.0-OpenSSH"], "does not answer as a headrace node"),
    ],
)
def test_what_is_no_node_of_ours_is_told_apart(answers: list[bytes], words: str) -> None:
    """By what it answers to one connection after the other."""

    def listen(server: socket.socket) -> None:
        with server:
            for left, answer in enumerate(answers, 1 - len(answers)):
                client, _ = server.accept()
                with client:
                    client.recv(1024)
                    client.sendall(answer)
                    if left == 0:
                        server.close()
                    if answer.startswith(API_VERSIONS):
                        client.recv(1024)

    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"
    thread = threading.Thread(target=listen, args=(server,))
    thread.start()
    with pytest.raises(Unreachable, match=words):
        headrace.connect(address)
    thread.join(WAIT)


def test_a_node_of_ours_is_known_as_one(node: NodeProcess) -> None:
    assert probe(Address.parse("node", node.bootstrap)) == "node"


def test_the_address_may_come_from_the_environment(
    node: NodeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidArgument, match="HEADRACE_URL"):
        headrace.connect()
    monkeypatch.setenv("HEADRACE_URL", f"headrace://{node.bootstrap}/")
    with headrace.connect() as handle:
        assert handle.topics() is not None
    with pytest.raises(InvalidArgument, match="must look like"):
        headrace.connect("[::1")


def test_a_lease_is_kept_while_its_block_runs(node: NodeProcess, topic: str) -> None:
    with headrace.connect(node.bootstrap) as handle, headrace.connect(node.bootstrap) as other:
        queue = handle.queue(topic, "keeping", visibility=3, auto_extend=True)
        [kept] = queue.receive(1, wait=WAIT)
        # What another call has leased is not kept with it.
        [lost, third] = queue.receive(10, wait=WAIT)
        with kept:
            # It ends for the one that nobody works on, and is given to somebody else.
            with other.queue(topic, "keeping") as second:
                again = second.receive(1, wait=WAIT)
                assert again[0].id in (lost.id, third.id)
                assert handle.status(kept.id, "keeping").state == "leased"
        assert kept.settled
        assert handle.status(kept.id, "keeping").state == "acked"


def test_a_lease_is_kept_for_a_task_too(node: NodeProcess, topic: str) -> None:
    async def test() -> None:
        async with headrace.connect_async(node.bootstrap) as handle:
            async with handle.queue(topic, "keeping", visibility=3, auto_extend=True) as queue:
                [kept] = await queue.receive(1, wait=WAIT)
                [lost, third] = await queue.receive(10, wait=WAIT)
                async with kept, handle.queue(topic, "keeping") as second:
                    again = await second.receive(1, wait=WAIT)
                    assert again[0].id in (lost.id, third.id)
                assert (await handle.status(kept.id, "keeping")).state == "acked"

    asyncio.run(test())


def test_what_is_no_request_costs_its_own_connection_only(node: NodeProcess, topic: str) -> None:
    host, _, port = node.bootstrap.rpartition(":")
    with headrace.connect(node.bootstrap) as handle:
        for request in (b"\xc1", b"\x91" * 10_000, b"", b"\xdd\xff\xff\xff\xff"):
            with socket.create_connection((host, int(port)), WAIT) as peer:
                peer.sendall(codec.encode_request_frame(1, b"", request))
                assert peer.recv(1) == b""
        assert handle.topic(topic).name == topic
