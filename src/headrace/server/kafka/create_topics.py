"""CreateTopics, versions 2 to 7.

    num_partitions -1        the node's default
    replication_factor       1, or -1 for the default, which is 1
    assignments              taken when each names this node alone
    configs                  configs.py; one that is unknown or cannot hold is refused
    validate_only            everything but the creation
    timeout_ms               REQUEST_TIMED_OUT when the topics are not on disk by then; they will be
    names                    Kafka's rule, with no two that differ in dots and underscores
                             alone; of those the node keeps for itself, none
    <topic>.dlq              the dead letters of a topic that exists, made as the node
                             makes them, whatever else is asked for

A topic that is refused is not made by a client that names it a moment later
(engine/refused_topics.py). Topics fail one by one. From version 5 on the answer has the
configuration that the topic got. It is sent when the topics are on disk. They are made one
after the other, since making files takes long, and one of many partitions in slices; a topic
is seen when it is whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from headrace.core.errors import DeadlineExceeded, HeadraceError, InvalidArgument, InvalidName
from headrace.core.settings import TopicSettings
from headrace.core.steps import Steps, run_to_end
from headrace.core.system_errors import disk_error
from headrace.core.values import DEAD_LETTER_SUFFIX
from headrace.engine.catalog import Topic
from headrace.server.kafka.assignments import check_replicas
from headrace.server.kafka.configs import Entry, Given, InvalidConfig, Source, given_values
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.names import check_no_collision, check_not_shown
from headrace.server.kafka.topic_configs import TOPIC_CONFIGS
from headrace.server.slices import SMALL, in_slices
from headrace.wire.kafka.generated.create_topics_request import (
    CreatableTopic,
    CreateTopicsRequest,
)
from headrace.wire.kafka.generated.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from headrace.wire.kafka.primitives import ZERO_UUID

DEFAULT = -1

Making = Steps[CreatableTopicResult]


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=await create_all(call, request))


async def create_all(call: Call, request: CreateTopicsRequest) -> list[CreatableTopicResult]:
    """Make them, in slices; the results are there when the topics are on disk."""
    results = await in_slices(_make_all(call, request))
    call.service.wake_watching()
    try:
        await call.finish(call.service.commit())
    except DeadlineExceeded as late:
        return [
            each if each.error_code else _failed(each.name, code_of(late), str(late))
            for each in results
        ]
    return results


def _make_all(call: Call, request: CreateTopicsRequest) -> Steps[list[CreatableTopicResult]]:
    results = []
    for making in _makings(call, request):
        results.append((yield from making))
        yield
    return results


def _makings(call: Call, request: CreateTopicsRequest) -> Iterator[Making]:
    times = Counter(topic.name for topic in request.topics)
    for topic in {topic.name: topic for topic in request.topics}.values():
        if times[topic.name] == 1:
            yield _create(call, topic, validate_only=request.validate_only)
        else:
            yield _refuse_twice(call, topic.name)


def _refuse_twice(call: Call, name: str) -> Making:
    yield from ()
    error = InvalidArgument("the request names this topic twice")
    call.broker.topics.note_refused(name, error, call.service.clock.now_ms())
    return _failed(name, Error.INVALID_REQUEST, str(error))


def _create(call: Call, wanted: CreatableTopic, *, validate_only: bool) -> Making:
    service = call.service
    topics = call.broker.topics
    name = wanted.name
    code = Error.INVALID_REQUEST
    source = topics.catalog.source_of(name)
    if source is not None and name not in topics.catalog.topics and not validate_only:
        return _create_letters(call, source)
    try:
        # An existing topic is told of first: that is what a client asks again for.
        check_not_shown(topics.catalog, name)
        topics.check_new(name, 1)
        check_no_collision(topics.catalog, name)
        code = Error.INVALID_REPLICATION_FACTOR
        _check_replication(wanted)
        code = Error.INVALID_REPLICA_ASSIGNMENT
        placed = _check_assignments(wanted, service.node_id)
        code = Error.INVALID_PARTITIONS
        count = placed or _count(wanted, call.door.settings.partitions)
        topics.check_new(name, count)
        values = given_values(wanted.configs)
        settings = TOPIC_CONFIGS.changed(TopicSettings(), values, is_new=True)
        given = TOPIC_CONFIGS.given_after({}, values)
        topic_id = ZERO_UUID
        if not validate_only:
            now_ms = service.clock.now_ms()
            making = topics.creation(name, count, settings, now_ms, configs=given)
            made = run_to_end(making) if count <= SMALL else (yield from making)
            topic_id = made.id
    except (HeadraceError, OSError) as error:
        # A request of thousands of topics may be refused thousands of times.
        reason = error if isinstance(error, HeadraceError) else disk_error(error)
        reason.without_frames()
        if not validate_only:
            topics.note_refused(name, reason, service.clock.now_ms())
        return _failed(name, _code_for(reason, code), str(reason))
    return CreatableTopicResult(
        name, topic_id, Error.NONE, None, Error.NONE, count, 1, _configs(settings, given)
    )


def _code_for(error: HeadraceError, code: Error) -> int:
    """`code` for an argument that cannot be."""
    if isinstance(error, InvalidConfig):
        return Error.INVALID_CONFIG
    if isinstance(error, InvalidName):
        return Error.INVALID_TOPIC_EXCEPTION
    return code if isinstance(error, InvalidArgument) else code_of(error)


def _create_letters(call: Call, source: Topic) -> CreatableTopicResult:
    """For who sends dead letters of its own, before the node had any to keep."""
    name = source.name + DEAD_LETTER_SUFFIX
    try:
        made = call.broker.groups.dead_letters(source, call.service.clock.now_ms())
    except HeadraceError as error:
        return _failed(name, code_of(error), str(error))
    except OSError as error:
        told = disk_error(error)
        return _failed(name, code_of(told), str(told))
    return CreatableTopicResult(
        name, made.id, Error.NONE, None, Error.NONE, made.partitions, 1, _configs(made.settings, {})
    )


def _check_replication(wanted: CreatableTopic) -> None:
    factor = wanted.replication_factor
    if factor not in (DEFAULT, 1):
        raise InvalidArgument(f"replication factor {factor}: there is only one node")


def _check_assignments(wanted: CreatableTopic, node_id: int) -> int:
    """How many partitions are placed by hand; 0 when that is left to us."""
    assignments = sorted(wanted.assignments)
    if assignments:
        if wanted.num_partitions != DEFAULT or wanted.replication_factor != DEFAULT:
            raise InvalidArgument("give either assignments or numbers, not both")
        if [each.partition_index for each in assignments] != list(range(len(assignments))):
            raise InvalidArgument("assignments must be for partitions 0, 1, 2 and so on")
        check_replicas((each.broker_ids for each in assignments), node_id)
    return len(assignments)


def _count(wanted: CreatableTopic, default: int) -> int:
    return default if wanted.num_partitions == DEFAULT else wanted.num_partitions


def _configs(settings: TopicSettings, given: Given) -> Sequence[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            entry.name,
            entry.value,
            entry.is_read_only,
            _source(entry),
        )
        for entry in TOPIC_CONFIGS.describe(settings, None, given)
    ]


def _source(entry: Entry) -> Source:
    if entry.is_set:
        return Source.TOPIC
    return Source.NODES if entry.is_set_for_all else Source.DEFAULT


def _failed(name: str, code: int, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name, ZERO_UUID, code, message)
