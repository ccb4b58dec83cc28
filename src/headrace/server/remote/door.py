"""Calls of our own clients, on the Kafka door's port: one address for everything.

    frame -> decode -> session: call on the loop -> disk -> answer, in any order

Each connection is a session. What it holds, leases of consumers and memberships of
streams, is given back when it breaks: see `session.py`.

A request that can be read is answered, with an error at worst. One that cannot is no
client of ours, and costs it the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument, MalformedMessage
from headrace.core.ports import Buffer
from headrace.server.kafka.connection import OPEN_REQUESTS_MAX, Connection
from headrace.server.kafka.slot import Slot
from headrace.server.remote.answering import Answering, checked_request, waits
from headrace.server.remote.session import Holdings, Session
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
        self._answering = Answering(door.service, door.logger, door.tasks)
        # Whoever comes over gRPC holds what it holds among the same.
        self._holdings = Holdings(door.service)
        door.service.holdings = self._holdings

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
            request = checked_request(body)
        except MalformedMessage:
            raise
        except HeadraceError as error:
            connection.leave_order(slot, CALL_WEIGHT)
            connection.send(self._answering.refuse(correlation_id, error), CALL_WEIGHT)
            return
        may_wait = waits(request)
        weight = 0 if may_wait else CALL_WEIGHT
        connection.leave_order(slot, weight)
        self._answering.begin(
            self._session_of(connection),
            request,
            correlation_id,
            {"peer": connection.peer_host},
            lambda frame: connection.send(frame, weight),
            may_wait=may_wait,
        )

    # Sessions.

    @property
    def session_count(self) -> int:
        return len(self._sessions)

    def _session_of(self, connection: Connection) -> Session:
        session = self._sessions.get(connection)
        if session is None:
            session = Session(
                self._door.service,
                self._door.polls,
                self._holdings,
                connection.context,
                is_congested=lambda: connection.is_congested,
            )
            self._sessions[connection] = session
            connection.on_closed.append(lambda: self._on_closed(connection, session))
        return session

    def _on_closed(self, connection: Connection, session: Session) -> None:
        del self._sessions[connection]
        session.close()
