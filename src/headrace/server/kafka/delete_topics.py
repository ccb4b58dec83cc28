"""DeleteTopics, versions 1 to 6: by name, from version 6 on also by id.

A topic takes its dead letters along. The answer is sent when the deletion lasts and
the files are gone; before that, and one after the other where there are many, the topics
do not exist any more. When that lasts longer than timeout_ms the answer is REQUEST_TIMED_OUT,
and they go all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headrace.core.errors import DeadlineExceeded, HeadraceError, UnknownTopic
from headrace.engine.catalog import Topic
from headrace.server.deletion import delete_topics
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.names import kafka_name, topic_of
from headrace.server.slices import Slices
from headrace.wire.kafka.generated.delete_topics_request import (
    DeleteTopicsRequest,
    DeleteTopicState,
)
from headrace.wire.kafka.generated.delete_topics_response import (
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from headrace.wire.kafka.primitives import ZERO_UUID

_IDS_FIRST = 6


async def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted: Iterable[DeleteTopicState] = request.topics
    if call.version < _IDS_FIRST:
        wanted = map(DeleteTopicState, request.topic_names)
    times = Counter(wanted)
    found: dict[bytes, Topic] = {}
    results, slices = [], Slices()
    for each, count in times.items():
        results.append(_find(call, each, count > 1, found))
        await slices.rest()
    if found:
        try:
            await delete_topics(call.service, list(found.values()), call.context.deadline)
        except DeadlineExceeded as late:
            results = [
                each
                if each.error_code
                else each._replace(error_code=code_of(late), error_message=str(late))
                for each in results
            ]
    return DeleteTopicsResponse(responses=results)


def _find(
    call: Call, wanted: DeleteTopicState, is_repeated: bool, found: dict[bytes, Topic]
) -> DeletableTopicResult:
    name, topic_id = wanted
    is_by_id = topic_id != ZERO_UUID
    if is_repeated:
        return _failed(wanted, Error.INVALID_REQUEST, "the request names this topic twice")
    if is_by_id == (name is not None):
        return _failed(wanted, Error.INVALID_REQUEST, "give either a name or an id")
    try:
        topic = topic_of(call.service, name or "", topic_id)
    except UnknownTopic as error:
        return _failed(wanted, Error.UNKNOWN_TOPIC_ID if is_by_id else code_of(error), str(error))
    except HeadraceError as error:
        return _failed(wanted, code_of(error), str(error))
    if topic.is_internal:
        return _failed(
            wanted, Error.INVALID_TOPIC_EXCEPTION, f"{kafka_name(topic)} is the node's own"
        )
    if topic.id in found:
        return _failed(wanted, Error.INVALID_REQUEST, "the request names this topic twice")
    found[topic.id] = topic
    return DeletableTopicResult(topic.name, topic.id)


def _failed(wanted: DeleteTopicState, code: int, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(wanted.name, wanted.topic_id, code, message)
