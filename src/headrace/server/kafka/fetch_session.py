"""Fetch sessions (KIP-227): a client says once what it fetches, then only changes.

    id, epoch    what happens
    0, -1        no session: everything is said and answered in this request
    0, 0         a session begins; the answer has its id
    n, 0         that session ends and a new one begins
    n, k         it goes on: partitions in the request are added or changed, forgotten
                 ones leave, the rest is as before; k rises by one each time
    n, -1        it ends; this request is answered like one without a session

An answer within a session has only the partitions about which there is news.
Sessions, the partitions that they remember in all and their memory (held.py) are
bounded: beyond that the one that was idle longest goes, and its client begins anew. A
session too large to be remembered is answered with id 0, which tells its client to say
everything again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from headrace.core.limits import FETCH_SESSION_PARTITIONS_MAX, FETCH_SESSIONS_MAX
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.fetch_request import FetchPartition, FetchRequest

_EPOCH_MAX = 2**31 - 1
# About what a session takes in memory, and each partition in it.
SESSION_BYTES = 1_024
PARTITION_BYTES = 640

# Name, id and number: what a request calls a partition, in either of its ways.
Key = tuple[str, bytes, int]


class Told(NamedTuple):
    """What the client was told last of a partition."""

    high_watermark: int
    last_stable_offset: int
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
    def __init__(
        self,
        new_id: Callable[[], int],
        *,
        sessions_max: int = FETCH_SESSIONS_MAX,
        partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
        has_room: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """`has_room` says whether so many bytes more may be kept; it may have
        `forget_oldest` make some."""
        self._new_id = new_id
        self._has_room = has_room
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        # The longest idle first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def size_bytes(self) -> int:
        return _size(len(self._sessions), self._partitions)

    def forget_oldest(self) -> bool:
        """False when there is none."""
        if not self._sessions:
            return False
        self._forget(next(iter(self._sessions)))
        return True

    def find(self, request: FetchRequest) -> FetchSession | Error:
        """The session that this request belongs to, changed as it says. One with
        id 0 is not kept: it lasts for this request."""
        if request.session_epoch <= 0:
            self._forget(request.session_id)
            session = FetchSession(0)
            session.change(request)
            if request.session_epoch == 0:
                self._keep(session)
            return session
        found = self._sessions.get(request.session_id)
        if found is None:
            return Error.FETCH_SESSION_ID_NOT_FOUND
        if request.session_epoch != found.epoch:
            return Error.INVALID_FETCH_SESSION_EPOCH
        found.epoch = found.epoch + 1 if found.epoch < _EPOCH_MAX else 1
        before = len(found.wanted)
        found.change(request)
        self._partitions += len(found.wanted) - before
        self._sessions.move_to_end(found.id)
        self._evict()
        self._has_room(0)
        return found

    def _keep(self, session: FetchSession) -> None:
        count = len(session.wanted)
        if count > self._partitions_max or not self._has_room(_size(1, count)):
            return
        while session.id == 0 or session.id in self._sessions:
            session.id = self._new_id()
        self._sessions[session.id] = session
        self._partitions += len(session.wanted)
        self._evict()

    def _evict(self) -> None:
        while len(self._sessions) > self._sessions_max or self._partitions > self._partitions_max:
            self.forget_oldest()

    def _forget(self, session_id: int) -> None:
        gone = self._sessions.pop(session_id, None)
        if gone is not None:
            self._partitions -= len(gone.wanted)


def _size(sessions: int, partitions: int) -> int:
    return sessions * SESSION_BYTES + partitions * PARTITION_BYTES
