"""What /health/ready says somebody has to see to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.unit.server.test_produce_runs import Bench

from headrace.platform.memory_disk import MemoryDisk
from headrace.server.http.node import ready


def test_batches_that_cannot_be_read_are_told() -> None:
    async def play() -> None:
        bench = Bench(MemoryDisk())
        settings = SimpleNamespace(free_bytes_min=0)
        call: Any = SimpleNamespace(service=bench.service, facts=SimpleNamespace(settings=settings))
        try:
            before = (await ready(call)).problems
            bench.broker.topics.partition(bench.topic, 1).records.unreadable.note(5, "nonsense")
            problems = (await ready(call)).problems
        finally:
            bench.connection.connection_lost(None)
            await bench.service.close()
            bench.broker.close()
        assert before == []
        [problem] = problems
        assert problem.startswith("orders:1 has batches that cannot be read")

    asyncio.run(play())
