"""Many queue groups on one topic, and one queue group on many partitions: both are bounded."""

from __future__ import annotations

import pytest
from tests.unit.server.asking import run
from tests.unit.server.share_door import GROUP, HEARTBEAT, TOPIC, Shared

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import LimitExceeded
from headrace.core.settings import TopicSettings
from headrace.engine import groups
from headrace.engine.partition import Partition
from headrace.server.kafka.errors import Error
from headrace.server.loop_calls import Calls
from headrace.wire.kafka.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest


def test_so_many_queue_groups_read_a_topic_and_the_next_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "QUEUE_GROUPS_PER_TOPIC_MAX", 3)

    async def scenario() -> None:
        asking = Shared()
        calls = Calls(asking.service)
        asking.broker.topics.create("other", 1, TopicSettings(), 1)
        for number in range(3):
            await calls.run(Face.open_queue, f"group-{number}", [TOPIC], "worker", None)
        catalog = asking.broker.topics.catalog
        with pytest.raises(LimitExceeded, match="'jobs' is read by 3 queue groups"):
            await calls.run(Face.open_queue, "one-more", ["other", TOPIC], "worker", None)
        assert asking.broker.topics.catalog is catalog
        # Those that read it go on, and other topics have room.
        await calls.run(Face.open_queue, "group-0", [TOPIC, "other"], "worker", None)
        await calls.run(Face.open_queue, "one-more", ["other"], "worker", None)
        # A share group is one of them.
        joining = ShareGroupHeartbeatRequest("shared", "m1", 0, None, (TOPIC,))
        refused = await asking.ask(HEARTBEAT, 1, joining)
        assert refused.error_code == Error.POLICY_VIOLATION
        assert "3 queue groups" in refused.error_message
        await calls.run(Face.delete_group, "group-1")
        assert (await asking.ask(HEARTBEAT, 1, joining)).error_code == Error.NONE

    run(scenario)


@pytest.mark.parametrize("kind", ["queue", "share"])
def test_a_group_on_many_partitions_leaves_few_files_unsynced_at_a_time(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with unsynced writes stays open until it is synced. Where too many are, the loop
    itself would have to wait for the disk."""
    monkeypatch.setattr(groups, "VIEWS_AT_ONCE", 8)
    unsynced: list[int] = []
    open_view = Partition.open_view

    async def scenario() -> None:
        asking = Shared(partitions=60)
        partitions = asking.broker.topics.partitions(asking.topic)

        def noting(self: Partition, *arguments: object) -> None:
            open_view(self, *arguments)  # type: ignore[arg-type]
            states = [each.state.log for each in partitions if each.state is not None]
            unsynced.append(sum(log.synced_end < log.end_offset for log in states))

        monkeypatch.setattr(Partition, "open_view", noting)
        if kind == "share":
            assert (await asking.beat()).error_code == Error.NONE
        else:
            calls = Calls(asking.service)
            await calls.run_in_slices(Face.queue_opening, GROUP, [TOPIC], "worker", None)

    run(scenario)
    assert len(unsynced) == 60
    assert max(unsynced) == 8
