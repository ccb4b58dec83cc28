"""The dedup window: which ids were published lately, and where.

Within the window an id leads to the offset at which it was first published, and
outside of it to nothing, exactly to the millisecond. Memory is bounded by a number
of ids: beyond it the oldest go first, and `evicted` says how often the window was
cut short like that.

    entries     id -> (timestamp_ms << 63 | offset)
    order       ids and their values, as remembered: [oldest ... newest]

Finding compares times itself, so freeing memory may lag: `expire` frees a bounded
number at a time, and every `remember` frees two more, which outruns what it adds.
An id that came again after its window has two places in the order; the older one no
longer matches its entry and frees nothing.

The window has a time of its own, so that a clock that is set costs one sum however many
ids there are: `on_clock_set` adds up by how much, and every time that comes in is less
that.

Ids longer than 16 bytes are kept as digests. These are 17 bytes long, so no digest
can ever equal an id that is short enough to be kept as it is.

Rejected: two dictionaries that take turns, which are cheap to expire, but keep ids
for up to twice the window and evict half of them at once.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final

from headrace.core.errors import InvalidArgument

EXPIRED_PER_CALL_MAX: Final = 10_000

_PLAIN_ID_BYTES_MAX: Final = 16
_DIGEST_BYTES: Final = 17
_OFFSET_BITS: Final = 63
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1


class DedupWindow:
    """The ids of one partition."""

    __slots__ = ("_entries", "_ids", "_ids_max", "_set_by_ms", "_values", "_window_ms", "evicted")

    def __init__(self, window_ms: int, ids_max: int) -> None:
        if window_ms < 1 or ids_max < 1:
            raise InvalidArgument(
                f"window_ms and ids_max must be at least 1, not {window_ms} and {ids_max}"
            )
        self._window_ms = window_ms
        self._ids_max = ids_max
        # By how much the clock was set since the first id came.
        self._set_by_ms = 0
        self._entries: dict[bytes, int] = {}
        self._ids: deque[bytes] = deque()
        self._values: deque[int] = deque()
        # Ids that had to go before their window was over.
        self.evicted = 0

    def __len__(self) -> int:
        """Ids held in memory, those that are expired and not yet freed included."""
        return len(self._entries)

    def find(self, dedup_id: bytes, now_ms: int) -> int | None:
        """The offset at which this id was first published within the window;
        None means that it is new, or was too long ago, or was evicted."""
        value = self._entries.get(_kept(dedup_id))
        if value is None:
            return None
        if now_ms - self._set_by_ms - (value >> _OFFSET_BITS) >= self._window_ms:
            return None
        return value & _OFFSET_MASK

    def remember(self, dedup_id: bytes, offset: int, timestamp_ms: int) -> None:
        """This id was published at this offset and time. When it is within the
        window of an earlier publication, the earlier one stands. Ids are
        remembered in the order of the log: an offset that steps back raises."""
        kept = _kept(dedup_id)
        timestamp_ms -= self._set_by_ms
        earlier = self._entries.get(kept)
        if earlier is not None and timestamp_ms - (earlier >> _OFFSET_BITS) < self._window_ms:
            return
        if self._values and offset < self._values[-1] & _OFFSET_MASK:
            raise InvalidArgument(
                f"offset {offset} comes after {self._values[-1] & _OFFSET_MASK}: truncate first"
            )
        value = timestamp_ms << _OFFSET_BITS | offset
        self._entries[kept] = value
        self._ids.append(kept)
        self._values.append(value)
        self._free_expired(timestamp_ms, 2)
        # Places are counted, not entries: an id that came again takes up two.
        while len(self._ids) > self._ids_max:
            self.evicted += self._free_oldest()

    def forget(self, dedup_id: bytes) -> None:
        """This id was not published after all."""
        self._entries.pop(_kept(dedup_id), None)

    def expire(self, now_ms: int) -> int:
        """Free ids whose window is over; how many were freed. One call frees at
        most EXPIRED_PER_CALL_MAX, so that a full window never stalls its caller."""
        return self._free_expired(now_ms - self._set_by_ms, EXPIRED_PER_CALL_MAX)

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was set: what is left of every id's window stays."""
        self._set_by_ms += by_ms

    def truncate_to(self, offset: int) -> None:
        """Forget what was published at and above this offset."""
        while self._values and self._values[-1] & _OFFSET_MASK >= offset:
            kept_id, value = self._ids.pop(), self._values.pop()
            if self._entries.get(kept_id) == value:
                del self._entries[kept_id]

    def _free_expired(self, own_ms: int, places_max: int) -> int:
        """Walk the oldest places whose time is over. A place with a later time
        in front of it waits: times of producers may run backwards a little."""
        freed = 0
        for _ in range(min(places_max, len(self._values))):
            if own_ms - (self._values[0] >> _OFFSET_BITS) < self._window_ms:
                break
            freed += self._free_oldest()
        return freed

    def _free_oldest(self) -> int:
        """Free the oldest place; 1 when an id went with it, and 0 when that id
        has been published again since."""
        kept_id = self._ids.popleft()
        if self._entries.get(kept_id) != self._values.popleft():
            return 0
        del self._entries[kept_id]
        return 1


def _kept(dedup_id: bytes) -> bytes:
    if len(dedup_id) <= _PLAIN_ID_BYTES_MAX:
        return dedup_id
    return blake2b(dedup_id, digest_size=_DIGEST_BYTES).digest()
