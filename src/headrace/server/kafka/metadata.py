"""Metadata, versions 0 to 13: which topics there are, and who leads them.

    topics      answered
    null        all of them; of the node's own topics those that Kafka has, too
    none        none, and the node itself (in version 0, all)
    by name     a topic that does not exist is made when both the request and the
                node's settings allow it; beyond the rate of that, LEADER_NOT_AVAILABLE,
                and the client asks again
                the node's own that Kafka has are made whatever the settings say
    by id       from version 10 on; an unknown id is an error, never a new topic

What is told is on disk: while the catalog is ahead of its log's sync, the answer
waits, so that no client acts on a topic that a crash could take back.

Rejected: answering "no leader yet" for a topic just made, as Kafka does. Here it
has one at once, and clients would come back after a pause for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from headrace.core.errors import HeadraceError, InvalidName, LimitExceeded, UnknownTopic
from headrace.core.steps import Steps
from headrace.core.values import check_name
from headrace.engine.catalog import RESERVED_TOPICS, Topic
from headrace.server.kafka.coordinator_topics import make_topic
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.names import (
    check_no_collision,
    find_topic,
    is_listed,
    kafka_name,
    topic_named,
)
from headrace.server.kafka.nodes import (
    CLUSTER_OPERATIONS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
    address_for,
)
from headrace.server.slices import answer, in_slices
from headrace.wire.kafka.generated.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.generated.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.kafka.primitives import ZERO_UUID

# How many descriptions of partitions are kept, one for each number of partitions.
_KEPT_MAX: Final = 16

_epoch_of = attrgetter("epoch")


def handle(
    call: Call, request: MetadataRequest
) -> MetadataResponse | asyncio.Future[MetadataResponse]:
    service = call.service
    wanted = request.topics
    is_all = wanted is None or (call.version == 0 and not wanted)
    size = len(call.broker.topics.catalog.topics) if is_all else len(wanted or ())
    if not is_all and _makes_some(call, request):
        # Making files takes long, however few topics there are: one after the other.
        return asyncio.ensure_future(_later(call, in_slices(_answer(call, request, is_all))))
    response = answer(size, _answer(call, request, is_all))
    if not isinstance(response, MetadataResponse):
        return asyncio.ensure_future(_later(call, response))
    waiting = call.submit(service.commit())
    if waiting is None:
        return response
    return asyncio.ensure_future(_when_safe(waiting, response))


def _makes_some(call: Call, request: MetadataRequest) -> bool:
    if not request.allow_auto_topic_creation:
        return False
    catalog = call.broker.topics.catalog
    named = (each.name for each in request.topics or () if each.topic_id == ZERO_UUID)
    return any(find_topic(catalog, name or "") is None for name in named)


async def _when_safe(waiting: asyncio.Future[None], response: MetadataResponse) -> MetadataResponse:
    await waiting
    return response


async def _later(call: Call, answering: Coroutine[Any, Any, MetadataResponse]) -> MetadataResponse:
    response = await answering
    waiting = call.submit(call.service.commit())
    return response if waiting is None else await _when_safe(waiting, response)


def _answer(call: Call, request: MetadataRequest, is_all: bool) -> Steps[MetadataResponse]:
    service = call.service
    topics: list[MetadataResponseTopic] = []
    if is_all:
        for topic in _shown(call.broker.topics.catalog.topics.values()):
            # One may be deleted between two steps.
            if topic.id in call.broker.topics.catalog.topics_by_id:
                topics.append(_describe(call, topic, request))
            yield
    else:
        for each in dict.fromkeys(request.topics or ()):
            topics.append(_find(call, each, request))
            yield
    address = address_for(call)
    may = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
    return MetadataResponse(
        brokers=(MetadataResponseBroker(service.node_id, address.host, address.port),),
        cluster_id=service.cluster_id,
        controller_id=service.node_id,
        topics=topics,
        cluster_authorized_operations=may,
    )


def _shown(topics: Iterable[Topic]) -> list[Topic]:
    return sorted(filter(is_listed, topics), key=kafka_name)


def _find(
    call: Call, wanted: MetadataRequestTopic, request: MetadataRequest
) -> MetadataResponseTopic:
    catalog = call.broker.topics.catalog
    if wanted.topic_id != ZERO_UUID:
        topic = catalog.topics_by_id.get(wanted.topic_id)
        if topic is None:
            # Before version 12 a name cannot be null.
            name = None if call.version >= 12 else ""
            return MetadataResponseTopic(Error.UNKNOWN_TOPIC_ID, name, wanted.topic_id)
        return _describe(call, topic, request)
    name = wanted.name or ""
    topic = find_topic(catalog, name)
    if topic is None:
        try:
            check_name("topic", name)
            topic = _make(call, name, may_create=request.allow_auto_topic_creation)
        except LimitExceeded as error:
            is_full = call.broker.topics.is_full()
            return MetadataResponseTopic(
                code_of(error) if is_full else Error.LEADER_NOT_AVAILABLE, name
            )
        except (HeadraceError, OSError) as error:
            return MetadataResponseTopic(code_of(error), name)
    return _describe(call, topic, request)


def _make(call: Call, name: str, *, may_create: bool) -> Topic:
    """A topic that is missing. Dead letters are made too: to them Kafka's clients may write."""
    broker, now_ms = call.broker, call.service.clock.now_ms()
    if name in RESERVED_TOPICS:
        if may_create and make_topic(broker, name, now_ms):
            return topic_named(broker.topics, name)
        if may_create:
            raise InvalidName(f"{name!r} is a topic that Headrace keeps for itself")
        raise UnknownTopic(f"there is no topic {name!r}")
    if may_create and broker.topics.auto_create_partitions:
        check_no_collision(broker.topics.catalog, name)
        source = broker.topics.catalog.source_of(name)
        if source is not None:
            return broker.groups.dead_letters(source, now_ms)
    return broker.topics.to_publish_to(name, now_ms, may_create=may_create)


def _describe(call: Call, topic: Topic, request: MetadataRequest) -> MetadataResponseTopic:
    partitions = call.broker.topics.partitions(topic)
    may = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    return MetadataResponseTopic(
        Error.NONE,
        kafka_name(topic),
        topic.id,
        topic.is_internal,
        _partitions(call.service.node_id, tuple(map(_epoch_of, partitions))),
        may,
    )


def _partitions(node_id: int, epochs: tuple[int, ...]) -> tuple[MetadataResponsePartition, ...]:
    """One for each epoch. Nearly always a node leads all its partitions since the same
    epoch, and then what is told of them differs in nothing but how many there are."""
    if len(set(epochs)) == 1:
        return _led_since(node_id, epochs[0], len(epochs))
    return _led(node_id, epochs)


@lru_cache(_KEPT_MAX)
def _led_since(node_id: int, epoch: int, count: int) -> tuple[MetadataResponsePartition, ...]:
    return _led(node_id, (epoch,) * count)


def _led(node_id: int, epochs: Sequence[int]) -> tuple[MetadataResponsePartition, ...]:
    node = (node_id,)
    return tuple(
        MetadataResponsePartition(Error.NONE, index, node_id, epoch, node, node)
        for index, epoch in enumerate(epochs)
    )
