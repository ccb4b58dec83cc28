"""Classic groups under any interleaving of what members, and time, can do.

The clients are well-behaved but unlucky: they lose answers, stall, crash and come
back, and so does the coordinator. Names of the invariants:

    OneOwner             no two that may commit hold the same partition
    OneAnswer            every request is answered once, even when nobody listens
    GenerationsRise      what was agreed is never agreed again
    AgreementsLast       a coordinator that starts anew takes everyone for a member who was
    AlwaysStableAgain    left alone, the group settles with everything assigned,
                         and then stays as it is
"""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.notebook import Notebook

from headrace.engine.coordinator.classic import COMPLETING, EMPTY, STABLE, ClassicGroup
from headrace.engine.coordinator.stored import ClassicRecord
from headrace.engine.coordinator.values import (
    Answer,
    GroupError,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)

PARTITIONS = 7
SESSION_MS = 6_000
PROTOCOLS = [
    (("range", b"r"),),
    (("sticky", b"s"), ("range", b"r")),
    (("range", b"r"), ("sticky", b"s")),
]
REJOIN = {GroupError.REBALANCE_IN_PROGRESS, GroupError.ILLEGAL_GENERATION}


class Client:
    """One process. `waiting` is the reply that it waits for, if any."""

    def __init__(self, number: int, instance_id: str | None, protocols: int) -> None:
        self.number = number
        self.instance_id = instance_id
        self.protocols = PROTOCOLS[protocols]
        self.rebalance_timeout_ms = 8_000 + 4_000 * protocols
        self.needs_id = number % 2 == 0
        self.member_id = ""
        self.generation = -1
        self.joined: JoinAnswer | None = None
        self.waiting: int | None = None
        self.held: frozenset[int] = frozenset()
        self.working = False
        self.fenced = False

    def rejoin(self, error: GroupError) -> None:
        self.joined = None
        self.working = False
        if error is GroupError.FENCED_INSTANCE_ID:
            self.fenced = True
        elif error not in REJOIN:
            assert error is GroupError.UNKNOWN_MEMBER_ID
            self.member_id, self.generation, self.held = "", -1, frozenset()


class ClassicMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = ClassicGroup("g", rebalance_delay_ms=0)
        self.notebook = Notebook()
        # About to end: what happens now is neither written nor answered.
        self.is_dying = False
        self.now_ms = 1_000
        self.clients: list[Client] = []
        # Processes that were stopped or fenced, and do not know it.
        self.zombies: list[Client] = []
        self.replies = count(1)
        self.numbers = count(1)
        self.asked: set[int] = set()
        self.generation_seen = 0

    # What can happen.

    @initialize(protocols=st.lists(st.integers(0, 2), min_size=1, max_size=4))
    def begin(self, protocols: list[int]) -> None:
        for choice in protocols:
            self.start(None, choice)
            self.step_all(3)

    @precondition(lambda self: len(self.clients) < 5)
    @rule(instance=st.sampled_from([None, None, "x", "y"]), protocols=st.integers(0, 2))
    def start(self, instance: str | None, protocols: int) -> None:
        for client in list(self.clients):
            if instance is not None and client.instance_id == instance:
                self.clients.remove(client)
                self.zombies.append(client)
        self.clients.append(Client(next(self.numbers), instance, protocols))

    @precondition(lambda self: self.clients)
    @rule(index=st.integers(0, 10), steps=st.integers(1, 4))
    def step(self, index: int, steps: int) -> None:
        for _ in range(steps):
            self.advance(self.clients[index % len(self.clients)])

    @precondition(lambda self: self.clients)
    @rule(rounds=st.integers(1, 5))
    def step_all(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in list(self.clients):
                self.advance(client)

    @precondition(lambda self: self.clients)
    @rule(index=st.integers(0, 10))
    def lose_the_answer(self, index: int) -> None:
        """The connection breaks; the client asks again on another."""
        client = self.clients[index % len(self.clients)]
        client.waiting = None
        self.advance(client)

    @precondition(lambda self: self.clients)
    @rule(index=st.integers(0, 10), crashes=st.booleans())
    def stop(self, index: int, crashes: bool) -> None:
        client = self.clients.pop(index % len(self.clients))
        if crashes:
            self.zombies.append(client)
            return
        outcome = self.group.on_leave([(client.member_id, client.instance_id)], self.now_ms)
        self.deliver(outcome.answers)

    @rule(last=st.none() | st.integers(0, 10))
    def start_anew(self, last: int | None) -> None:
        """The coordinator, perhaps while somebody speaks to it."""
        was_stable = self.group.state == STABLE
        before = self.group.describe().members
        if last is not None and self.clients:
            self.is_dying = True
            self.advance(self.clients[last % len(self.clients)])
            self.is_dying = False
        self.group = ClassicGroup("g", rebalance_delay_ms=0)
        records = self.notebook.read(ClassicRecord)
        if records:
            self.group.restore(records, self.now_ms)
        if was_stable:
            assert self.group.describe().members == before
        # Of a generation that was not agreed upon nobody has anything.
        self.generation_seen = 0
        for client in self.clients + self.zombies:
            client.waiting = None
        self.asked.clear()

    @rule(milliseconds=st.sampled_from([1, 500, 3_000, 6_000, 20_000]))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.deliver(self.group.tick(self.now_ms))
        deadline_ms = self.group.next_deadline_ms()
        assert deadline_ms is None or deadline_ms > self.now_ms

    # What holds.

    @invariant()
    def one_owner(self) -> None:
        owned = [
            partition
            for client in self.clients + self.zombies
            if client.member_id
            and self.group.check_commit(client.member_id, client.instance_id, client.generation)
            is GroupError.NONE
            for partition in client.held
        ]
        assert len(owned) == len(set(owned))

    @invariant()
    def generations_rise(self) -> None:
        assert self.group.generation >= self.generation_seen
        self.generation_seen = self.group.generation

    def teardown(self) -> None:
        """Nothing goes wrong any more: the group has to settle, and to stay so."""
        for _ in range(80):
            self.settle_for_a_second()
        self.clients = [client for client in self.clients if not client.fenced]
        generation = self.group.generation
        for _ in range(20):
            self.settle_for_a_second()
        assert self.group.generation == generation
        assert not self.asked, "a request that was never answered"
        if not self.clients:
            assert self.group.state == EMPTY and self.group.next_deadline_ms() is None
            return
        assert self.group.state == STABLE
        assert {client.generation for client in self.clients} == {generation}
        held = sorted(partition for client in self.clients for partition in client.held)
        assert held == list(range(PARTITIONS))
        assert len(self.group.describe().members) == len(self.clients)

    def settle_for_a_second(self) -> None:
        for client in list(self.clients):
            self.advance(client)
        self.wait(1_000)

    # A client's next step.

    def advance(self, client: Client) -> None:
        if client.waiting is not None or client.fenced:
            return
        if client.working:
            error = self.group.on_heartbeat(
                client.member_id, client.instance_id, client.generation, self.now_ms
            )
            if error is not GroupError.NONE:
                client.rejoin(error)
        elif client.joined is not None:
            self.sync(client, client.joined)
        else:
            self.join(client)
        self.one_owner()

    def join(self, client: Client) -> None:
        client.waiting = self.ask()
        request = JoinRequest(
            client.member_id,
            client.instance_id,
            "client",
            "/host",
            "consumer",
            client.protocols,
            SESSION_MS,
            client.rebalance_timeout_ms,
            client.needs_id,
            f"m{next(self.numbers)}",
            can_skip_assignment=client.number % 3 == 0,
        )
        self.deliver(self.group.on_join(client.waiting, request, self.now_ms))

    def sync(self, client: Client, joined: JoinAnswer) -> None:
        client.waiting = self.ask()
        shares: dict[str, bytes] = {}
        if joined.leader == client.member_id and not joined.skip_assignment:
            ids = [member.member_id for member in joined.members]
            for partition in range(PARTITIONS):
                taker = ids[(partition + joined.generation) % len(ids)]
                shares[taker] = shares.get(taker, b"") + bytes([partition])
        request = SyncRequest(
            client.member_id,
            client.instance_id,
            joined.generation,
            joined.protocol_type,
            joined.protocol_name,
            shares,
        )
        self.deliver(self.group.on_sync(client.waiting, request, self.now_ms))

    def ask(self) -> int:
        reply = next(self.replies)
        self.asked.add(reply)
        return reply

    def deliver(self, answers: list[Answer]) -> None:
        if self.is_dying:
            return
        self.notebook.write(self.group)
        for reply, message in answers:
            assert reply in self.asked, "an answer too many"
            self.asked.remove(reply)
            for client in self.clients:
                if client.waiting == reply:
                    client.waiting = None
                    if isinstance(message, JoinAnswer):
                        self.on_joined(client, message)
                    else:
                        self.on_synced(client, message)

    def on_joined(self, client: Client, answer: JoinAnswer) -> None:
        if answer.error is GroupError.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error is not GroupError.NONE:
            client.rejoin(answer.error)
        else:
            assert answer.generation == self.group.generation
            assert self.group.state in (COMPLETING, STABLE)
            client.member_id = answer.member_id
            client.joined = answer

    def on_synced(self, client: Client, answer: SyncAnswer) -> None:
        if answer.error is not GroupError.NONE:
            client.rejoin(answer.error)
        else:
            assert client.joined is not None
            client.generation = client.joined.generation
            client.held = frozenset(answer.assignment)
            client.working = True


TestClassicGroup = ClassicMachine.TestCase
TestClassicGroup.settings = settings(stateful_step_count=30)
