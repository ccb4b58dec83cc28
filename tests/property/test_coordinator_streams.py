"""Streams groups under any interleaving of what members, time and topics can do.

The clients are well-behaved but unlucky and slow, as in test_coordinator_consumer.py: they
lose answers, take their time to let go, stall, crash and come back, and so does the
coordinator; processes have one or two threads. Names of the invariants:

    OneOwner             no task is active at two members
    OnceInAProcess       no process has a task twice, in whatever role
    NobodyIsFenced       a member that does as it is told is never fenced, only dropped for
                         its silence or its slowness
    EpochsRise           the group's, the target's and each member's
    AlwaysStableAgain    left alone, the group settles with everything assigned, level to
                         within one, and then stays as it is
"""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.notebook import Notebook

from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.stored import TOPOLOGY_KEY, StreamsRecord, TopologyRecord
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.coordinator.streams.values import (
    NOTHING,
    Held,
    InternalTopic,
    StreamsAnswer,
    StreamsRequest,
    Subtopology,
    Task,
    Topology,
)
from headrace.engine.coordinator.values import GroupError

SESSION_MS = 6_000
TOPOLOGY = Topology(
    0,
    (
        Subtopology("0", ("in",), ("between",)),
        Subtopology("1", ("table",), (), (InternalTopic("between"),), (InternalTopic("state"),)),
    ),
)
indexes = st.integers(0, 10)


class Client:
    """One thread: the epoch it knows, what it was told, what it has."""

    def __init__(self, member_id: str, process_id: str) -> None:
        self.member_id = member_id
        self.process_id = process_id
        self.epoch = 0
        self.told = self.has = NOTHING
        # After anything odd a client says what it has.
        self.says_all = True

    def let_go(self) -> None:
        self.has = Held(self.has.active & self.told.active, self.has.standby & self.told.standby)

    def give_everything_up(self) -> None:
        self.epoch = 0
        self.told = self.has = NOTHING
        self.says_all = True


class StreamsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rules_now = GroupRules(
            streams_session_timeout_ms=SESSION_MS,
            streams_rebalance_delay_ms=1_000,
            streams_assignment_interval_ms=500,
        )
        self.group = StreamsGroup("g", rules=self.rules_now)
        self.notebook = Notebook()
        # About to end: what happens now is neither written nor answered.
        self.is_dying = False
        self.topics = {"in": (b"i1", 4), "table": (b"t1", 2)}
        self.now_ms = 1_000
        self.clients: list[Client] = []
        # Processes that have stalled: they go on and do not say anything.
        self.zombies: list[Client] = []
        self.numbers = count(1)
        self.epochs_seen = (0, 0)

    # What can happen.

    @initialize(threads=st.integers(1, 4))
    def begin(self, threads: int) -> None:
        for _ in range(threads):
            self.start("p")
            self.beat_all(True)

    @precondition(lambda self: len(self.clients) < 5)
    @rule(process=st.sampled_from("pqr"))
    def start(self, process: str) -> None:
        self.clients.append(Client(f"m{next(self.numbers)}", process))

    @precondition(lambda self: self.clients)
    @rule(index=indexes, lets_go=st.booleans(), lost=st.booleans(), silent=st.booleans())
    def beat(self, index: int, lets_go: bool, lost: bool, silent: bool) -> None:
        client = self.clients[index % len(self.clients)]
        if lets_go:
            client.let_go()
        self.heartbeat(client, lost=lost, says_owned=not silent)

    @precondition(lambda self: self.clients)
    @rule(lets_go=st.booleans())
    def beat_all(self, lets_go: bool) -> None:
        for client in list(self.clients):
            if lets_go:
                client.let_go()
            self.heartbeat(client)
            self.one_owner()

    @precondition(lambda self: self.clients)
    @rule(index=indexes)
    def stall(self, index: int) -> None:
        self.zombies.append(self.clients.pop(index % len(self.clients)))

    @precondition(lambda self: self.zombies)
    @rule(index=indexes)
    def wake_up(self, index: int) -> None:
        self.clients.append(self.zombies.pop(index % len(self.zombies)))

    @precondition(lambda self: self.clients)
    @rule(index=indexes)
    def leave(self, index: int) -> None:
        client = self.clients.pop(index % len(self.clients))
        self.group.on_heartbeat(StreamsRequest(client.member_id, -1), self.topics, self.now_ms)
        self.notebook.write(self.group)

    @rule(last=st.none() | indexes)
    def start_anew(self, last: int | None) -> None:
        """The coordinator, perhaps while a member speaks to it."""
        if last is not None and self.clients:
            self.is_dying = True
            self.heartbeat(self.clients[last % len(self.clients)], lost=True)
            self.is_dying = False
        self.group = StreamsGroup("g", rules=self.rules_now)
        found = self.notebook.read(StreamsRecord | TopologyRecord)
        common = found.pop(TOPOLOGY_KEY, None)
        members = {key: each for key, each in found.items() if isinstance(each, StreamsRecord)}
        # There is a topology while there are members, and then only.
        assert isinstance(common, TopologyRecord) is bool(members)
        if isinstance(common, TopologyRecord):
            self.group.restore(common, members, dict(self.topics), self.now_ms)
        # Nobody knows of an epoch that no member has.
        self.epochs_seen = (0, 0)

    @rule(more=st.integers(1, 2))
    def grow(self, more: int) -> None:
        """The internal topics no longer fit, and the tasks are gone, until they do."""
        if "in" in self.topics:
            topic_id, size = self.topics["in"]
            self.topics["in"] = (topic_id, min(size + more, 8))

    @rule(name=st.sampled_from(["in", "table", "between", "state"]))
    def delete_or_make(self, name: str) -> None:
        if self.topics.pop(name, None) is None and name in ("in", "table"):
            self.topics[name] = (f"{name}{next(self.numbers)}".encode(), 3)

    @rule(replicas=st.integers(0, 2))
    def ask_for_standby_tasks(self, replicas: int) -> None:
        self.rules_now = self.rules_now._replace(streams_standby_replicas=replicas)
        self.group.obey(self.rules_now)

    @rule(milliseconds=st.sampled_from([1, 500, 3_000, 6_000]))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.group.tick(self.now_ms)
        self.notebook.write(self.group)
        deadline_ms = self.group.next_deadline_ms()
        assert deadline_ms is None or deadline_ms > self.now_ms

    # What holds.

    @invariant()
    def one_owner(self) -> None:
        members = {member.member_id for member in self.group.describe().members}
        live = [each for each in self.clients + self.zombies if each.member_id in members]
        active = [task for client in live for task in client.has.active]
        assert len(active) == len(set(active))
        for process in "pqr":
            present: list[Task] = []
            for client in live:
                if client.process_id == process:
                    present += (*client.has.active, *client.has.standby)
            assert len(present) == len(set(present))

    @invariant()
    def epochs_rise(self) -> None:
        epochs = (self.group.group_epoch, self.group.assignment_epoch)
        assert epochs[0] >= self.epochs_seen[0] and epochs[1] >= self.epochs_seen[1]
        assert epochs[1] <= epochs[0]
        self.epochs_seen = epochs

    def teardown(self) -> None:
        """Nothing goes wrong any more: the group has to settle, and to stay so."""
        self.topics = {"in": (b"i", 4), "table": (b"t", 2)}
        for _ in range(30):
            self.beat_all(True)
            self.wait(1_000)
        epoch = self.group.group_epoch
        for _ in range(10):
            self.beat_all(True)
            self.wait(1_000)
        assert self.group.group_epoch == epoch
        assert self.group.state() == ("Stable" if self.clients else "Empty")
        if not self.clients:
            return
        active = sorted(task for client in self.clients for task in client.has.active)
        assert active == [(name, number) for name in "01" for number in range(4)]
        shares = [len(client.has.active) for client in self.clients]
        assert max(shares) - min(shares) <= 1
        processes = {client.process_id for client in self.clients}
        copies = [task for client in self.clients for task in client.has.standby]
        replicas = min(self.rules_now.streams_standby_replicas, len(processes) - 1)
        assert sorted(copies) == sorted([("1", number) for number in range(4)] * replicas)
        assert all(client.epoch == epoch for client in self.clients)

    # A client's heartbeat.

    def heartbeat(self, client: Client, *, lost: bool = False, says_owned: bool = True) -> None:
        request = StreamsRequest(client.member_id, client.epoch)
        if client.epoch == 0:
            request = request._replace(
                rebalance_timeout_ms=8_000,
                topology=TOPOLOGY,
                process_id=client.process_id,
                owned=NOTHING,
            )
        elif client.says_all or says_owned:
            request = request._replace(owned=client.has)
        members = {member.member_id for member in self.group.describe().members}
        answer = self.group.on_heartbeat(request, dict(self.topics), self.now_ms)
        if not self.is_dying:
            self.notebook.write(self.group)
        for topic in answer.missing:
            number = next(self.numbers)
            self.topics[topic.name] = (f"{topic.name}{number}".encode(), topic.partitions)
        if lost:
            client.says_all = True
        else:
            self.on_answer(client, answer, client.member_id in members)

    def on_answer(self, client: Client, answer: StreamsAnswer, was_member: bool) -> None:
        if answer.error is not GroupError.NONE:
            assert not was_member
            assert answer.error is GroupError.UNKNOWN_MEMBER_ID
            client.give_everything_up()
            return
        assert answer.member_epoch >= client.epoch
        client.says_all = False
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.told = answer.assignment
            client.has = Held(
                client.has.active | client.told.active, client.has.standby | client.told.standby
            )


TestStreamsGroup = StreamsMachine.TestCase
TestStreamsGroup.settings = settings(stateful_step_count=40)
