"""Key order: of the messages with one key, only the first is ready.

Two columns a message, kept only by groups of topics with ordering="key":

    keys   hash of the message's key, 0 for none     4 bytes
    next   distance to the key's next message        4 bytes

A chain begins at a key's head, which is the only one that is not WAITING. When
the head is done its successor becomes the head. A delayed message joins its chain
when it is due, so it never holds up what was published after it. Two keys with
one hash share a chain: they wait for each other, and order still holds.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator

from headrace.engine.window import CHUNK, CHUNK_BITS

_NONE = array("I", (0,))


class KeyOrder:
    def __init__(self) -> None:
        self._keys: dict[int, array[int]] = {}
        self._next: dict[int, array[int]] = {}
        # The last message of every chain, by key hash.
        self._tails: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._tails)

    def set_key(self, offset: int, key_hash: int) -> None:
        number, index = offset >> CHUNK_BITS, offset & (CHUNK - 1)
        if number not in self._keys:
            self._keys[number] = _NONE * CHUNK
            self._next[number] = _NONE * CHUNK
        self._keys[number][index] = key_hash

    def join(self, offset: int) -> bool:
        """Put a message at the end of its key's chain; whether it is the head."""
        key_hash = self._keys[offset >> CHUNK_BITS][offset & (CHUNK - 1)]
        if key_hash == 0:
            return True
        tail = self._tails.get(key_hash)
        self._tails[key_hash] = offset
        if tail is None:
            return True
        # A message whose delay ended joins behind later ones: the distance is
        # modulo 2^32, and a window never spans that much.
        self._next[tail >> CHUNK_BITS][tail & (CHUNK - 1)] = (offset - tail) & 0xFFFFFFFF
        return False

    def leave(self, offset: int, is_waiting: Callable[[int], bool]) -> int | None:
        """A head is done: the next head, or None. What expired while it waited
        is passed over."""
        key_hash = self._keys[offset >> CHUNK_BITS][offset & (CHUNK - 1)]
        if key_hash == 0:
            return None
        while True:
            distance = self._next[offset >> CHUNK_BITS][offset & (CHUNK - 1)]
            if distance == 0:
                if self._tails.get(key_hash) == offset:
                    del self._tails[key_hash]
                return None
            offset += distance if distance < 0x80000000 else distance - 0x100000000
            if is_waiting(offset):
                return offset

    def rebuild(self, offsets: Iterable[int]) -> Iterator[tuple[int, bool]]:
        """Chain these messages anew, in this order; for each, whether it is a
        head."""
        self._tails.clear()
        for number in self._next:
            self._next[number] = _NONE * CHUNK
        for offset in offsets:
            yield offset, self.join(offset)

    def forget_below(self, offset: int) -> None:
        for number in [n for n in self._keys if (n + 1) << CHUNK_BITS <= offset]:
            del self._keys[number], self._next[number]

    def pieces(self) -> Iterator[tuple[int, bytes, bytes]]:
        for number, keys in self._keys.items():
            yield (
                number,
                zlib.compress(keys.tobytes(), 1),
                zlib.compress(self._next[number].tobytes(), 1),
            )

    def restore_piece(self, number: int, keys: bytes, next_: bytes) -> None:
        self._keys[number] = array("I", zlib.decompress(keys))
        self._next[number] = array("I", zlib.decompress(next_))

    def tails(self) -> list[int]:
        return list(self._tails.values())

    def restore_tails(self, tails: list[int]) -> None:
        for offset in tails:
            key_hash = self._keys[offset >> CHUNK_BITS][offset & (CHUNK - 1)]
            self._tails[key_hash] = offset
