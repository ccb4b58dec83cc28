"""Fetch sessions (KIP-227): a client says once what it fetches, then only changes.

    epoch 0    begins a session, or with id 0 and epoch -1 none at all
    epoch n    goes on: partitions in the request are added or changed, forgotten
               ones leave, the rest is as before
    epoch -1   ends the session of this id

An answer within a session has only the partitions about which there is news. The
number of sessions is bounded: beyond it the one that was idle longest goes, and
its client begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.fetch_request import FetchPartition, FetchRequest

SESSIONS_MAX = 10_000
_EPOCH_MAX = 2**31 - 1

# Name, id and number: what a request calls a partition, in either of its ways.
Key = tuple[str, bytes, int]


class Told(NamedTuple):
    """What the client was told last of a partition."""

    high_watermark: int
    log_start_offset: int


class FetchSession:
    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self.epoch = 1
        # In the order in which they are served: whoever got data goes to the end.
        self.wanted: OrderedDict[Key, FetchPartition] = OrderedDict()
        self.told: dict[Key, Told] = {}

    def change(self, request: FetchRequest) -> None:
        for topic in request.topics:
            for partition in topic.partitions:
                self.wanted[topic.topic, topic.topic_id, partition.partition] = partition
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                key = (gone.topic, gone.topic_id, index)
                self.wanted.pop(key, None)
                self.told.pop(key, None)


class FetchSessions:
    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, request: FetchRequest) -> FetchSession | Error:
        """The session that this request belongs to, changed as it says. One with
        id 0 is not kept: it lasts for this request."""
        if request.session_epoch <= 0:
            if request.session_id:
                self._sessions.pop(request.session_id, None)
            session = FetchSession(0)
            if request.session_epoch == 0:
                session = self._begin()
            session.change(request)
            return session
        found = self._sessions.get(request.session_id)
        if found is None:
            return Error.FETCH_SESSION_ID_NOT_FOUND
        if request.session_epoch != found.epoch:
            return Error.INVALID_FETCH_SESSION_EPOCH
        found.epoch = found.epoch + 1 if found.epoch < _EPOCH_MAX else 1
        found.change(request)
        self._sessions.move_to_end(found.id)
        return found

    def _begin(self) -> FetchSession:
        if len(self._sessions) >= SESSIONS_MAX:
            self._sessions.popitem(last=False)
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._new_id()
        session = self._sessions[session_id] = FetchSession(session_id)
        return session
