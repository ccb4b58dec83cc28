"""Histories of transactions at the door, against a naive twin.

Two transactional ids write to the same partitions. Producers come and take an id over
from the one before, who goes on as a zombie, and ask twice where it left a transaction open;
requests arrive late, or once more at any later time; the node is killed between any two
requests. The twin knows only what was answered: who may write, what is open, what was
committed.

    log        every write that was taken, in order, with its transaction
    seen       those of committed transactions, up to the first that is undecided

What a reader of committed records sees is that, after every step.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.conftest import copy_of
from tests.unit.server.asking import Asking, run
from tests.unit.server.transaction_door import (
    END,
    NEW,
    PRODUCE,
    TOPIC,
    TXN_COMMIT,
    Transactor,
    committed,
    committed_offset,
    make_topic,
)

from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error

NAMES = ("left", "right")
PARTITIONS = 2
OPEN, COMMITTED, ABORTED = range(3)

which = st.integers(0, 20)
# From this number on, the node is killed between the two times that a producer has to ask.
KILLED_BETWEEN_FROM = 14
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take_over"), which),
        st.tuples(st.just("go_on"), which),
        st.tuples(st.just("write"), which),
        st.tuples(st.just("write"), which),
        st.tuples(st.just("offset"), which),
        st.tuples(st.just("commit"), which),
        st.tuples(st.just("abort"), which),
        st.tuples(st.just("lose"), which),
        st.tuples(st.just("late"), which),
        st.tuples(st.just("late"), which),
        st.tuples(st.just("kill"), which),
    ),
    min_size=5,
    max_size=40,
)


class Attempt:
    """One transaction, as its producer knows it."""

    def __init__(self) -> None:
        self.state = OPEN
        self.offset: int | None = None


class Twin:
    def __init__(self) -> None:
        self.log: list[list[tuple[bytes, Attempt]]] = [[] for _ in range(PARTITIONS)]
        self.offset: int | None = None
        # What is open, by transactional id, and who may write.
        self.open: dict[str, Attempt] = {}
        self.owners: dict[str, Transactor] = {}

    def attempt(self, name: str) -> Attempt:
        return self.open.setdefault(name, Attempt())

    def end(self, name: str, state: int) -> None:
        attempt = self.open.pop(name, None)
        if attempt is not None:
            attempt.state = state
            if state == COMMITTED and attempt.offset is not None:
                self.offset = attempt.offset

    def is_unstable(self) -> bool:
        return any(each.offset is not None for each in self.open.values())

    def seen(self, index: int) -> list[bytes]:
        values = []
        for value, attempt in self.log[index]:
            if attempt.state == OPEN:
                break
            if attempt.state == COMMITTED:
                values.append(value)
        return values


class History:
    def __init__(self) -> None:
        self.twin = Twin()
        self.disk = MemoryDisk()
        self.asking = Asking(self.disk)
        make_topic(self.asking, PARTITIONS)
        self.producers: list[Transactor] = []
        # Requests that were answered, and who sent them in which epoch.
        self.sent: list[tuple[int, Any, Transactor, int]] = []
        self.number = 0

    def pick(self, number: int) -> Transactor | None:
        return self.producers[number % len(self.producers)] if self.producers else None

    def is_owner(self, producer: Transactor) -> bool:
        return self.twin.owners.get(producer.name) is producer

    async def play(self, step: str, number: int) -> None:
        await getattr(self, step)(number)

    async def take_over(self, number: int) -> None:
        producer = Transactor(self.asking, NEW, NAMES[number % len(NAMES)])
        self.producers.append(producer)
        await self._begin(producer, number, claim=False)
        self.twin.owners[producer.name] = producer

    async def go_on(self, number: int) -> None:
        """A producer asks for its next epoch, as after an error."""
        producer = self.pick(number)
        if producer is None:
            return
        if self.is_owner(producer):
            await self._begin(producer, number, claim=True)
        else:
            assert await producer.init(claim=True) == Error.PRODUCER_FENCED

    async def _begin(self, producer: Transactor, number: int, *, claim: bool) -> None:
        """Whoever finds a transaction open is told to ask again, once: its abort is
        decided then, also when the node is killed before it is asked again."""
        if producer.name in self.twin.open:
            assert await producer.init(claim=claim) == Error.CONCURRENT_TRANSACTIONS
            self.twin.end(producer.name, ABORTED)
            if number >= KILLED_BETWEEN_FROM:
                await self.kill(number)
        assert await producer.init(claim=claim) == Error.NONE

    async def write(self, number: int) -> None:
        producer = self.pick(number)
        if producer is None:
            return
        index = number % PARTITIONS
        self.number += 1
        value = b"%d" % self.number
        batch = producer.batch(index, value)
        self.sent.append((PRODUCE, (index, batch), producer, producer.epoch))
        code = await producer.send(index, batch)
        if self.is_owner(producer):
            assert code == Error.NONE
            self.twin.log[index].append((value, self.twin.attempt(producer.name)))
        else:
            assert code == Error.INVALID_PRODUCER_EPOCH

    async def offset(self, number: int) -> None:
        producer = self.pick(number)
        # Two transactions over one position are decided by the log's order; the twin
        # does not go that far.
        if producer is None or producer.name != NAMES[0]:
            return
        self.number += 1
        request = producer.offsets(self.number)
        self.sent.append((TXN_COMMIT, request, producer, producer.epoch))
        code = await producer.send_offsets(request)
        if self.is_owner(producer):
            assert code == Error.NONE
            self.twin.attempt(producer.name).offset = self.number
        else:
            assert code == Error.INVALID_PRODUCER_EPOCH

    async def commit(self, number: int) -> None:
        await self._end(number, commit=True)

    async def abort(self, number: int) -> None:
        await self._end(number, commit=False)

    async def _end(self, number: int, *, commit: bool) -> None:
        producer = self.pick(number)
        if producer is None:
            return
        request = producer.ending(commit=commit)
        if not commit or producer.name in self.twin.open:
            # No client commits nothing; if one did, and it came late, it would count.
            self.sent.append((END, request, producer, producer.epoch))
        code = await producer.send_end(request)
        if not self.is_owner(producer):
            assert code == Error.PRODUCER_FENCED
        elif commit and producer.name not in self.twin.open:
            assert code == Error.INVALID_TXN_STATE
        else:
            assert code == Error.NONE
            self.twin.end(producer.name, COMMITTED if commit else ABORTED)

    async def lose(self, number: int) -> None:
        """A write does not arrive for now, and its producer gives up on the whole."""
        producer = self.pick(number)
        if producer is not None and self.is_owner(producer):
            index = number % PARTITIONS
            batch = producer.batch(index, b"lost")
            self.sent.append((PRODUCE, (index, batch), producer, producer.epoch))
            await self._end(number, commit=False)

    async def late(self, number: int) -> None:
        """The network delivers something, for the first time or once more."""
        if not self.sent:
            return
        key, request, producer, epoch = self.sent[-1 - number % len(self.sent)]
        if key == PRODUCE:
            index, batch = request
            await producer.send(index, batch)
        elif key == END:
            await self.asking.ask(END, NEW[END], request)
        elif await producer.send_offsets(request) == Error.NONE:
            # Within its own transaction nobody can tell, and the last one counts.
            assert self.is_owner(producer) and epoch == producer.epoch
            offset = request.topics[0].partitions[0].committed_offset
            self.twin.attempt(producer.name).offset = offset

    async def kill(self, number: int) -> None:
        self.disk = copy_of(self.disk)
        await self.asking.close()
        self.asking = Asking(self.disk)
        for producer in self.producers:
            producer.asking = self.asking
        if self.twin.offset is not None and not self.twin.is_unstable():
            # A position beyond the log's end goes back to that end when a node starts,
            # unless a transaction is about to move it.
            topics = self.asking.broker.topics
            end = topics.partitions(topics.named(TOPIC))[0].log.end_offset
            self.twin.offset = min(self.twin.offset, end)

    async def check(self) -> None:
        for index in range(PARTITIONS):
            assert await committed(self.asking, index) == self.twin.seen(index)
        offset, _ = await committed_offset(self.asking)
        assert offset == (-1 if self.twin.offset is None else self.twin.offset)
        _, code = await committed_offset(self.asking, stable=True)
        assert code == (Error.UNSTABLE_OFFSET_COMMIT if self.twin.is_unstable() else Error.NONE)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_a_reader_sees_what_was_committed_and_nothing_else(history: list[tuple[str, int]]) -> None:
    async def scenario() -> None:
        played = History()
        for number in range(len(NAMES)):
            await played.take_over(number)
        for step, number in history:
            await played.play(step, number)
            await played.check()
        for number in range(len(NAMES)):
            await played.take_over(number)
        await played.check()
        for topic in played.asking.broker.topics:
            assert not topic.open_transactions()

    run(scenario)
