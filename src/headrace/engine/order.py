"""Key order: of the messages with one key, only the first is ready.

Two columns a message, kept only by groups of topics with ordering="key":

    keys   hash of the message's key, 0 for none     4 bytes
    next   distance to the key's next message        4 bytes

    heads[k] --> 17 --next--> 23 --next--> 40 <-- tails[k]
               READY        WAITING      WAITING

A chain begins at a key's head, which is the only one that may go out. When the
head is done its successor becomes the head. A delayed message joins its chain
when it is due, so it never holds up what was published after it. Two keys with
one hash share a chain: they wait for each other, and order still holds.

Only keys are on disk. While a state log is replayed the order sleeps, since it
matters when a delayed message joined and the log does not tell; the chains are
made afterwards, from what became of the messages.

Rejected: a queue of offsets for each key, at ten times the memory.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator

from headrace.engine.window import (
    CHUNK,
    CHUNK_BITS,
    DEAD,
    LEASED,
    READY,
    RETRYING,
    SETTLING,
    WAITING,
    Window,
)

_NONE = array("I", (0,))


class KeyOrder:
    def __init__(self, window: Window) -> None:
        self._window = window
        self._keys: dict[int, array[int]] = {}
        self._next: dict[int, array[int]] = {}
        # The first and the last message of every chain, by key hash.
        self._heads: dict[int, int] = {}
        self._tails: dict[int, int] = {}
        # Its highest offset, and all messages that joined behind a higher one.
        self._peaks: dict[int, int] = {}
        self._late: set[int] = set()
        # Given up while they waited, and still linked: passed over when their turn comes.
        self._given_up: set[int] = set()
        self.is_asleep = False

    def __len__(self) -> int:
        return len(self._heads)

    def set_key(self, offset: int, key_hash: int) -> None:
        number, index = offset >> CHUNK_BITS, offset & (CHUNK - 1)
        if number not in self._keys:
            self._keys[number] = _NONE * CHUNK
            self._next[number] = _NONE * CHUNK
        self._keys[number][index] = key_hash

    def _key_of(self, offset: int) -> int:
        """0 also for what never had a message, and so has no column."""
        column = self._keys.get(offset >> CHUNK_BITS)
        return 0 if column is None else column[offset & (CHUNK - 1)]

    def _after(self, offset: int) -> int | None:
        distance = self._next[offset >> CHUNK_BITS][offset & (CHUNK - 1)]
        if distance == 0:
            return None
        return offset + (distance if distance < 0x80000000 else distance - 0x100000000)

    def _link(self, offset: int, after: int | None) -> None:
        # A message whose delay ended joins behind later ones: the distance is
        # modulo 2^32, and a window never spans that much.
        distance = 0 if after is None else (after - offset) & 0xFFFFFFFF
        self._next[offset >> CHUNK_BITS][offset & (CHUNK - 1)] = distance

    def join(self, offset: int) -> None:
        """A message can be had: READY when it is its key's first, else WAITING."""
        key_hash = self._key_of(offset)
        if key_hash and not self.is_asleep and not self._append(key_hash, offset):
            self._become(offset, WAITING)
        else:
            self._become(offset, READY)

    def _append(self, key_hash: int, offset: int) -> bool:
        """To the end of the chain; whether it is the head."""
        tail = self._tails.get(key_hash)
        self._tails[key_hash] = offset
        self._link(offset, None)
        if tail is None:
            self._heads[key_hash] = self._peaks[key_hash] = offset
            return True
        self._link(tail, offset)
        if offset < self._peaks[key_hash]:
            self._late.add(offset)
        else:
            self._peaks[key_hash] = offset
        return False

    def _become(self, offset: int, state: int) -> None:
        if self._window.state_at(offset) != state:
            self._window.put(offset, offset + 1, state)

    def on_done(self, offset: int) -> None:
        """A message is done. After a head comes the next that still waits."""
        key_hash = self._key_of(offset)
        head = self._heads.get(key_hash)
        if key_hash == 0 or head is None:
            return
        if offset != head:
            if offset in self._late:
                self._unlink(key_hash, head, offset)
            elif self._window.state_at(offset) == DEAD:
                self._given_up.add(offset)
        else:
            self._late.discard(offset)
            after = self._after(offset)
            # What ended while it waited is passed over, and out of the chain.
            while after is not None and self._window.state_at(after) != WAITING:
                self._keys[after >> CHUNK_BITS][after & (CHUNK - 1)] = 0
                self._late.discard(after)
                self._given_up.discard(after)
                after = self._after(after)
            if after is None:
                del self._heads[key_hash], self._tails[key_hash], self._peaks[key_hash]
            else:
                self._heads[key_hash] = after
                self._become(after, READY)

    def rejoin(self, offset: int) -> None:
        """One that was given up can be had again: it comes behind those of its key."""
        if offset in self._given_up:
            self._given_up.discard(offset)
            key_hash = self._key_of(offset)
            self._unlink(key_hash, self._heads[key_hash], offset)
        self.join(offset)

    def _unlink(self, key_hash: int, head: int, offset: int) -> None:
        """A late one has ended while it waited. No chain may lead through it: its
        column may go while higher ones before it are still there."""
        self._late.discard(offset)
        before = head
        while (after := self._after(before)) is not None:
            if after == offset:
                self._link(before, self._after(offset))
                if self._tails[key_hash] == offset:
                    self._tails[key_hash] = before
                return
            before = after

    def rebuild(self) -> None:
        """Chain all messages anew. Those that were given out before come first,
        so that nothing passes them; the others follow as they were published.
        What is on its way to the dead letters holds nobody up."""
        self.is_asleep = False
        for chains in (self._heads, self._tails, self._peaks, self._late, self._given_up):
            chains.clear()
        find = self._window.find_state
        held = [offset for state in (LEASED, SETTLING, RETRYING) for offset in find(state)]
        free = sorted([*find(READY), *find(WAITING)], key=self._turn)
        for offset in held:
            key_hash = self._key_of(offset)
            if key_hash:
                self._append(key_hash, offset)
        for offset in free:
            self.join(offset)

    def _turn(self, offset: int) -> tuple[bool, int]:
        return self._window.attempts_at(offset) == 0, offset

    def forget_below(self, offset: int) -> None:
        for number in [n for n in self._keys if (n + 1) << CHUNK_BITS <= offset]:
            del self._keys[number], self._next[number]

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        for number, keys in self._keys.items():
            yield number, zlib.compress(keys.tobytes(), 1)

    def restore_piece(self, number: int, keys: bytes) -> None:
        self._keys[number] = array("I", zlib.decompress(keys))
        self._next[number] = _NONE * CHUNK
