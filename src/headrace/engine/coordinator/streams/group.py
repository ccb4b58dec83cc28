"""The streams group (KIP-1071): the broker shares out the tasks of a Kafka Streams application.

Members say what the application is made of when they join; the broker works out its tasks,
asks for the internal topics to be made, and assigns. Then as in a consumer group:

    members, topology, topics    group epoch        raised when one of them changes
            |
            v
    target assignment            assignment epoch   made at a heartbeat, but not for a while
            |                                       after the first member came, and not too
            |                                       often; empty while topics are missing
            v
    each member                  member epoch       follows in its own time (member.py)

    state         Empty        no members
                  NotReady     topics are missing or have the wrong number of partitions
                  Assigning    a new target is due
                  Reconciling  members are following the target
                  Stable

A group has one topology: its first member brings it, and all others have to bring the same
while there are any; one with an older epoch is told that it is stale. Endpoints at which
members can be asked for their state have an epoch of their own; a member that has not heard of
the newest one is told all of them.

Static members are refused, as by Kafka 4.3, whose clients have none in such a group.

What a member is told is written down before (`unwritten`, coordinator/stored.py). A group that
was restored makes a new target out of what its members have: they keep their tasks, and those
who came last get theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress

from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.sizes import MEMBER_BYTES, TASK_BYTES, text_bytes
from headrace.engine.coordinator.stored import (
    TOPOLOGY_KEY,
    StreamsRecord,
    TopologyRecord,
    Unwritten,
)
from headrace.engine.coordinator.streams.assignor import Seat, assign
from headrace.engine.coordinator.streams.endpoints import (
    partitions_by_endpoint,
    partitions_read,
    tasks_that_read,
)
from headrace.engine.coordinator.streams.member import REVOKING, STABLE, Holders, StreamsMember
from headrace.engine.coordinator.streams.refusals import (
    Refused,
    check_epoch,
    check_owned,
    check_request,
)
from headrace.engine.coordinator.streams.statuses import statuses_of
from headrace.engine.coordinator.streams.topology import (
    Configured,
    InvalidTopology,
    check,
    configure,
    required_topics,
    topology_bytes,
    with_sizes,
)
from headrace.engine.coordinator.streams.values import (
    NOTHING,
    Held,
    Status,
    StreamsAnswer,
    StreamsDescription,
    StreamsMemberDescription,
    StreamsRequest,
    TaskIds,
    Topology,
)
from headrace.engine.coordinator.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    GroupError,
    Topics,
)


class StreamsGroup:
    def __init__(self, name: str, *, epoch: int = 0, rules: GroupRules | None = None) -> None:
        self.name = name
        # A member that waits for the first target gets this epoch, and 0 would mean that
        # it joins.
        self.group_epoch = self.assignment_epoch = max(epoch, 1)
        self._rules = rules or GroupRules()
        self._members: dict[str, StreamsMember] = {}
        self._topology: Topology | None = None
        self._topics: Topics | None = None
        self._found: dict[str, tuple[bytes, int]] = {}
        self._configured = Configured({})
        self._target: dict[str, Held] = {}
        self._holders = Holders()
        self._standby_replicas = 0
        # Before then no target is made.
        self._assign_after_ms = 0
        self._endpoint_epoch = 0
        # Members whose news of endpoints have an epoch that means nothing here.
        self._out_of_date: set[str] = set()
        self._shut_down_by: str | None = None
        # Members of whom something is not written down, and the topology's key likewise.
        self._moved: set[str] = set()

    def obey(self, rules: GroupRules) -> None:
        """Sessions that are running keep their length until their member is heard of."""
        self._rules = rules

    # Inputs.

    def on_heartbeat(self, request: StreamsRequest, topics: Topics, now_ms: int) -> StreamsAnswer:
        try:
            check_request(request)
            if request.member_epoch == LEAVE_EPOCH:
                return self._on_leave(request)
            return self._on_alive(request, topics, now_ms)
        except Refused as refusal:
            return StreamsAnswer(
                refusal.error, str(refusal), request.member_id, request.member_epoch
            )

    def tick(self, now_ms: int) -> list[str]:
        """Drop members that ran out of time; their ids. What they had is shared out
        when the next member is heard of."""
        late = [each for each in self._members.values() if _deadline_ms(each) <= now_ms]
        for member in late:
            self._remove(member)
        return [member.member_id for member in late]

    def next_deadline_ms(self) -> int | None:
        return min(map(_deadline_ms, self._members.values()), default=None)

    # What is written down.

    def unwritten(self, written: Set[str]) -> Unwritten:
        """What is to be written, where something is written under these ids."""
        if self._topology is None or not self._members:
            return dict.fromkeys(written)
        changed: Unwritten = {}
        if TOPOLOGY_KEY in self._moved or TOPOLOGY_KEY not in written:
            changed[TOPOLOGY_KEY] = TopologyRecord(self._topology, self._standby_replicas)
        changed.update(dict.fromkeys(written - self._members.keys() - {TOPOLOGY_KEY}))
        for member_id in self._moved & self._members.keys():
            changed[member_id] = self._members[member_id].record()
        return changed

    def on_written(self) -> None:
        self._moved.clear()

    def restore(
        self,
        common: TopologyRecord,
        records: Mapping[str, StreamsRecord],
        topics: Topics,
        now_ms: int,
    ) -> None:
        """Be the group that was written down. What the catalog makes of its topology now is
        looked at again when a member is heard of."""
        # Members are told if it cannot be run any more.
        with suppress(InvalidTopology):
            self._take_over(common.topology, configure(common.topology, topics), topics)
        self._topology, self._standby_replicas = common.topology, common.standby_replicas
        for member_id, record in records.items():
            member = StreamsMember(member_id)
            member.restore(record)
            member.expires_ms = now_ms + self._rules.streams_session_timeout_ms
            if member.state == REVOKING:
                member.revoke_deadline_ms = now_ms + member.rebalance_timeout_ms
            self._members[member_id] = member
            self._holders.take_over(member, member.granted())
            self._target[member_id] = member.assigned
        self._moved.clear()
        self._out_of_date = set(self._members)
        self.assignment_epoch = max(1, *(each.epoch for each in self._members.values()))
        # A target that nobody had followed yet is not on record.
        self.group_epoch = self.assignment_epoch + 1

    # Questions.

    def check_commit(
        self,
        member_id: str,
        member_epoch: int,
        partitions: Callable[[], Iterable[tuple[str, int]]] = tuple,
        *,
        transactional: bool = False,
    ) -> GroupError:
        """Whether these credentials may commit offsets now, of these partitions by topic. An
        epoch of the past will do for tasks that the member had then and has still."""
        if member_epoch < 0 and (not self._members or (transactional and not member_id)):
            return GroupError.NONE
        member = self._members.get(member_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID
        if member_epoch == member.epoch:
            return GroupError.NONE
        if member_epoch > member.epoch:
            return GroupError.STALE_MEMBER_EPOCH
        tasks = tasks_that_read(partitions(), self._topology)
        is_fine = tasks is not None and member.may_commit_behind(member_epoch, tasks)
        return GroupError.NONE if is_fine else GroupError.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> GroupError:
        """Whether these credentials may read the group's offsets. Callers that do
        not claim to be members may."""
        if not member_id and member_epoch < 0:
            return GroupError.NONE
        member = self._members.get(member_id or "")
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID
        is_current = member_epoch == member.epoch
        return GroupError.NONE if is_current else GroupError.STALE_MEMBER_EPOCH

    def is_empty(self) -> bool:
        return not self._members

    def is_known(self) -> bool:
        """Whether it ever had a member."""
        return self._topology is not None

    def member_sizes(self) -> Iterator[int]:
        """The bytes that each member said of itself; and those of the topology, which is
        kept without members too, for tools that look at the group then."""
        for member in self._members.values():
            yield member.held_bytes()
        if self._topology is not None:
            yield topology_bytes(self._topology)

    def assigned_bytes(self) -> int:
        """About what is kept of tasks."""
        tasks = sum(self._configured.task_counts.values()) if self._members else 0
        return TASK_BYTES * tasks * (1 + self._standby_replicas)

    def growth(self, request: StreamsRequest) -> int:
        """About how many bytes more are kept when this was heard, without its tasks: their
        number has a bound."""
        member = self._members.get(request.member_id)
        if member is None and request.member_epoch != JOIN_EPOCH:
            return 0
        more = 0
        if request.topology is not None and request.topology != self._topology:
            more = topology_bytes(request.topology)
        if member is None:
            member = StreamsMember("")
            more += MEMBER_BYTES + text_bytes(request.member_id)
        return more + member.growth(request)

    def subscribed_topics(self) -> frozenset[str]:
        if not self._members or self._topology is None:
            return frozenset()
        return frozenset(
            name for each in self._topology.subtopologies for name in each.read_topics()
        )

    def state(self) -> str:
        if not self._members:
            return "Empty"
        if not self._configured.is_ready:
            return "NotReady"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        settled = all(
            member.state == STABLE and member.epoch == self.assignment_epoch
            for member in self._members.values()
        )
        return "Stable" if settled else "Reconciling"

    def partitions_read(self, held: Held) -> TaskIds:
        """By topic, what active tasks among these read."""
        subtopologies = () if self._topology is None else self._topology.subtopologies
        read = {each.id: each.read_topics() for each in subtopologies}
        return partitions_read(held.active, read, self._found)

    def lacks_source_topics(self) -> bool:
        """Whether members wait for topics that their users have to make."""
        problem = self._configured.problem
        return problem is not None and problem[0] is Status.MISSING_SOURCE_TOPICS

    def describe(self) -> StreamsDescription:
        topology = self._topology
        if topology is not None and self._configured.is_ready:
            topology = with_sizes(topology, self._configured.sizes)
        return StreamsDescription(
            self.state(),
            self.group_epoch,
            self.assignment_epoch,
            topology,
            tuple(
                StreamsMemberDescription(
                    member.member_id,
                    member.epoch,
                    member.rack_id,
                    member.client_id,
                    member.client_host,
                    member.topology_epoch,
                    member.process_id,
                    member.endpoint,
                    member.client_tags,
                    member.assigned,
                    self._target.get(member.member_id, NOTHING),
                )
                for member in self._members.values()
            ),
        )

    # Heartbeats.

    def _on_alive(self, request: StreamsRequest, topics: Topics, now_ms: int) -> StreamsAnswer:
        # Everything that may be refused comes before anything is changed.
        topology = self._topology_after(request)
        configured = self._configured_after(topology, topics)
        known = self._find(request)
        if configured.is_ready:
            check_owned(request.owned, configured, known)
        if not self._members:
            self._assign_after_ms = now_ms + self._rules.streams_rebalance_delay_ms
        member = known or StreamsMember(request.member_id)
        self._members[member.member_id] = member
        before, facts = member.assigned, None if known is None else known.facts()
        member.heard_epoch = request.member_epoch
        member.expires_ms = now_ms + self._rules.streams_session_timeout_ms
        changed = member.update(request) or known is None
        changed |= self._take_over(topology, configured, topics)
        if self._standby_replicas != self._rules.streams_standby_replicas:
            self._standby_replicas = self._rules.streams_standby_replicas
            self._moved.add(TOPOLOGY_KEY)
            changed = True
        if changed:
            self.group_epoch += 1
        delay = self._follow(now_ms)
        target = self._target.get(member.member_id, NOTHING)
        member.reconcile(target, self.assignment_epoch, request.owned, self._holders, now_ms)
        if member.facts() != facts:
            self._moved.add(member.member_id)
        if request.shuts_down:
            self._shut_down_by = self._shut_down_by or member.member_id
        return self._answer(request, member, before, delay)

    def _answer(
        self, request: StreamsRequest, member: StreamsMember, before: Held, delay: str | None
    ) -> StreamsAnswer:
        is_joining = request.member_epoch == JOIN_EPOCH
        is_changed = is_joining or member.assigned != before
        if is_changed and member.endpoint is not None:
            self._endpoint_epoch += 1
        # A member that says it has something else may have missed our last answer.
        is_told = is_changed or (request.owned is not None and request.owned != member.assigned)
        endpoints = None
        if request.endpoint_epoch != self._endpoint_epoch or member.member_id in self._out_of_date:
            self._out_of_date.discard(member.member_id)
            endpoints = partitions_by_endpoint(self._members.values(), self._topology, self._found)
        return StreamsAnswer(
            GroupError.NONE,
            None,
            member.member_id,
            member.epoch,
            statuses_of(
                member, self._topology, self._configured.problem, delay, self._shut_down_by
            ),
            member.assigned if is_told else None,
            self._endpoint_epoch,
            endpoints,
            self._configured.missing,
        )

    def _on_leave(self, request: StreamsRequest) -> StreamsAnswer:
        member = self._members.get(request.member_id)
        if member is None:
            raise self._unknown()
        if request.shuts_down:
            self._shut_down_by = self._shut_down_by or member.member_id
        self._remove(member)
        return StreamsAnswer(
            GroupError.NONE, None, request.member_id, request.member_epoch,
            endpoint_epoch=self._endpoint_epoch,
        )  # fmt: skip

    # Members.

    def _find(self, request: StreamsRequest) -> StreamsMember | None:
        """The member that calls; None if it is new and may join."""
        member = self._members.get(request.member_id)
        if request.member_epoch == JOIN_EPOCH:
            if member is None and len(self._members) >= self._rules.streams_members_max:
                raise Refused(
                    GroupError.GROUP_MAX_SIZE_REACHED,
                    f"the group {self.name!r} has {self._rules.streams_members_max} members, "
                    "the most allowed",
                )
            return member
        if member is None:
            raise self._unknown()
        check_epoch(member, request)
        return member

    def _unknown(self) -> Refused:
        return Refused(GroupError.UNKNOWN_MEMBER_ID, f"the group {self.name!r} has no such member")

    def _remove(self, member: StreamsMember) -> None:
        member.release(self._holders)
        del self._members[member.member_id]
        self._target.pop(member.member_id, None)
        self._out_of_date.discard(member.member_id)
        self.group_epoch += 1
        if member.endpoint is not None:
            self._endpoint_epoch += 1
        if not self._members:
            self._shut_down_by = None
            # A group without members is not heard of for long, and holds no picture.
            self._topics = None

    # Topology and target.

    def _topology_after(self, request: StreamsRequest) -> Topology:
        """What the group's topology is once this was heard."""
        given = request.topology
        if given is None:
            if self._topology is None or not self._members:
                raise self._unknown()
            return self._topology
        try:
            check(given)
        except InvalidTopology as error:
            raise Refused(GroupError.STREAMS_INVALID_TOPOLOGY, str(error)) from None
        if self._topology is None or not self._members.keys() - {request.member_id}:
            return given
        if given.epoch >= self._topology.epoch and given != self._topology:
            raise Refused(
                GroupError.INVALID_REQUEST,
                f"the members of group {self.name!r} have another topology: it changes when all "
                "of them have left",
            )
        return self._topology

    def _configured_after(self, topology: Topology, topics: Topics) -> Configured:
        if topics is self._topics and topology == self._topology:
            return self._configured
        try:
            return configure(topology, topics)
        except InvalidTopology as error:
            raise Refused(GroupError.STREAMS_INVALID_TOPOLOGY, str(error)) from None

    def _take_over(self, topology: Topology, configured: Configured, topics: Topics) -> bool:
        """Whether tasks may be others than before."""
        if topics is self._topics and topology == self._topology:
            return False
        found = {name: topics[name] for name in required_topics(topology) if name in topics}
        if topology != self._topology:
            # A member that brings another one is alone in the group, and has nothing yet.
            self._moved.add(TOPOLOGY_KEY)
            self._target = {}
            for member in self._members.values():
                member.release(self._holders)
        changed = (
            topology != self._topology or configured != self._configured or found != self._found
        )
        self._topology, self._configured = topology, configured
        self._topics, self._found = topics, found
        return changed

    def _follow(self, now_ms: int) -> str | None:
        """Make a new target if one is due. Returns why it has to wait, if it has."""
        if self.group_epoch == self.assignment_epoch:
            return None
        if now_ms < self._assign_after_ms:
            return "Assignment delayed: the group waits for more members, or had one just now."
        assert self._topology is not None
        stateful = {each.id for each in self._topology.subtopologies if each.changelog_topics}
        is_ready = self._configured.is_ready
        self._target = assign(
            {
                member_id: Seat(member.process_id, self._target.get(member_id, NOTHING))
                for member_id, member in self._members.items()
            },
            self._configured.task_counts if is_ready else {},
            stateful,
            self._standby_replicas,
        )
        self.assignment_epoch = self.group_epoch
        if is_ready:
            # What was missing may be there in a moment, and members should not wait then.
            self._assign_after_ms = now_ms + self._rules.streams_assignment_interval_ms
        return None


def _deadline_ms(member: StreamsMember) -> int:
    if member.revoke_deadline_ms is None:
        return member.expires_ms
    return min(member.expires_ms, member.revoke_deadline_ms)
