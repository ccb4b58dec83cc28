"""Topics that are made because a client names them: one after the other, so that others have
their turn, and once, whoever asks for one meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.test_many_partitions import turns_until_done

from headrace.calls import Face
from headrace.core.errors import UnknownTopic
from headrace.core.values import Outgoing, PlacedBatch, Published
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch
from headrace.server import slices
from headrace.server.kafka.errors import Error
from headrace.server.loop_calls import Calls
from headrace.wire.kafka.generated.create_topics_request import (
    CreatableTopic,
    CreateTopicsRequest,
)
from headrace.wire.kafka.generated.metadata_request import MetadataRequest, MetadataRequestTopic

METADATA, CREATE = 3, 19
PARTITIONS, TOPICS = 3, 12


@pytest.fixture(autouse=True)
def shortest_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)


def asking_that_makes_topics() -> Asking:
    asking = Asking(MemoryDisk())
    asking.broker.topics.auto_create_partitions = PARTITIONS
    return asking


def metadata(asking: Asking, *names: str) -> asyncio.Future[Any]:
    wanted = tuple(MetadataRequestTopic(name=name) for name in names)
    return asking.begin(METADATA, 12, MetadataRequest(wanted))


def publish(asking: Asking, name: str, **how: Any) -> asyncio.Task[list[Published]]:
    calls = Calls(asking.service, **how)
    return asyncio.ensure_future(calls.run(Face.publish, name, [Outgoing(b"value")]))


def create(asking: Asking, *names: str) -> asyncio.Future[Any]:
    wanted = tuple(CreatableTopic(name, PARTITIONS, 1) for name in names)
    return asking.begin(CREATE, 7, CreateTopicsRequest(wanted, 1_000))


def test_others_have_their_turn_while_topics_are_made() -> None:
    async def scenario() -> None:
        asking = asking_that_makes_topics()
        names = [f"topic-{number}" for number in range(TOPICS)]
        assert await turns_until_done(metadata(asking, *names)) > TOPICS
        # Where nothing is to be made, nothing takes longer than before.
        assert await turns_until_done(metadata(asking, *names)) < TOPICS
        more = [f"more-{number}" for number in range(TOPICS)]
        assert await turns_until_done(create(asking, *more)) > TOPICS
        assert asking.broker.topics.catalog.topics.keys() >= {*names, *more}

    run(scenario)


def test_batches_for_a_new_topic_stay_in_order() -> None:
    async def scenario() -> None:
        asking = asking_that_makes_topics()
        calls = Calls(asking.service)
        publishing = []
        for number in range(40):
            batch = bytearray(build_batch([NewRecord(None, b"%d" % number)]))
            publishing.append(asyncio.ensure_future(calls.run(Face.publish_batch, "new", 0, batch)))
            await asyncio.sleep(0)
        places = await asyncio.gather(*publishing)
        assert [place.offset for place in places] == list(range(40))

    run(scenario)


def test_a_topic_that_several_ask_for_at_once_is_made_once() -> None:
    async def scenario() -> None:
        asking = asking_that_makes_topics()
        told = [metadata(asking, "new") for _ in range(2)]
        published = [publish(asking, "new") for _ in range(2)]
        refused = create(asking, "new")
        ids = set()
        for each in told:
            (topic,) = (await each).topics
            assert (topic.error_code, len(topic.partitions)) == (Error.NONE, PARTITIONS)
            ids.add(topic.topic_id)
        assert len(ids) == 1
        places = [place for places in await asyncio.gather(*published) for place in places]
        assert len({(place.partition, place.offset) for place in places}) == len(published)
        (result,) = (await refused).topics
        assert result.error_code == Error.TOPIC_ALREADY_EXISTS

    run(scenario)


def test_publishing_makes_no_topic_where_the_node_or_the_client_wants_none() -> None:
    async def scenario() -> None:
        asking = asking_that_makes_topics()
        with pytest.raises(UnknownTopic):
            await publish(asking, "new", auto_create=False)
        asking.broker.topics.auto_create_partitions = 0
        with pytest.raises(UnknownTopic):
            await publish(asking, "new")
        assert "new" not in asking.broker.topics.catalog.topics

    run(scenario)


def test_batches_beside_one_for_a_new_topic_are_written_once() -> None:
    async def scenario() -> None:
        asking = asking_that_makes_topics()
        await publish(asking, "known")
        known = asking.broker.topics.named("known")
        before = sum(each.log.end_offset for each in asking.broker.topics.partitions(known))
        batches = [
            PlacedBatch(name, 0, bytearray(build_batch([NewRecord(None, b"value")])))
            for name in ("known", "new", "not a name", "known")
        ]
        outcomes = await Calls(asking.service).run(Face.publish_batches, batches)
        assert [isinstance(each, Published) for each in outcomes] == [True, True, False, True]
        after = sum(each.log.end_offset for each in asking.broker.topics.partitions(known))
        assert after == before + 2

    run(scenario)
