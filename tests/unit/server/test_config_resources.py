"""ListConfigResources: what has a configuration."""

from __future__ import annotations

from tests.unit.server.asking import Asking, run
from tests.unit.server.configuring import BROKER, GROUP, alter

from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.list_config_resources_request import ListConfigResourcesRequest

LIST, TOPIC, CLIENT_METRICS = 74, 2, 16


def test_topics_the_node_and_groups_that_are_configured_are_listed() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        asking.broker.topics.create("orders", 1, TopicSettings(), asking.service.clock.now_ms())
        await alter(asking, GROUP, "workers", share_delivery_count_limit=7)
        await alter(asking, BROKER, "", max_connections=7)

        async def listed(*kinds: int, version: int = 1) -> set[tuple[str, int]]:
            answer = await asking.ask(LIST, version, ListConfigResourcesRequest(kinds))
            assert answer.error_code == 0
            return {tuple(each) for each in answer.config_resources}

        assert await listed() == {("orders", TOPIC), ("1", BROKER), ("workers", GROUP)}
        assert await listed(GROUP) == {("workers", GROUP)}
        # Which is all that the first version asks for.
        assert await listed(version=0) == await listed(CLIENT_METRICS) == set()
        answer = await asking.ask(LIST, 1, ListConfigResourcesRequest((99,)))
        assert answer.error_code == Error.UNSUPPORTED_VERSION

    run(scenario)
