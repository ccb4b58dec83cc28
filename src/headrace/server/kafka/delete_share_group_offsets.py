"""DeleteShareGroupOffsets, version 0: let a share group forget a topic.

Only while the group has no members. A member that subscribes to the topic later
begins where a new group would.
"""

from __future__ import annotations

from headrace.core.errors import HeadraceError, shortened
from headrace.engine.catalog import Group
from headrace.engine.commit import Commit
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.wire.kafka.generated.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
)
from headrace.wire.kafka.generated.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


async def handle(
    call: Call, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    # Messages that are on their way to the dead letters arrive there first.
    commit = call.service.commit()
    try:
        await call.finish(commit)
        group = call.door.shares.idle_group(request.group_id)
        if isinstance(group, Error):
            return DeleteShareGroupOffsetsResponse(
                error_code=group, error_message="the group has members, or there is none"
            )
        commit = call.service.commit()
        responses = tuple(
            _forget(call, group, topic.topic_name, commit) for topic in request.topics
        )
        await call.finish(commit)
    except HeadraceError as error:
        return DeleteShareGroupOffsetsResponse(error_code=code_of(error), error_message=str(error))
    return DeleteShareGroupOffsetsResponse(responses=responses)


def _forget(
    call: Call, group: Group, name: str, commit: Commit
) -> DeleteShareGroupOffsetsResponseTopic:
    broker = call.broker
    topic = broker.topics.catalog.topics.get(name)
    if topic is None or topic.is_internal:
        return DeleteShareGroupOffsetsResponseTopic(
            name,
            error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=shortened(f"there is no topic {name!r}"),
        )
    # Forgetting what one does not know is done already.
    broker.groups.unsubscribe(group, topic, call.service.clock.now_ms(), commit)
    return DeleteShareGroupOffsetsResponseTopic(name, topic.id)
