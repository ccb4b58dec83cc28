"""Groups with members of both protocols, under any interleaving of what they can do.

Classic members are eager (they give up everything before they join) or cooperative (they
say what they have, and join again when they gave something up). Answers may be lost, and the
coordinator may start anew.

    OneOwner             no two members read the same partition
    AlwaysStableAgain    left alone, everything is read, each partition by one member
"""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.notebook import Notebook
from tests.unit.engine.coordinator.conftest import join_request

from headrace.engine.coordinator.assignment_bytes import assigned_partitions
from headrace.engine.coordinator.mixed import MixedGroup
from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.stored import ConsumerRecord
from headrace.engine.coordinator.values import (
    GroupError,
    HeartbeatRequest,
    SyncRequest,
    by_topic,
    one_by_one,
)
from headrace.wire.kafka.embedded import encode_subscription
from headrace.wire.kafka.generated.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)

SESSION_MS = 6_000
TOPIC_ID = b"t" * 16
indexes = st.integers(0, 10)


class Client:
    """What a process knows, was told and reads: partitions of one topic."""

    def __init__(self, member_id: str, kind: str) -> None:
        self.member_id = member_id
        self.kind = kind
        self.epoch = 0
        self.told: frozenset[int] = frozenset()
        self.reads: frozenset[int] = frozenset()
        # Of the classic protocol: join, sync or beat.
        self.next = "join"

    def start_over(self) -> None:
        self.epoch, self.next = 0, "join"
        self.told = self.reads = frozenset()


def new_group() -> MixedGroup:
    group = MixedGroup("g")
    group.obey(GroupRules(consumer_session_timeout_ms=SESSION_MS, session_ms_min=SESSION_MS))
    return group


class MixedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = new_group()
        self.notebook = Notebook()
        # About to end: what happens now is neither written nor answered.
        self.is_dying = False
        self.topics = {"t": (TOPIC_ID, 4)}
        self.now_ms = 1_000
        self.clients: list[Client] = []
        self.numbers = count(1)

    @initialize(kinds=st.lists(st.sampled_from(["new", "eager", "cooperative"]), max_size=3))
    def begin(self, kinds: list[str]) -> None:
        for kind in kinds:
            self.start(kind)

    @precondition(lambda self: len(self.clients) < 5)
    @rule(kind=st.sampled_from(["new", "eager", "cooperative"]))
    def start(self, kind: str) -> None:
        self.clients.append(Client(f"m{next(self.numbers)}", kind))

    @precondition(lambda self: self.clients)
    @rule(index=indexes, lost=st.booleans())
    def act(self, index: int, lost: bool) -> None:
        client = self.clients[index % len(self.clients)]
        if client.kind == "new":
            self.beat(client, lost)
        else:
            self.speak(client, lost)
        if not self.is_dying:
            self.notebook.write(self.group)

    @rule(last=st.none() | indexes)
    def start_anew(self, last: int | None) -> None:
        """The coordinator, perhaps while somebody speaks to it."""
        if last is not None and self.clients:
            self.is_dying = True
            self.act(last, lost=True)
            self.is_dying = False
        self.group = new_group()
        records = self.notebook.read(ConsumerRecord)
        if records:
            self.group.restore(records, dict(self.topics), self.now_ms)

    @precondition(lambda self: self.clients)
    @rule(times=st.integers(1, 4))
    def act_all(self, times: int) -> None:
        for _ in range(times):
            for index in range(len(self.clients)):
                self.act(index, lost=False)
                self.one_owner()

    @precondition(lambda self: self.clients)
    @rule(index=indexes, says_so=st.booleans())
    def leave(self, index: int, says_so: bool) -> None:
        client = self.clients.pop(index % len(self.clients))
        if says_so:
            request = HeartbeatRequest(client.member_id, -1)
            self.group.on_heartbeat(request, dict(self.topics), self.now_ms)
            self.notebook.write(self.group)

    @rule(more=st.integers(1, 2))
    def grow(self, more: int) -> None:
        self.topics = {"t": (TOPIC_ID, min(self.topics["t"][1] + more, 8))}

    @rule(milliseconds=st.sampled_from([1, 500, 3_000]))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.group.tick(self.now_ms, dict(self.topics))
        self.notebook.write(self.group)

    def beat(self, client: Client, lost: bool = False) -> None:
        client.reads &= client.told
        request = HeartbeatRequest(
            client.member_id, client.epoch, None, None, 60_000, ("t",),
            owned=by_topic((TOPIC_ID, each) for each in client.reads),
        )  # fmt: skip
        answer = self.group.on_heartbeat(request, dict(self.topics), self.now_ms)
        if lost:
            return
        if answer.error in (GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_MEMBER_EPOCH):
            client.start_over()
            return
        assert answer.error is GroupError.NONE
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.told = frozenset(each for _, each in one_by_one(answer.assignment))
            client.reads |= client.told

    def speak(self, client: Client, lost: bool = False) -> None:
        if client.next == "join":
            self.join(client, lost)
        elif client.next == "sync":
            self.sync(client, lost)
        else:
            error = self.group.on_classic_heartbeat(
                client.member_id, None, client.epoch, self.now_ms
            )
            if not lost:
                self.obey(client, error)

    def join(self, client: Client, lost: bool) -> None:
        if client.kind == "eager":
            client.reads = frozenset()
        owned = (TopicPartition("t", tuple(sorted(client.reads))),) if client.reads else ()
        said = ConsumerProtocolSubscription(("t",), None, owned)
        request = join_request(
            client.member_id,
            protocols=(("both", encode_subscription(1, said)),),
            session_timeout_ms=SESSION_MS,
        )
        answer = self.group.on_join(request, dict(self.topics), self.now_ms)
        if lost:
            return
        self.obey(client, answer.error)
        if answer.error is GroupError.NONE:
            client.epoch, client.next = answer.generation, "sync"

    def sync(self, client: Client, lost: bool) -> None:
        request = SyncRequest(client.member_id, None, client.epoch, None, None, {})
        answer = self.group.on_sync(request, dict(self.topics), self.now_ms)
        if lost:
            return
        self.obey(client, answer.error)
        if answer.error is GroupError.NONE:
            client.told = frozenset(each for _, each in assigned_partitions(answer.assignment))
            gave_up = client.reads - client.told
            client.reads = client.told
            client.next = "join" if gave_up else "beat"

    def obey(self, client: Client, error: GroupError) -> None:
        if error is GroupError.REBALANCE_IN_PROGRESS:
            client.next = "join"
        elif error is not GroupError.NONE:
            assert error in (GroupError.UNKNOWN_MEMBER_ID, GroupError.ILLEGAL_GENERATION)
            client.start_over()

    @invariant()
    def one_owner(self) -> None:
        members = {member.member_id for member in self.group.describe().members}
        read = [
            partition
            for client in self.clients
            if client.member_id in members
            for partition in client.reads
        ]
        assert len(read) == len(set(read))

    def teardown(self) -> None:
        for _ in range(60):
            if self.clients:
                self.act_all(1)
            self.wait(500)
        read = sorted(partition for client in self.clients for partition in client.reads)
        assert read == (list(range(self.topics["t"][1])) if self.clients else [])


TestMixedGroup = MixedMachine.TestCase
TestMixedGroup.settings = settings(stateful_step_count=40)
