"""ShareAcknowledge, versions 1 and 2: the same as within a ShareFetch, alone.

A session cannot be opened this way; epoch -1 closes it and gives back the rest.
"""

from __future__ import annotations

from headrace.engine.sharing import Acknowledgement
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.share_fetch import settle
from headrace.server.kafka.share_groups import FINAL_EPOCH
from headrace.wire.kafka.generated.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.kafka.generated.share_acknowledge_response import (
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


async def handle(call: Call, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    shares = call.door.shares
    name, member = request.group_id or "", request.member_id or ""
    group = shares.group(name)
    if group is None:
        return ShareAcknowledgeResponse(error_code=Error.GROUP_ID_NOT_FOUND)
    if request.share_session_epoch == 0:
        return ShareAcknowledgeResponse(error_code=Error.INVALID_SHARE_SESSION_EPOCH)
    session = shares.session(name, member, request.share_session_epoch)
    if isinstance(session, Error):
        return ShareAcknowledgeResponse(error_code=session)
    wanted = {
        (topic.topic_id, partition.partition_index): [
            Acknowledgement(*batch) for batch in partition.acknowledgement_batches
        ]
        for topic in request.topics
        for partition in topic.partitions
    }
    outcomes = await settle(call, group, member, wanted).finish()
    if request.share_session_epoch == FINAL_EPOCH:
        shares.end_session(name, member)
    topics: dict[bytes, list[PartitionData]] = {}
    for (topic_id, index), error in outcomes.items():
        data = PartitionData(index)
        if error is not None:
            data = PartitionData(index, code_of(error), str(error))
        topics.setdefault(topic_id, []).append(data)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=group.settings.visibility_ms,
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id, tuple(parts))
            for topic_id, parts in topics.items()
        ),
    )
