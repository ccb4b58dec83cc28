"""Transactions that live: the coordinator's table, driven by requests and by time.

    request ──> the table changes ──> its sync, and that of the markers ──> answer

What is open for too long is aborted by `server.duties`, whichever doors there are.

Where Kafka says "not now" while an end is being written and has the client ask again
after a pause, this node waits for the end itself and looks again; it says so only
when the disk keeps it from ending, and, as Kafka always does, to the InitProducerId that
finds a transaction open and has it aborted: its client asks again.

A producer may send several batches without waiting for answers, and the first one of
a partition has to wait until the coordinator's note of that partition is on disk. So
what follows it waits in a queue, or it would come out of order.

A client of the older protocol that does not know PRODUCER_FENCED is told
INVALID_PRODUCER_EPOCH instead, as Kafka does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Set
from typing import Any

from headrace.core.errors import FencedLeader, HeadraceError
from headrace.core.node_settings import NodeSettings
from headrace.engine.coordinator.transaction import (
    Claim,
    Place,
    State,
    Transaction,
    TransactionError,
)
from headrace.engine.ending import Ending
from headrace.server.kafka.errors import Error
from headrace.server.service import Service

# How often a request looks again behind an end before it says "not now".
LOOKS_MAX = 3

Outcome = Transaction | TransactionError


class LiveTransactions:
    def __init__(self, service: Service, settings: NodeSettings) -> None:
        self.table = service.broker.transactions
        self.timeout_ms_max = settings.transaction_timeout_max_ms
        # Whether writes are checked with the coordinator, and ends bring new epochs.
        self.is_guarded = settings.transaction_version >= 2
        self._service = service
        # By transactional id: batches that wait, in the order in which they came.
        self._held: dict[str, deque[tuple[asyncio.Future[None], Callable[[], None]]]] = {}

    def now_ms(self) -> int:
        return self._service.clock.now_ms()

    # Requests.

    async def init(self, name: str, timeout_ms: int, claim: Claim | None) -> Outcome:
        return await self._hear(self._init(name, timeout_ms, claim))

    async def add(
        self, name: str, producer_id: int, epoch: int, places: Set[Place]
    ) -> TransactionError:
        outcome = await self._hear(self._add(name, producer_id, epoch, places))
        return outcome if isinstance(outcome, TransactionError) else TransactionError.NONE

    async def end(
        self, name: str, producer_id: int, epoch: int, *, commit: bool, bumps: bool
    ) -> Outcome:
        """What the transaction is once its markers are written."""
        return await self._hear(self._end(name, producer_id, epoch, commit, bumps))

    async def abort(self, name: str) -> Outcome:
        """An operator ends what is open."""
        return await self._hear(self._abort(name))

    async def _hear(self, answer: Coroutine[Any, Any, Outcome]) -> Outcome:
        try:
            return await answer
        except FencedLeader:
            return TransactionError.NOT_COORDINATOR
        except (HeadraceError, OSError):
            self._service.logger.exception("a transaction was not written down")
            return TransactionError.COORDINATOR_NOT_AVAILABLE

    async def _init(self, name: str, timeout_ms: int, claim: Claim | None) -> Outcome:
        for _ in range(LOOKS_MAX):
            outcome = self.table.init(name, timeout_ms, claim, self.now_ms())
            if _is_final(outcome):
                return outcome
            if isinstance(outcome, Transaction) and outcome.state is State.PREPARE_ABORT:
                await self._abort_behind(name)
                return TransactionError.CONCURRENT_TRANSACTIONS
            await self._settle(name)
            if isinstance(outcome, Transaction):
                return outcome
        return TransactionError.CONCURRENT_TRANSACTIONS

    async def _add(self, name: str, producer_id: int, epoch: int, places: Set[Place]) -> Outcome:
        for _ in range(LOOKS_MAX):
            outcome = self.table.add(name, producer_id, epoch, places, self.now_ms())
            if not isinstance(outcome, Transaction) and _is_final(outcome):
                return outcome
            await self._settle(name)
            if isinstance(outcome, Transaction):
                return outcome
        return TransactionError.CONCURRENT_TRANSACTIONS

    async def _end(
        self, name: str, producer_id: int, epoch: int, commit: bool, bumps: bool
    ) -> Outcome:
        for _ in range(LOOKS_MAX):
            outcome = self.table.end(
                name, producer_id, epoch, commit=commit, bumps=bumps, now_ms=self.now_ms()
            )
            if _is_final(outcome):
                return outcome
            ending = await self._settle(name)
            if isinstance(outcome, Transaction):
                if ending is None:
                    return outcome
                if ending.is_done:
                    return ending.transaction
        return TransactionError.CONCURRENT_TRANSACTIONS

    async def _abort(self, name: str) -> Outcome:
        outcome = self.table.abort(name, self.now_ms())
        if isinstance(outcome, TransactionError):
            return outcome
        ending = await self._settle(name)
        if ending is None or ending.is_done:
            return outcome
        return TransactionError.CONCURRENT_TRANSACTIONS

    async def _abort_behind(self, name: str) -> None:
        """Until the decision is on disk. Its markers are written meanwhile."""
        commit = self._service.commit()
        commit.data += self.table.depends(name)
        ending = self.table.ending_of(name)
        if ending is not None:
            commit.endings.append(ending)
        self._service.finish_later(commit)
        noted = self.wait_for_note(name)
        if noted is not None:
            await noted

    async def _settle(self, name: str) -> Ending | None:
        """Until what this id is now is safe, and its end, if it has one, written."""
        commit = self._service.commit()
        commit.data += self.table.depends(name)
        ending = self.table.ending_of(name)
        if ending is not None:
            if ending.is_blocked:
                dirty = self.table.advance(self.now_ms())
                commit.data += [(each, each.log.end_offset) for each in dirty]
            commit.endings.append(ending)
        await self._service.commits.wait(commit)
        if ending is not None and ending.is_blocked:
            self._service.duties.retry_soon()
        return ending

    # Batches.

    def wait_for_note(self, name: str) -> asyncio.Future[None] | None:
        """Until what is known of this id is on disk; None if that is so."""
        noted = self.table.depends(name)
        if not noted:
            return None
        commit = self._service.commit()
        commit.data += noted
        return self._service.submit(commit)

    def is_waiting(self, name: str) -> bool:
        """Whether batches of this id wait, so that the next one has to, too."""
        return name in self._held

    def in_turn(
        self, name: str, waiting: asyncio.Future[None] | None, work: Callable[[], Any]
    ) -> asyncio.Future[Any]:
        """Have the work done behind what this id waits for, and behind whatever
        of it waits already."""
        loop = self._service.loop
        if waiting is None:
            waiting = loop.create_future()
            waiting.set_result(None)
        answer: asyncio.Future[Any] = loop.create_future()

        def go_on() -> None:
            try:
                result = work()
            except Exception as error:
                _fail(answer, error)
                return
            if isinstance(result, asyncio.Future):
                result.add_done_callback(lambda done: _pass_on(done, answer))
            elif not answer.done():
                answer.set_result(result)

        self._held.setdefault(name, deque()).append((waiting, go_on))
        waiting.add_done_callback(lambda _: self._release(name))
        return answer

    def _release(self, name: str) -> None:
        held = self._held.get(name)
        while held and held[0][0].done():
            waited, go_on = held.popleft()
            if not waited.cancelled():
                # A failed sync ends the node, and the work will hear of it itself.
                waited.exception()
            go_on()
        if held is not None and not held:
            self._held.pop(name, None)


def _is_final(outcome: Outcome) -> bool:
    return (
        isinstance(outcome, TransactionError)
        and outcome is not TransactionError.CONCURRENT_TRANSACTIONS
    )


def code_for(error: TransactionError, version: int, fenced_first: int) -> int:
    """`fenced_first` is the API's first version that knows PRODUCER_FENCED."""
    if error is TransactionError.PRODUCER_FENCED and version < fenced_first:
        return Error.INVALID_PRODUCER_EPOCH
    return error


def _pass_on(done: asyncio.Future[Any], answer: asyncio.Future[Any]) -> None:
    if answer.done():
        return
    if done.cancelled():
        answer.cancel()
        return
    error = done.exception()
    if error is not None:
        _fail(answer, error)
    else:
        answer.set_result(done.result())


def _fail(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
