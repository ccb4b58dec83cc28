"""What /health/ready says somebody has to see to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.server.connected import Producing, play

from headrace.core.errors import CorruptLog
from headrace.engine.topics import Topics
from headrace.server.http.node import ready


def test_batches_that_cannot_be_read_and_rot_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: Producing) -> None:
        settings = SimpleNamespace(free_bytes_min=0)
        call: Any = SimpleNamespace(service=node.service, facts=SimpleNamespace(settings=settings))
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
