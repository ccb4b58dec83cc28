"""What /health/ready says somebody has to see to."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.server.connected import Producing, play
from tests.unit.server.http_lines import Bench, wait_until
from tests.unit.server.http_lines import play as play_http

from headrace.core.errors import CorruptLog
from headrace.engine.topics import Topics
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.http.node import ready
from headrace.server.loop_calls import Calls


def test_batches_that_cannot_be_read_and_rot_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: Producing) -> None:
        settings = SimpleNamespace(free_bytes_min=0)
        facts = SimpleNamespace(settings=settings)
        calls = Calls(node.service)
        call: Any = SimpleNamespace(service=node.service, facts=facts, calls=calls)
        # However many partitions there are, it does not go over all of them.
        monkeypatch.setattr(Topics, "__iter__", None)
        assert (await ready(call)).problems == []
        node.broker.topics.partition(node.topic, 1).records.unreadable.note(5, 6, "nonsense")
        [problem] = (await ready(call)).problems
        assert problem.startswith("orders:1 has batches that cannot be read")
        node.broker.topics.partition(node.topic, 0).stop(CorruptLog("it has rotted"))
        assert (await ready(call)).problems == [problem, "it has rotted"]
        node.broker.delete_topic(node.topic, node.service.clock.now_ms(), node.service.commit())
        assert (await ready(call)).problems == []
        monkeypatch.undo()

    play(Producing, scenario)


def test_a_full_disk_is_told_by_health_and_by_what_the_dashboard_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    floor = 1_000_000
    free = {"bytes": 10 * floor}
    monkeypatch.setattr(MemoryDisk, "free_bytes", lambda _: free["bytes"])

    async def scenario(bench: Bench) -> None:
        async def get(path: str) -> Any:
            line = bench.connect()
            line.receive(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            await wait_until(lambda: line.sent.endswith(b"}"))
            head, _, body = line.sent.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            return json.loads(body)

        async def told() -> tuple[list[str], list[tuple[str, str]]]:
            problems = (await get("/health/ready")).get("problems", [])
            findings = (await get("/overview"))["attention"]
            return problems, [(each["code"], each["level"]) for each in findings]

        assert await told() == ([], [])
        free["bytes"] = floor - 1
        [problem], findings = await told()
        assert "the disk is full: 999999 bytes are free" in problem
        assert findings == [("disk-full", "critical")]
        # It gets room.
        free["bytes"] = 7 * floor
        assert await told() == ([], [("disk-low", "warning")])

    play_http(scenario, free_bytes_min=floor)
