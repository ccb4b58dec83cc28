"""A transaction: messages, positions and acks that happen together or not at all.

    with handle.transaction() as tx:
        tx.publish("invoices", invoice, key=order.key)
        tx.ack(message)

Everything is collected until the block ends, and then done as one. An error in the
block, or one that the end finds (a lease that is over, a generation that is not the
group's any more), means that nothing of it has happened.

    places of what was published     tx.published, after the block
    a message that was acked         settled, after the block
    a stream that was committed      goes on behind what it has given
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Unpack

from headrace.client.async_stream import AsyncStream
from headrace.client.async_waiting import Calls
from headrace.client.backend import Backend
from headrace.client.connection import Connection
from headrace.client.message import LeasedView
from headrace.client.outgoing import (
    NewMessage,
    PublishedMessage,
    PublishOptions,
    SharedBatch,
    to_batch,
    to_outgoing,
)
from headrace.client.spans import are_on, publishing
from headrace.client.stream import Stream
from headrace.core.errors import Closed, InvalidArgument, StaleGeneration
from headrace.core.values import Acknowledged, CursorMove, Outgoing, Publication, Receipt


class Collected:
    """What a transaction will do, as far as it is known."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._messages: dict[str, list[Outgoing]] = {}
        # Topic and number among its messages, in the order in which they were given.
        self._order: list[tuple[str, int]] = []
        self._acks: dict[str, list[Receipt]] = {}
        self._acked: list[LeasedView[Any]] = []
        self._streams: list[Stream[Any]] = []
        self._is_over = False
        self.published: list[PublishedMessage] = []

    def publish(self, topic: str, value: Any, **options: Unpack[PublishOptions]) -> None:
        """As `Headrace.publish`; its place is known after the block."""
        self._add(topic, [to_outgoing(NewMessage(value, **options))])

    def publish_many(
        self, topic: str, values: Iterable[Any], **options: Unpack[PublishOptions]
    ) -> None:
        batch = to_batch(values, options)
        if isinstance(batch, SharedBatch):
            self._add(
                topic,
                [
                    Outgoing(value, None, batch.headers, None, batch.partition)
                    for value in batch.values
                ],
            )
        else:
            self._add(topic, list(batch))

    def _add(self, topic: str, messages: list[Outgoing]) -> None:
        self._check()
        if are_on():
            # The span ends before the messages are sent, as a producer's does.
            with publishing(topic, len(messages)) as span:
                messages = list(span.to(messages))
        known = self._messages.setdefault(topic, [])
        self._order += [(topic, len(known) + number) for number in range(len(messages))]
        known += messages

    def ack(self, *messages: LeasedView[Any]) -> None:
        """Messages that this handle has leased: done, if the rest is."""
        self._check()
        for message in messages:
            if not isinstance(message, LeasedView):
                raise InvalidArgument(f"a transaction acks messages, not {type(message).__name__}")
            if message.settled:
                raise InvalidArgument(f"{message.id} was settled before")
            self._acks.setdefault(message.group, []).append(message.proof())
            self._acked.append(message)

    def commit(self, stream: Stream[Any] | AsyncStream[Any]) -> None:
        """The stream's group goes on behind everything that was given so far."""
        self._check()
        plain = stream.blocking if isinstance(stream, AsyncStream) else stream
        if plain.group is None:
            raise InvalidArgument("a stream without a group has nothing to commit to")
        if plain not in self._streams:
            self._streams.append(plain)

    def _check(self) -> None:
        self._connection.reach()
        if self._is_over:
            raise Closed("this transaction is over; begin another one")

    def finish(self) -> None:
        """Do it all. To be called once."""
        self._check()
        self._is_over = True
        backend: Backend = self._connection.reach()
        publications = [Publication(topic, each) for topic, each in self._messages.items() if each]
        acks = [Acknowledged(group, receipts) for group, receipts in self._acks.items()]
        moves = self._moves()
        if not publications and not moves and not acks:
            return
        while True:
            try:
                places = backend.transact(publications, [move for _, move in moves], acks)
                break
            except StaleGeneration:
                # The group was shared anew, perhaps because a topic was made just now.
                # What is still ours may be committed in the new generation; what is
                # not, another member will read again.
                # (That raises by itself.)
                moves = self._moves()
        by_topic = {topic: found for (topic, _), found in zip(publications, places, strict=True)}
        self.published = [
            PublishedMessage(topic, *by_topic[topic][number]) for topic, number in self._order
        ]
        for stream, move in moves:
            stream.on_moved(move)
        for message in self._acked:
            message.on_settled("acked")

    def _moves(self) -> list[tuple[Stream[Any], CursorMove]]:
        moves = [(stream, stream.begin_move()) for stream in self._streams]
        return [(stream, move) for stream, move in moves if move is not None]

    def give_up(self) -> None:
        self._is_over = True


class Transaction(Collected):
    """Used by `with`. Nothing happens before the end of the block."""

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.finish()
        else:
            self.give_up()


class AsyncTransaction(Collected):
    """Used by `async with`; what it collects needs no awaiting."""

    def __init__(self, connection: Connection, calls: Calls) -> None:
        super().__init__(connection)
        self._calls = calls

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self._calls.run(self.finish)
        else:
            self.give_up()
