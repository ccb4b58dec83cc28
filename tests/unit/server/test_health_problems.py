"""What /health/ready says somebody has to see to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.server.connected import Producing, play

from headrace.server.http.node import ready


def test_batches_that_cannot_be_read_are_told() -> None:
    async def scenario(node: Producing) -> None:
        settings = SimpleNamespace(free_bytes_min=0)
        call: Any = SimpleNamespace(service=node.service, facts=SimpleNamespace(settings=settings))
        assert (await ready(call)).problems == []
        node.broker.topics.partition(node.topic, 1).records.unreadable.note(5, 6, "nonsense")
        [problem] = (await ready(call)).problems
        assert problem.startswith("orders:1 has batches that cannot be read")

    play(Producing, scenario)
