"""Share groups and transactions: the isolation level is a configuration of the group."""

from __future__ import annotations

from tests.unit.engine.transactions import Writer
from tests.unit.server.asking import run
from tests.unit.server.share_door import ACCEPT, GROUP, TOPIC, Shared, ranges

from headrace.core.node_settings import NodeSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.group_configs import queue_table


def writer_of(shared: Shared) -> Writer:
    partition = shared.broker.topics.partition(shared.topic, 0)
    return Writer(partition, shared.service.clock.now_ms())


def test_a_group_of_this_wire_does_not_wait_for_transactions_unless_told() -> None:
    async def scenario() -> None:
        shared = Shared()
        shared.broker.groups.delete(shared.broker.groups.named(GROUP), 0, shared.service.commit())
        await shared.beat()
        settings = shared.broker.groups.named(GROUP).settings
        assert settings.isolation == "read_uncommitted"
        assert settings.start == "latest"
        told = queue_table(NodeSettings()).changed(
            settings, {"share.isolation.level": "read_committed"}
        )
        assert told.isolation == "read_committed"

    run(scenario)


def test_an_uncommitted_group_acquires_what_is_open_and_aborted() -> None:
    async def scenario() -> None:
        shared = Shared(isolation="read_uncommitted")
        await shared.beat()
        writer = writer_of(shared)
        writer.write(1, b"a", b"b")
        await shared.publish(b"c")
        assert ranges(await shared.fetch(0)) == [(0, 2, 1)]

    run(scenario)


def test_a_committed_group_acquires_neither() -> None:
    async def scenario() -> None:
        shared = Shared(isolation="read_committed")
        await shared.beat()
        writer = writer_of(shared)
        await shared.publish(b"plain")
        writer.write(1, b"void", b"void")
        writer.write(2, b"good")
        await shared.publish(b"behind")
        assert ranges(await shared.fetch(0)) == [(0, 0, 1)]
        waiting = shared.fetching(1, acks=((0, 0, (ACCEPT,)),))
        assert ranges(await waiting) == []
        poll = shared.fetching(2, wait_ms=30_000)
        writer.abort(1)
        writer.commit(2)
        # Waiting members wake when a marker is safe.
        await shared.publish(b"last")
        assert ranges(await poll) == [(3, 4, 1), (7, 7, 1)]

    run(scenario)


def test_a_restarted_node_still_holds_back_what_is_open() -> None:
    async def scenario() -> None:
        shared = Shared(isolation="read_committed")
        await shared.beat()
        writer_of(shared).write(1, b"open")
        await shared.publish(b"behind")
        disk = shared.service.disk
        assert isinstance(disk, MemoryDisk)
        shared = await shared.reopen()
        assert shared.broker.topics.named(TOPIC).id == shared.topic.id
        await shared.beat()
        assert ranges(await shared.fetch(0)) == []
        writer_of(shared).abort(1)
        await shared.publish(b"more")
        assert ranges(await shared.fetch(1)) == [(1, 1, 1), (3, 3, 1)]

    run(scenario)
