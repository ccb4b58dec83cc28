"""A link: one connection to a node, which any number of threads share.

    thread 1   send ---------- wait ......... answer
    thread 2      send -- wait .... answer
    reader        ...   recv, recv: whoever waits for that id goes on

Requests go out as they come and answers come back in any order, so a call that waits
holds nobody up. The reader is a thread of the link's own; it never sends, and so it
never waits for a node that waits for us to read.

What carries the frames is a socket on the Kafka port (`socket_link.py`) or a stream of
gRPC (`grpc_link.py`); all else is the same.

A link that is open and silent is given up: behind it may be a proxy that swallows, or a
node that hangs. A second thread looks six times within `silence_seconds`:

    look       1     2     3 ... 6
    silent    ---- ping -------- given up      while somebody waits for an answer

A node that is at work on something long answers the ping, and is waited for: up to four
times as long for one answer. Looks are counted, not seconds: a process that was stopped or
a machine that slept finds the answers first.

Rejected: a deadline for each call alone. It would be too long for a connection that is
dead, or too short for a topic of ten thousand partitions.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from headrace.core.errors import Closed, Disconnected, HeadraceError, MalformedMessage
from headrace.core.node_settings import Address
from headrace.core.wording import counted
from headrace.wire.remote.codec import CORRELATION_ID_MAX, decode_answer_id

CONNECT_SECONDS = 5.0
# For how long a node may be silent while somebody waits for an answer.
SILENCE_SECONDS = 30.0
_LOOKS_MAX = 6
_LOOKS_BEFORE_PING = 2
# Of a call that is not answered by a node that answers others.
_LOOKS_OF_CALL_MAX = 4 * _LOOKS_MAX

Answered = Callable[["Pending"], None]


class Pending:
    """A request that was sent. Its answer is a frame, or an error of the link."""

    __slots__ = ("_on_answered", "_turn", "error", "frame", "looks")

    def __init__(self, on_answered: Answered | None = None) -> None:
        self.frame: memoryview | None = None
        self.error: HeadraceError | None = None
        # How often the link was looked at since.
        self.looks = 0
        self._on_answered = on_answered
        self._turn = threading.Lock()
        self._turn.acquire()

    def end(self, frame: memoryview | None, error: HeadraceError | None) -> None:
        self.frame = frame
        self.error = error
        self._turn.release()
        if self._on_answered is not None:
            self._on_answered(self)

    def wait(self, seconds: float = -1) -> memoryview:
        """The frame, from behind its size; raises what ended the link, or
        Disconnected when there is no answer in that time."""
        if not self._turn.acquire(timeout=seconds):
            raise Disconnected(f"no answer within {counted(float(seconds), 'second')}")
        self._turn.release()
        if self.frame is None:
            assert self.error is not None
            raise self.error
        return self.frame


class Link(ABC):
    """Connected when it is made; OSError when nobody listens there."""

    # Which door of a node this leads to, as `headrace serve` calls it.
    door: ClassVar[str]

    def __init__(
        self,
        address: Address,
        client_id: str,
        *,
        silence_seconds: float = SILENCE_SECONDS,
        ping: bytes = b"",
    ) -> None:
        """`ping` is a request that every node answers at once."""
        self.address = address
        self._silence_seconds = silence_seconds
        self._ping_request = ping
        self._client_id = client_id.encode()[:255]
        self._send_lock = threading.Lock()
        # Guards the three below.
        self._lock = threading.Lock()
        self._pending: dict[int, Pending] = {}
        self._ended: HeadraceError | None = None
        self._on_ended: Callable[[], None] | None = None
        self._last_id = 0
        self.received_bytes = 0
        # Parts of large requests that went out: such a link is not silent.
        self.sent_parts = 0
        self._moved = 0
        self._silent_looks = 0
        self._is_over = threading.Event()
        self._reader = threading.Thread(
            target=self._read, name=f"headrace-link-{address}", daemon=True
        )
        self._watcher = threading.Thread(
            target=self._watch, name=f"headrace-watch-{address}", daemon=True
        )
        self._open()
        self._reader.start()
        self._watcher.start()

    @property
    def is_alive(self) -> bool:
        return self._ended is None

    def send(self, request: bytes, on_answered: Answered | None = None) -> Pending:
        """Disconnected when the link is gone; then the node has not seen all of the
        request and will not carry it out, and nobody is called."""
        pending = Pending(on_answered)
        with self._send_lock:
            with self._lock:
                if self._ended is not None:
                    raise self._ended.without_frames()
                self._last_id = self._last_id % CORRELATION_ID_MAX + 1
                number = self._last_id
                self._pending[number] = pending
            try:
                self._transmit(number, request)
            except OSError as error:
                with self._lock:
                    is_ended = self._pending.pop(number, None) is None
                if is_ended and on_answered is not None:
                    # The reader noticed first, and has told who waits.
                    return pending
                lost = self._lost(error)
                self._end(lost)
                raise lost from error
        return pending

    def when_ended(self, on_ended: Callable[[], None]) -> None:
        """Have it called at the end of the link: now, when that has been. It may be in
        the reader, or in the middle of a `send`, so it does not wait for anything."""
        with self._lock:
            if self._ended is None:
                self._on_ended = on_ended
                return
        on_ended()

    def close(self) -> None:
        self._end(Closed("this handle is closed; connect again"))
        for thread in (self._reader, self._watcher):
            if thread is not threading.current_thread():
                thread.join()

    # What carries the frames.

    @abstractmethod
    def _open(self) -> None:
        """Connect; OSError when nobody listens."""

    @abstractmethod
    def _transmit(self, number: int, request: bytes) -> None:
        """Send it with this correlation id; OSError when that cannot be done."""

    @abstractmethod
    def _receive_all(self) -> None:
        """Hand every frame to `_on_frame`. Returns or raises OSError, EOFError or
        MalformedMessage when there will be no more of them."""

    @abstractmethod
    def _shut(self) -> None:
        """Have the reader wake up, and end."""

    # Answers.

    def _read(self) -> None:
        try:
            self._receive_all()
            raise EOFError("closed by the node")
        except (OSError, EOFError) as error:
            self._end(self._lost(error or "closed by the node"))
        except MalformedMessage as error:
            self._end(error)

    def _on_frame(self, frame: memoryview) -> None:
        if len(frame) < 5:
            raise MalformedMessage(f"an answer of {len(frame)} bytes from {self.address}")
        with self._lock:
            pending = self._pending.pop(decode_answer_id(frame), None)
        if pending is not None:
            pending.end(frame, None)

    # Silence.

    def _watch(self) -> None:
        while not self._is_over.wait(self._silence_seconds / _LOOKS_MAX):
            self.look()

    def look(self) -> None:
        """Is somebody waiting, and is there any sign of life?"""
        with self._lock:
            for each in self._pending.values():
                each.looks += 1
            late = {
                number: each
                for number, each in self._pending.items()
                if each.looks > _LOOKS_OF_CALL_MAX
            }
            for number in late:
                del self._pending[number]
            moved = self.received_bytes + self.sent_parts
            is_silent = bool(self._pending) and moved == self._moved
            self._moved = moved
            self._silent_looks = self._silent_looks + 1 if is_silent else 0
            looks = self._silent_looks
        for pending in late.values():
            pending.end(None, self._lost("the node answers others, and this not at all"))
        if looks >= _LOOKS_MAX:
            self._end(self._lost(f"it was silent for {self._silence_seconds:g} s"))
        elif looks == _LOOKS_BEFORE_PING and self._ping_request:
            # In a thread of its own: it may wait until the node takes it.
            threading.Thread(target=self._ping, name="headrace-ping", daemon=True).start()

    def _ping(self) -> None:
        with contextlib.suppress(HeadraceError):
            self.send(self._ping_request)

    def _lost(self, error: object) -> Disconnected:
        return Disconnected(
            f"the connection to the node at {self.address} broke ({error}) before the answer "
            "came; whether the call took effect is not known"
        )

    def _end(self, reason: HeadraceError) -> None:
        with self._lock:
            if self._ended is not None:
                return
            self._ended = reason
            waiting, self._pending = list(self._pending.values()), {}
            on_ended = self._on_ended
        self._is_over.set()
        self._shut()
        for pending in waiting:
            pending.end(None, reason)
        if on_ended is not None:
            on_ended()
