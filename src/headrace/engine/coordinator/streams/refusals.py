"""What a streams group refuses of its members, with the error that they are told."""

from __future__ import annotations

from headrace.engine.coordinator.streams.member import StreamsMember, is_within
from headrace.engine.coordinator.streams.topology import Configured
from headrace.engine.coordinator.streams.values import NOTHING, Held, StreamsRequest
from headrace.engine.coordinator.values import JOIN_EPOCH, LEAVE_EPOCH, GroupError


class Refused(Exception):
    """A request that is answered with an error; nothing was changed."""

    def __init__(self, error: GroupError, reason: str) -> None:
        super().__init__(reason)
        self.error = error


def check_request(request: StreamsRequest) -> None:
    reason = _what_is_wrong(request)
    if reason is not None:
        raise Refused(GroupError.INVALID_REQUEST, reason)


def _what_is_wrong(request: StreamsRequest) -> str | None:
    if not request.member_id:
        return "the member id is empty"
    if request.rack_id == "":
        return "the rack id is empty"
    if request.member_epoch < LEAVE_EPOCH:
        return f"there is no member epoch {request.member_epoch}"
    if request.member_epoch != JOIN_EPOCH:
        return None if request.topology is None else "only a member that joins says its topology"
    if request.rebalance_timeout_ms <= 0:
        return "a member that joins has to say its rebalance timeout"
    if request.owned is not None and request.owned != NOTHING:
        return "a member that joins has no tasks"
    if request.topology is None:
        return "a member that joins has to say its topology"
    if request.topology.epoch < 0:
        return f"there is no topology epoch {request.topology.epoch}"
    return None


def check_epoch(member: StreamsMember, request: StreamsRequest) -> None:
    epoch, owned = request.member_epoch, request.owned
    if epoch == member.epoch:
        return
    # It missed our answer, which is no fault; but what it has must be within what it was
    # granted and is not known to have let go of.
    if epoch == member.heard_epoch and owned is not None and is_within(owned, member.granted()):
        return
    raise Refused(
        GroupError.FENCED_MEMBER_EPOCH,
        f"the member's epoch is {member.epoch}, not {epoch}: give everything up and join again",
    )


def check_owned(owned: Held | None, configured: Configured, member: StreamsMember | None) -> None:
    """Refuse tasks that there are not; but those of a topic that was made anew, and smaller,
    were granted."""
    if owned is None or (member is not None and is_within(owned, member.granted())):
        return
    for subtopology, partition in (*owned.active, *owned.standby):
        count = configured.task_counts.get(subtopology)
        if count is None:
            raise Refused(GroupError.INVALID_REQUEST, f"there is no subtopology {subtopology!r}")
        if not 0 <= partition < count:
            raise Refused(
                GroupError.INVALID_REQUEST,
                f"the subtopology {subtopology} has no task {partition}, but {count} tasks",
            )
