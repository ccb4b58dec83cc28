"""Consumer groups under any interleaving of what members, time and topics can do.

The clients are well-behaved but unlucky and slow: they lose answers, take their time
to let go, stall, crash and come back, and so does the coordinator. They start reading
what they are granted at once, which is the worst case for whoever read it before. Names
of the invariants:

    OneOwner             no two members read the same partition
    NobodyIsFenced       a member that does as it is told is never fenced, only
                         dropped for its silence or its slowness
    EpochsRise           the group's, the target's and each member's
    AlwaysStableAgain    left alone, the group settles with everything assigned,
                         and then stays as it is
"""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.notebook import Notebook

from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.stored import ConsumerRecord
from headrace.engine.coordinator.values import (
    GroupError,
    HeartbeatAnswer,
    HeartbeatRequest,
    TopicPartition,
    by_topic,
    one_by_one,
)

SESSION_MS = 6_000
SUBSCRIPTIONS: list[tuple[str, ...]] = [("t",), ("t", "u"), ("u",), ()]
indexes = st.integers(0, 10)


class Client:
    """One process: the epoch it knows, what it was told, what it reads."""

    def __init__(self, member_id: str, instance_id: str | None, names: tuple[str, ...]) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.names = names
        self.pattern = None if names else "t|u"
        self.epoch = 0
        self.told: frozenset[TopicPartition] = frozenset()
        self.reads: frozenset[TopicPartition] = frozenset()
        # After anything odd a client says everything.
        self.says_all = True

    def give_everything_up(self) -> None:
        self.epoch = 0
        self.told = self.reads = frozenset()
        self.says_all = True


class ConsumerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = ConsumerGroup("g", session_timeout_ms=SESSION_MS)
        self.notebook = Notebook()
        # About to end: what happens now is neither written nor answered.
        self.is_dying = False
        self.topics = {"t": (b"t1", 4), "u": (b"u1", 2)}
        self.now_ms = 1_000
        self.clients: list[Client] = []
        # Processes that have stalled: they read on and do not say anything.
        self.zombies: list[Client] = []
        self.numbers = count(1)
        self.epochs_seen = (0, 0)

    # What can happen.

    @initialize(choices=st.lists(st.sampled_from(SUBSCRIPTIONS), min_size=1, max_size=4))
    def begin(self, choices: list[tuple[str, ...]]) -> None:
        for names in choices:
            self.start(None, names)
            self.beat_all(True)

    @precondition(lambda self: len(self.clients) < 5)
    @rule(
        instance=st.sampled_from([None, None, "x", "y"]),
        names=st.sampled_from(SUBSCRIPTIONS),
    )
    def start(self, instance: str | None, names: tuple[str, ...]) -> None:
        if instance is not None and any(c.instance_id == instance for c in self.clients):
            return
        self.clients.append(Client(f"m{next(self.numbers)}", instance, names))

    @precondition(lambda self: self.clients)
    @rule(index=indexes, lets_go=st.booleans(), lost=st.booleans(), silent=st.booleans())
    def beat(self, index: int, lets_go: bool, lost: bool, silent: bool) -> None:
        client = self.clients[index % len(self.clients)]
        if lets_go:
            client.reads &= client.told
        self.heartbeat(client, lost=lost, says_owned=not silent)

    @precondition(lambda self: self.clients)
    @rule(lets_go=st.booleans())
    def beat_all(self, lets_go: bool) -> None:
        for client in list(self.clients):
            if lets_go:
                client.reads &= client.told
            self.heartbeat(client)
            self.one_owner()

    @precondition(lambda self: self.clients)
    @rule(index=indexes)
    def let_one_go(self, index: int) -> None:
        client = self.clients[index % len(self.clients)]
        client.reads -= frozenset(sorted(client.reads - client.told)[:1])

    @precondition(lambda self: self.clients)
    @rule(index=indexes, names=st.sampled_from(SUBSCRIPTIONS[:3]))
    def subscribe_to_something_else(self, index: int, names: tuple[str, ...]) -> None:
        client = self.clients[index % len(self.clients)]
        client.names = names
        client.says_all = True

    @precondition(lambda self: self.clients)
    @rule(index=indexes)
    def stall(self, index: int) -> None:
        self.zombies.append(self.clients.pop(index % len(self.clients)))

    @precondition(lambda self: self.zombies)
    @rule(index=indexes)
    def wake_up(self, index: int) -> None:
        zombie = self.zombies[index % len(self.zombies)]
        if any(zombie.instance_id and c.instance_id == zombie.instance_id for c in self.clients):
            return
        self.zombies.remove(zombie)
        self.clients.append(zombie)

    @precondition(lambda self: self.clients)
    @rule(index=indexes, restarts=st.booleans())
    def leave(self, index: int, restarts: bool) -> None:
        client = self.clients.pop(index % len(self.clients))
        comes_back = restarts and client.instance_id is not None
        epoch = -2 if comes_back else -1
        client.reads = frozenset()
        request = HeartbeatRequest(client.member_id, epoch, client.instance_id)
        self.group.on_heartbeat(request, dict(self.topics), self.now_ms)
        self.notebook.write(self.group)
        if comes_back:
            number = next(self.numbers)
            self.clients.append(Client(f"m{number}", client.instance_id, client.names))

    @rule(last=st.none() | indexes)
    def start_anew(self, last: int | None) -> None:
        """The coordinator, perhaps while somebody speaks to it."""
        if last is not None and self.clients:
            self.is_dying = True
            self.heartbeat(self.clients[last % len(self.clients)], lost=True)
            self.is_dying = False
        self.group = ConsumerGroup("g", session_timeout_ms=SESSION_MS)
        records = self.notebook.read(ConsumerRecord)
        if records:
            self.group.restore(records, dict(self.topics), self.now_ms)
        # Nobody knows of an epoch that no member has.
        self.epochs_seen = (0, 0)

    @rule(name=st.sampled_from(["t", "u"]), more=st.integers(1, 2))
    def grow(self, name: str, more: int) -> None:
        if name in self.topics:
            topic_id, size = self.topics[name]
            self.topics[name] = (topic_id, min(size + more, 8))

    @rule(name=st.sampled_from(["t", "u"]))
    def delete_or_make(self, name: str) -> None:
        if self.topics.pop(name, None) is None:
            self.topics[name] = (f"{name}{next(self.numbers)}".encode(), 3)

    @rule(milliseconds=st.sampled_from([1, 500, 3_000, 6_000]))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.group.tick(self.now_ms, dict(self.topics))
        self.notebook.write(self.group)
        deadline_ms = self.group.next_deadline_ms()
        assert deadline_ms is None or deadline_ms > self.now_ms

    # What holds.

    @invariant()
    def one_owner(self) -> None:
        members = {member.member_id for member in self.group.describe().members}
        read = [
            partition
            for client in self.clients + self.zombies
            if client.member_id in members
            for partition in client.reads
        ]
        assert len(read) == len(set(read))

    @invariant()
    def epochs_rise(self) -> None:
        epochs = (self.group.group_epoch, self.group.assignment_epoch)
        assert epochs[0] >= self.epochs_seen[0] and epochs[1] >= self.epochs_seen[1]
        assert epochs[1] <= epochs[0]
        self.epochs_seen = epochs

    def teardown(self) -> None:
        """Nothing goes wrong any more: the group has to settle, and to stay so."""
        for _ in range(30):
            self.beat_all(True)
            self.wait(1_000)
        epoch = self.group.group_epoch
        for _ in range(10):
            self.beat_all(True)
            self.wait(1_000)
        assert self.group.group_epoch == epoch
        assert self.group.state() == ("Stable" if self.clients else "Empty")
        wanted = {
            name
            for client in self.clients
            for name in (*client.names, *(("t", "u") if client.pattern else ()))
            if name in self.topics
        }
        read = sorted(partition for client in self.clients for partition in client.reads)
        expected = sorted(
            (self.topics[name][0], number)
            for name in wanted
            for number in range(self.topics[name][1])
        )
        assert read == expected
        assert all(client.epoch == epoch for client in self.clients)

    # A client's heartbeat.

    def heartbeat(self, client: Client, *, lost: bool = False, says_owned: bool = True) -> None:
        request = HeartbeatRequest(client.member_id, client.epoch, client.instance_id)
        if client.says_all or client.epoch == 0:
            request = request._replace(
                rebalance_timeout_ms=8_000,
                subscribed_topic_names=client.names,
                subscribed_topic_regex=client.pattern or "",
                owned=by_topic(client.reads),
            )
        elif says_owned:
            request = request._replace(owned=by_topic(client.reads))
        members = {member.member_id for member in self.group.describe().members}
        answer = self.group.on_heartbeat(request, dict(self.topics), self.now_ms)
        if not self.is_dying:
            self.notebook.write(self.group)
        if lost:
            client.says_all = True
        else:
            self.on_answer(client, answer, client.member_id in members)

    def on_answer(self, client: Client, answer: HeartbeatAnswer, was_member: bool) -> None:
        if answer.error is GroupError.UNRELEASED_INSTANCE_ID:
            assert client.epoch == 0
            return
        if answer.error is not GroupError.NONE:
            assert not was_member
            assert answer.error in (GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_INSTANCE_ID)
            client.give_everything_up()
            return
        assert answer.member_epoch >= client.epoch
        client.says_all = False
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.told = one_by_one(answer.assignment)
            client.reads |= client.told


TestConsumerGroup = ConsumerMachine.TestCase
TestConsumerGroup.settings = settings(stateful_step_count=40)
