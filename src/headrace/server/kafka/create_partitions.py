"""CreatePartitions, versions 0 to 3: a topic grows.

    count          the new total; a topic never shrinks
    assignments    of the new partitions; taken when each names this node alone
    validate_only  everything but the growth
    timeout_ms     REQUEST_TIMED_OUT when that is not on disk by then; it will be

A topic that keeps the order of keys does not grow over this wire: its keys would
move while older messages of theirs still wait, and there is no way to say here that
this is fine. Many partitions are made in slices, and seen when all of them are there.
"""

from __future__ import annotations

from collections import Counter

from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.limits import PARTITIONS_PER_TOPIC_MAX
from headrace.core.system_errors import disk_error
from headrace.core.wording import counted
from headrace.engine.commit import Commit
from headrace.server.kafka.assignments import check_replicas
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.names import topic_named
from headrace.server.slices import Slices, in_slices
from headrace.wire.kafka.generated.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.kafka.generated.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


async def handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    commit = call.service.commit()
    times = Counter(topic.name for topic in request.topics)
    results, slices = [], Slices()
    for topic in {topic.name: topic for topic in request.topics}.values():
        if times[topic.name] > 1:
            code, message = Error.INVALID_REQUEST, "the request names this topic twice"
            results.append(CreatePartitionsTopicResult(topic.name, code, message))
        else:
            results.append(await _grow(call, topic, commit, validate_only=request.validate_only))
        await slices.rest()
    try:
        await call.finish(commit)
    except HeadraceError as error:
        code = code_of(error)
        results = [
            each if each.error_code else each._replace(error_code=code, error_message=str(error))
            for each in results
        ]
    call.service.wake_watching()
    return CreatePartitionsResponse(results=results)


async def _grow(
    call: Call, wanted: CreatePartitionsTopic, commit: Commit, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    service = call.service
    # Field `count` of a tuple hides its method of that name.
    name, total, assignments = wanted
    code = Error.INVALID_PARTITIONS
    try:
        topic = topic_named(call.broker.topics, name)
        if topic.is_internal:
            raise InvalidArgument(f"{name} is the node's own")
        if not topic.partitions < total <= PARTITIONS_PER_TOPIC_MAX:
            raise InvalidArgument(
                f"topic {name!r} has {counted(topic.partitions, 'partition')} and can have "
                "more, up to "
                f"{PARTITIONS_PER_TOPIC_MAX}, not {total}"
            )
        code = Error.INVALID_REPLICA_ASSIGNMENT
        if assignments is not None:
            if len(assignments) != total - topic.partitions:
                raise InvalidArgument(
                    f"{counted(len(assignments), 'assignment')} for "
                    f"{counted(total - topic.partitions, 'new partition')}"
                )
            check_replicas((each.broker_ids for each in assignments), service.node_id)
        code = Error.INVALID_REQUEST
        if topic.settings.ordering == "key":
            raise InvalidArgument(
                f"topic {name!r} keeps the order of keys, which growing would break; "
                "grow it with `headrace topic grow` while nobody publishes"
            )
        if not validate_only:
            now_ms = service.clock.now_ms()
            await in_slices(
                call.broker.topic_growth(topic, total, now_ms, commit, break_key_order=False)
            )
    except InvalidArgument as error:
        return CreatePartitionsTopicResult(name, code, str(error))
    except HeadraceError as error:
        return CreatePartitionsTopicResult(name, code_of(error), str(error))
    except OSError as error:
        told = disk_error(error)
        return CreatePartitionsTopicResult(name, code_of(told), str(told))
    return CreatePartitionsTopicResult(name)
