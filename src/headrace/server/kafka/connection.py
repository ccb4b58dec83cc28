"""A connection: bytes to frames, frames to calls, answers in the order of requests.

    socket --> scratch --> frame --> handler --> slot --> socket
                 |   ^                 |           ^
                 v   |                 '- later ---'   a long poll, a sync
                 kept, or large

A frame is a length of four bytes and so many bytes. All connections read into one
scratch buffer of the door and handle what is whole there, so an idle connection
holds no buffer. The piece of a frame at the end is kept, and put before what comes
next; a frame larger than the scratch gets room of its own: one that the door keeps
for this, or new room that grows with what really arrives. A length alone costs nothing.

A request starts when those before it are answered, but for the few that may overlap:
turns.py says which. Answers go out in the order of requests, but for those of our own
clients, who know an answer by its id. Reading stops while a request waits for its turn,
too many are open or the peer does not take its answers, so neither side can make this
one grow.

A frame's bytes may be overwritten once its handler has returned: the codec copies
what it keeps, but for records, which are written before Produce returns.

Rejected: asyncio's streams. They copy each byte once more; small requests cost three times as much.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, cast

from headrace.core.errors import MalformedMessage
from headrace.core.ports import Buffer
from headrace.core.request_context import BY_ANYONE
from headrace.server.kafka.frame_head import HEAD, HEAD_BYTES, KEY_BYTES, LENGTH, NO_KEY, key_of
from headrace.server.kafka.produce_runs import RunTargets, handle_run
from headrace.server.kafka.slot import Slot
from headrace.server.kafka.turns import PRODUCE, ends_polls, may_start
from headrace.server.shares import shares_of
from headrace.server.stalls import PROGRESS_BYTES_MIN, Watch
from headrace.wire.kafka.produce_run import Routes
from headrace.wire.remote.methods import API_KEY

if TYPE_CHECKING:
    from headrace.server.kafka.door import Door

SCRATCH_BYTES = 256 * 1024
# Requests of one connection that are not answered yet.
OPEN_REQUESTS_MAX = 1_000
# Those that are begun before other connections have their turn; a run of Produce requests
# counts as one.
REQUESTS_PER_TURN = 64
# Answers that the peer has not taken yet: beyond the high mark reading stops.
WRITE_BYTES_HIGH = 4 * 1024 * 1024
WRITE_BYTES_LOW = 1024 * 1024
# Answers above this size are sent by themselves; and no more parts than that are
# gathered, of which the system takes about a thousand at once.
TOGETHER_BYTES_MAX = 16 * 1024
TOGETHER_PARTS_MAX = 512
TOO_MUCH = "too much is being received at once"


class Connection(asyncio.BufferedProtocol):
    def __init__(self, door: Door) -> None:
        self._door = door
        self.account = shares_of(door.service.loop).open_account()
        self.transport: asyncio.Transport | None = None
        self.peer_host, self.peer_port = "", 0
        # Who asks, and what the client said of itself in its first ApiVersions.
        self.context = BY_ANYONE
        self.client_software = ""
        # Received and not handled yet: the piece of a frame, or whole frames
        # while handling is paused.
        self._kept = bytearray()
        # The room of a frame that does not fit into the scratch, how much of it
        # has arrived, and the frame's size.
        self._large: bytearray | None = None
        self.large_arrived = self._large_size = 0
        # When it began to arrive.
        self.large_began = 0.0
        self._slots: deque[Slot] = deque()
        self._open_requests = 0
        # The API of the requests in the slots: those of different ones never overlap.
        self._under_way = self._held_key = NO_KEY
        self._holds_turns = False
        # The API of the next request, while that waits for its turn.
        self._next_key: int | None = None
        # A poll that waits for data ends when a request behind it needs it to: the
        # calls that end those which wait, and a mark for those about to wait.
        self.polls: set[Callable[[], None]] = set()
        self.is_hurried = False
        # What its Produce requests have in common; see there.
        self.routes = Routes()
        self.run_targets = RunTargets(door.service)
        # Answers that go out when this turn of the loop ends.
        self._unsent: list[Buffer] = []
        # Bytes of answers that are known and wait for an earlier one.
        self._held_bytes = 0
        # It has used its share of the loop, and stands in line with others.
        self._is_in_line = False
        self._is_paused = self._is_stopping = self.is_closed = False
        self._is_writable = True
        # What went either way, by which a sweep sees who has stalled.
        self.received_bytes = self._frames = self._sent_bytes = 0
        self._body, self.answer_watch = Watch(), Watch()
        self.seen_received_bytes = self.quiet_sweeps = 0
        # Whoever holds something for this connection lets go of it at its end.
        self.on_closed: list[Callable[[], None]] = []

    # Arriving.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop are of no class of asyncio.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(WRITE_BYTES_HIGH, WRITE_BYTES_LOW)
        peer = transport.get_extra_info("peername")
        self.peer_host, self.peer_port = (str(peer[0]), int(peer[1])) if peer else ("", 0)
        if not self._door.admit(self):
            self.is_closed = True
            self.transport.abort()
        else:
            # Not even its first request is read while others stand in line. Later, since
            # uvloop begins to read after this, whatever is said here.
            asyncio.get_running_loop().call_soon(self._line_up_if_spent)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._slots.clear()
        self._open_requests = self._held_bytes = 0
        self._unsent = []
        self._take_kept()
        self._drop_large()
        self._door.on_connection_lost(self)

    # Reading.

    def get_buffer(self, sizehint: int) -> memoryview:
        # Reading into it and `buffer_updated` follow at once, in every event loop,
        # so the scratch is free again before another connection asks for it.
        if self._large is not None:
            # Not beyond the frame, though its room may be larger.
            return memoryview(self._large)[self.large_arrived : self._large_size]
        kept = len(self._kept)
        scratch = self._door.scratch
        if kept:
            scratch[:kept] = self._kept
        return scratch[kept:]

    def buffer_updated(self, nbytes: int) -> None:
        began = perf_counter()
        self.received_bytes += nbytes
        if self._large is not None:
            self.large_arrived += nbytes
            self._fill_large()
        else:
            end = len(self._take_kept()) + nbytes
            self._handle_frames(self._door.scratch[:end], began)
        if not self.account.served(began):
            self._line_up_if_spent()

    def _line_up_if_spent(self) -> None:
        """Whoever has used its share is read again when its turn has come."""
        if not self._is_in_line and self.account.lines_up(self._begin_turn):
            self._is_in_line = True
            self._pause()

    def _handle_frames(self, data: memoryview, began: float) -> None:
        """Handle what is whole, and keep the rest."""
        start, end = 0, len(data)
        left, leave_at = REQUESTS_PER_TURN, self.account.turn_end(began)
        while end - start >= 4 and not self._is_paused and not self.is_closed:
            if end - start >= HEAD_BYTES:
                length, key = HEAD.unpack_from(data, start)
            else:
                (length,), key = LENGTH.unpack_from(data, start), NO_KEY
            if not 0 < length <= self._door.request_bytes_max:
                self.close(f"a frame of {length} bytes")
                return
            stop = start + 4 + length
            if length < KEY_BYTES:
                key = NO_KEY
            elif end - start < HEAD_BYTES:
                break
            if self._slots and not may_start(key, self._under_way):
                self._wait_for_turn(key)
                break
            if stop > end:
                if 4 + length > SCRATCH_BYTES:
                    self._begin_large(data[start:], 4 + length)
                    return
                break
            start = self._handle(data, start, stop, key)
            left -= 1
            if self._open_requests >= OPEN_REQUESTS_MAX:
                self._pause()
            elif start < end and (not left or perf_counter() >= leave_at):
                # The others come first; then this one goes on where it was.
                self._is_in_line = True
                self._pause()
                self.account.line_up(self._begin_turn)
        if start < end and not self.is_closed:
            self._keep(data[start:])

    def _keep(self, data: memoryview) -> None:
        if not self._door.rooms.keep(len(data)):
            self.close(TOO_MUCH)
            return
        self._kept = bytearray(data)

    def _take_kept(self) -> bytearray:
        kept = self._kept
        if kept:
            self._kept = bytearray()
            self._door.rooms.bytes -= len(kept)
        return kept

    def _wait_for_turn(self, key: int) -> None:
        self._next_key = key
        self._pause()
        if ends_polls(key, self._under_way):
            self.is_hurried = True
            for end in tuple(self.polls):
                end()

    def hold_turns(self) -> None:
        """Nothing may overlap with what was handled last, until `release_turns`."""
        self._holds_turns = True
        self._held_key, self._under_way = self._under_way, NO_KEY

    def release_turns(self) -> None:
        self._holds_turns = False
        self._under_way = self._held_key
        if self._is_paused and self._may_read(OPEN_REQUESTS_MAX // 2):
            self._resume()

    def _handle(self, data: memoryview, start: int, stop: int, key: int) -> int:
        """Handle the request there, and those behind it that can be handled with
        it. Returns where the next one starts."""
        self._frames += 1
        if key != API_KEY:
            self._under_way = key
        if key == PRODUCE:
            is_done, behind = handle_run(self._door.service, self, data, start)
            if is_done:
                return behind
            stop = max(stop, behind)
        start = self.handle_frame(data, start)
        # What was found behind a request that holds the turns waits like all else.
        while start < stop and not self.is_closed and not self._holds_turns:
            start = self.handle_frame(data, start)
        return start

    def handle_frame(self, data: memoryview, start: int) -> int:
        """Handle the request there, and nothing else. Returns where the next one starts."""
        end: int = start + 4 + LENGTH.unpack_from(data, start)[0]
        try:
            self._door.handle(self, self.new_slot(), data[start + 4 : end])
        except MalformedMessage as error:
            self.close(str(error))
        return end

    def new_slot(self, count: int = 1) -> Slot:
        slot = Slot(count)
        self._slots.append(slot)
        self._open_requests += count
        return slot

    @property
    def requests_left(self) -> int:
        """How many more may be open."""
        return OPEN_REQUESTS_MAX - self._open_requests

    def _begin_large(self, data: memoryview, size: int) -> None:
        self._large_size = size
        self.large_arrived = len(data)
        self.large_began = self._door.service.loop.time()
        self._make_room(data, len(data))

    def _fill_large(self) -> None:
        assert self._large is not None
        if self.large_arrived < min(len(self._large), self._large_size):
            return
        large = self._large
        if self.large_arrived < self._large_size:
            self._drop_large()
            self._make_room(large, len(large))
            return
        # What the frame holds is of no use to anybody once it was handled.
        self._large = None
        try:
            # Its turn had come when it began to arrive.
            frame = memoryview(large)[: self._large_size]
            self._handle(frame, 0, self._large_size, key_of(frame))
        finally:
            self._door.rooms.give_back(large)
        if self._open_requests >= OPEN_REQUESTS_MAX:
            self._pause()

    def _make_room(self, data: Buffer, arrived: int) -> None:
        room = self._door.rooms.take(self._large_size, arrived)
        if room is None:
            self.close(TOO_MUCH)
            return
        room[: len(data)] = data
        self._large = room

    def _drop_large(self) -> None:
        if self._large is not None:
            self._door.rooms.give_back(self._large)
            self._large = None

    @property
    def room_bytes(self) -> int:
        """Of the room that a large frame takes while we wait for the rest of it."""
        return 0 if self._large is None or self._is_paused else len(self._large)

    # Answering.

    def answer(self, slot: Slot, parts: Sequence[Buffer]) -> None:
        """The answer of one request is known; it goes out when its turn comes."""
        slot.parts = parts
        slots = self._slots
        if self.is_closed:
            return
        if not slots or slots[0] is not slot:
            self._held_bytes += sum(map(len, parts))
            return
        ready: list[Buffer] = list(parts)
        slots.popleft()
        self._open_requests -= slot.count
        while slots and slots[0].parts is not None:
            slot = slots.popleft()
            self._open_requests -= slot.count
            held = slot.parts or ()
            self._held_bytes -= sum(map(len, held))
            ready += held
        if ready:
            self._gather(ready, are_more_open=bool(slots))
        if self._is_paused and self._may_read(OPEN_REQUESTS_MAX // 2):
            self._resume()

    def write(self, answer: bytes) -> None:
        """Answer at once what was handled while nothing else was open, and took no slot."""
        if self._unsent or self.transport is None:
            self._unsent.append(answer)
            self._flush()
        elif not self.is_closed:
            self._sent_bytes += len(answer)
            self.transport.write(answer)

    def _gather(self, parts: list[Buffer], *, are_more_open: bool) -> None:
        """Send them, and with them what waits. While more requests are open, their
        answers may be known in this turn of the loop, as those of one sync are: what
        is small waits for the turn's end, since every send costs more than an answer."""
        is_flush_due = bool(self._unsent)
        self._unsent += parts
        is_much = len(self._unsent) > TOGETHER_PARTS_MAX
        if is_much or not are_more_open or sum(map(len, parts)) > TOGETHER_BYTES_MAX:
            self._flush()
        elif not is_flush_due:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not unsent or self.transport is None or self.is_closed:
            return
        size = sum(map(len, unsent))
        self._sent_bytes += size
        if size <= TOGETHER_BYTES_MAX:
            # The transport has a shorter way for one piece.
            self.transport.write(b"".join(unsent))
        else:
            self.transport.writelines(unsent)

    def leave_order(self, slot: Slot, weight: int) -> None:
        """The answer to the request that came last is sent on its own, by `send`.
        It counts as so many open requests: 0 when it only waits for something."""
        self._slots.remove(slot)
        self._open_requests += weight - slot.count

    def send(self, data: Buffer, weight: int) -> None:
        if self.is_closed or self.transport is None:
            return
        self._open_requests -= weight
        self._gather([data], are_more_open=self._open_requests > 0)
        if self._is_paused and self._may_read(OPEN_REQUESTS_MAX // 2):
            self._resume()

    @property
    def unsent_bytes(self) -> int:
        """Answers that the peer has not taken, or that wait for their turn."""
        return self._held_bytes + sum(map(len, self._unsent)) + self.untaken_bytes

    def stall(self, now: float, limit_seconds: float) -> str:
        """Why the connection is to be cut, if it is: a request that got on by less than a
        kilobyte in that time, or answers of which as little was taken."""
        # A frame that came whole is progress, whatever its size.
        arrived = self.received_bytes + self._frames * PROGRESS_BYTES_MIN
        if self._body.is_stalled(now, limit_seconds, arrived, waits=self.is_mid_frame):
            return "body"
        untaken = self.untaken_bytes
        taken = self._sent_bytes - untaken
        if self.answer_watch.is_stalled(now, limit_seconds, taken, waits=untaken > 0):
            return "answer"
        return ""

    @property
    def untaken_bytes(self) -> int:
        """Answers that were sent and that the peer has not taken."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def is_congested(self) -> bool:
        """Whoever could answer with much should answer with little."""
        return self.unsent_bytes > WRITE_BYTES_HIGH

    @property
    def is_mid_frame(self) -> bool:
        """Paused, it is us who do not read."""
        return not self._is_paused and (self._large is not None or bool(self._kept))

    def pause_writing(self) -> None:
        self._is_writable = False
        self._pause()

    def resume_writing(self) -> None:
        self._is_writable = True
        if self._may_read(OPEN_REQUESTS_MAX):
            self._resume()

    def _may_read(self, open_max: int) -> bool:
        key = self._next_key
        if key is not None and self._slots and not may_start(key, self._under_way):
            return False
        is_held = self._is_in_line or self._is_stopping
        return self._is_writable and not is_held and self._open_requests < open_max

    def _pause(self) -> None:
        if not self._is_paused and not self.is_closed and self.transport is not None:
            self._is_paused = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and self.transport is not None and not self.is_closed:
            self._end_pause()
            # Frames that came before the pause are handled before any that come
            # now, but not from within the handler of whoever resumes.
            asyncio.get_running_loop().call_soon(self._go_on)

    def _begin_turn(self) -> None:
        self._is_in_line = False
        # What else it waits for by now resumes it itself.
        if self._is_paused and self._may_read(OPEN_REQUESTS_MAX):
            self._end_pause()
            self._go_on()

    def _end_pause(self) -> None:
        # With all that was so because a request waited behind others.
        self._is_paused = self.is_hurried = False
        self._next_key = None

    def _go_on(self) -> None:
        if self._is_paused or self.is_closed or self.transport is None:
            return
        began = perf_counter()
        self._handle_frames(memoryview(self._take_kept()), began)
        self.account.charge(began)
        # Handling them may have paused the connection again.
        if not self._is_paused and not self.is_closed:
            self.transport.resume_reading()

    # The end.

    def close(self, reason: str) -> None:
        """Cut the connection: its peer does not speak our language."""
        if not self.is_closed and self.transport is not None:
            self._door.complain("connection closed", self, reason)
            self.abort()

    def stop_reading(self) -> None:
        """Take no more requests; what is under way is still answered."""
        self._is_stopping = True
        self._pause()

    def finish(self) -> None:
        """Close once everything that was answered has gone out."""
        if self.transport is not None and not self.is_closed:
            self._flush()
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.is_closed = True
            self.transport.abort()

    @property
    def is_idle(self) -> bool:
        return not self._open_requests
