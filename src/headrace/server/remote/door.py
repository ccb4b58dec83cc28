"""Calls of our own clients, on the Kafka door's port: one address for everything.

    frame -> decode -> session: call on the loop -> disk -> answer, in any order

Each connection is a session. What it holds, leases of consumers and memberships of
streams, is given back at once when it breaks: see `session.py`.

A request that can be read is answered, with an error at worst. One that cannot is no
client of ours, and costs it the connection.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument, LimitExceeded, MalformedMessage
from headrace.core.ports import Buffer
from headrace.server.glance import Glance
from headrace.server.kafka.connection import OPEN_REQUESTS_MAX, Connection, Slot
from headrace.server.remote.session import Holdings, Session
from headrace.wire.remote.codec import (
    Request,
    decode_request,
    encode_answer_frame,
    encode_refusal_frame,
)
from headrace.wire.remote.methods import VERSION

if TYPE_CHECKING:
    from headrace.server.kafka.door import Door

# A connection pauses when too many requests are open. A call may be answered with much
# more than a Kafka request usually is, so it counts as several.
CALL_WEIGHT = OPEN_REQUESTS_MAX // limits.REMOTE_OPEN_CALLS_MAX


class RemoteDoor:
    def __init__(self, door: Door) -> None:
        self._door = door
        self._sessions: dict[Connection, Session] = {}
        self._holdings = Holdings(Glance(door.service, door.groups.member_count))

    def handle(
        self, connection: Connection, slot: Slot, version: int, correlation_id: int, body: Buffer
    ) -> None:
        """MalformedMessage when this is no request."""
        try:
            if version != VERSION:
                raise InvalidArgument(
                    f"this node speaks version {VERSION} of the remote protocol, not {version}; "
                    "use a client of the node's version"
                )
            request = decode_request(body)
            is_watch = request.method.name == "watch"
            if is_watch and len(body) > limits.REMOTE_WATCH_BYTES_MAX:
                raise LimitExceeded("too many topics to watch at once; watch some of them")
        except MalformedMessage:
            raise
        except HeadraceError as error:
            self._door.service.counts.endpoint("sdk", "refused").errors[error.code] += 1
            connection.leave_order(slot, CALL_WEIGHT)
            connection.send(encode_refusal_frame(correlation_id, error), CALL_WEIGHT)
            return
        weight = 0 if is_watch else CALL_WEIGHT
        connection.leave_order(slot, weight)
        self._begin(connection, request, correlation_id, weight)

    def _begin(
        self, connection: Connection, request: Request, correlation_id: int, weight: int
    ) -> None:
        session = self._session_of(connection)
        service = self._door.service
        endpoint = service.counts.endpoint("sdk", request.method.name)
        is_watch = request.method.name == "watch"
        began = perf_counter()
        task = asyncio.ensure_future(session.carry_out(request), loop=self._door.service.loop)
        self._door.tasks.add(task)

        def answer(done: asyncio.Future[object]) -> None:
            self._door.tasks.discard(done)
            if done.cancelled():
                return
            error = done.exception()
            try:
                if error is None:
                    frame = encode_answer_frame(correlation_id, done.result())
                elif isinstance(error, HeadraceError):
                    frame = encode_refusal_frame(correlation_id, error)
                else:
                    raise error
            except Exception as failure:
                error = self._on_failed(request, failure)
                frame = encode_refusal_frame(correlation_id, error)
            service.requests.done(
                endpoint,
                began,
                waited_ms=float("inf") if is_watch else 0,
                code=error.code if isinstance(error, HeadraceError) else "",
                who={"peer": connection.peer_host, "correlation_id": correlation_id},
            )
            connection.send(frame, weight)

        task.add_done_callback(answer)

    def _on_failed(self, request: Request, error: BaseException) -> HeadraceError:
        self._door.logger.error(
            "call failed", exc_info=error, extra={"method": request.method.name}
        )
        return HeadraceError(f"{request.method.name} failed in the node; its log says why")

    # Sessions.

    @property
    def session_count(self) -> int:
        return len(self._sessions)

    def _session_of(self, connection: Connection) -> Session:
        session = self._sessions.get(connection)
        if session is None:
            session = Session(self._door, self._holdings)
            self._sessions[connection] = session
            connection.on_closed.append(lambda: self._on_closed(connection, session))
        return session

    def _on_closed(self, connection: Connection, session: Session) -> None:
        del self._sessions[connection]
        session.close()
