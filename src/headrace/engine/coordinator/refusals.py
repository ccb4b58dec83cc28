"""What a consumer group refuses of its members, with the error that they are told."""

from __future__ import annotations

from headrace.core.errors import InvalidArgument
from headrace.engine.coordinator.assignors import ASSIGNORS
from headrace.engine.coordinator.reconciliation import ConsumerMember
from headrace.engine.coordinator.topic_pattern import TopicPattern
from headrace.engine.coordinator.values import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    GroupError,
    HeartbeatRequest,
    TopicPartition,
)


class Refused(Exception):
    """A request that is answered with an error; nothing was changed."""

    def __init__(self, error: GroupError, reason: str) -> None:
        super().__init__(reason)
        self.error = error


def check_request(request: HeartbeatRequest) -> TopicPattern | None:
    """The compiled pattern, if the request has one."""
    reason = _what_is_wrong(request)
    if reason is not None:
        raise Refused(GroupError.INVALID_REQUEST, reason)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise Refused(
            GroupError.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {request.server_assignor!r}; there are {known}",
        )
    if not request.subscribed_topic_regex:
        return None
    try:
        return TopicPattern(request.subscribed_topic_regex)
    except InvalidArgument as error:
        raise Refused(GroupError.INVALID_REGULAR_EXPRESSION, str(error)) from None


def is_sound(request: HeartbeatRequest) -> bool:
    """Whether a group would look at the request at all."""
    try:
        check_request(request)
    except Refused:
        return False
    return True


def _what_is_wrong(request: HeartbeatRequest) -> str | None:
    if not request.member_id:
        return "the member id is empty"
    if request.instance_id == "":
        return "the instance id is empty"
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        return f"there is no member epoch {request.member_epoch}"
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return "only a member with an instance id can leave for a while"
    if request.member_epoch != JOIN_EPOCH:
        return None
    if request.rebalance_timeout_ms <= 0:
        return "whoever joins has to say its rebalance timeout"
    if request.owned is None or request.owned:
        return "whoever joins has no partitions, and has to say so"
    if request.subscribed_topic_names is None and not request.subscribed_topic_regex:
        return "whoever joins has to say what it subscribes to"
    return None


def check_epoch(
    member: ConsumerMember, epoch: int, owned: frozenset[TopicPartition] | None
) -> None:
    if epoch == member.epoch:
        return
    # It missed our answer, which is no fault; but what it has must be within
    # what it was granted and is not known to have let go of.
    granted = member.assigned | member.revoking
    if epoch == member.heard_epoch and owned is not None and owned <= granted:
        return
    raise Refused(
        GroupError.FENCED_MEMBER_EPOCH,
        f"the member's epoch is {member.epoch}, not {epoch}: give everything up and join again",
    )
