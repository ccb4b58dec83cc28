"""From a time to an offset: a thread reads the records, at every door."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.unit.server.test_loop_calls import TOPIC, Served, on_a_loop
from tests.unit.server.test_remote_session import Node, on_a_node

from headrace.calls import Face
from headrace.core.errors import UnknownTopic
from headrace.core.values import Outgoing
from headrace.log import timestamps
from headrace.record.reader import read_raw_parts
from headrace.server.times import offset_at


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> set[bool]:
    """Whether those that read records for it were the loop's thread."""
    seen: set[bool] = set()

    def note(batch: Any, header: Any) -> Any:
        seen.add(threading.current_thread() is threading.main_thread())
        return read_raw_parts(batch, header)

    monkeypatch.setattr(timestamps, "read_raw_parts", note)
    return seen


def test_a_thread_reads_the_records(readers: set[bool]) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        began = served.clock.now_ms()
        for _ in range(3):
            served.clock.skip(1)
            await served.publish(b"a", b"b")
        found = [await offset_at(served.calls, TOPIC, 0, began + ms) for ms in (0, 1_001, 3_001)]
        assert found == [0, 2, 6]
        assert readers == {False}
        # What was deleted while it was looked for is not gone back to.
        await served.run(Face.delete_records, TOPIC, 0, 4)
        assert await served.run(Face.offset_of, TOPIC, 0, (2, began)) == 4
        with pytest.raises(UnknownTopic):
            await offset_at(served.calls, "none", 0, began)

    on_a_loop(scenario)


def test_our_own_clients_do_not_keep_others_waiting_either(readers: set[bool]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.ask("publish", TOPIC, [Outgoing(b"a", partition=0)])
        assert await client.ask("offset_at", TOPIC, 0, 0) == 0
        assert readers == {False}

    on_a_node(scenario)
