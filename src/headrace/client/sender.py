"""The sender of a producer: a thread that empties its buffer.

    buffer ── flight ──> node        five flights at most are under way
       ^                   │
       '───── answers ─────'         parcels end, room is free; what came back goes again

When there is no way to the node, flights begin again after a pause that doubles up to a
second. A parcel that finds no way for `timeout` fails.

The thread is needed for lingering and for trying again, also in a process that has its
directory open itself. Batches are made in it, without the lock of the buffer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from headrace.client.backend import Backend, BatchOutcomes
from headrace.client.buffer import Buffer, Callbacks, Flight, SenderOptions
from headrace.client.parcel import BatchParcel, MessageParcel, Parcel
from headrace.client.partition_writer import PartitionWriter
from headrace.client.routing import Route, look_up
from headrace.core.errors import Disconnected, HeadraceError, UnknownTopic, Unreachable
from headrace.core.values import PlacedBatch
from headrace.core.wording import counted

PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 1.0


class Sender:
    def __init__(self, backend: Backend, options: SenderOptions) -> None:
        self._backend = backend
        self._options = options
        self.buffer = Buffer(backend.clock, options, self._on_work)
        self._lock = self.buffer.lock
        self._work = threading.Condition(self._lock)
        self._is_asleep = False
        # When it wakes by itself; None: when it is woken.
        self._asleep_until: float | None = None
        self._pause = PAUSE_SECONDS
        self._pause_until = 0.0
        self._producer_id: int | None = None
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    # Topics.

    def route(self, topic: str) -> Route:
        """What is known of the topic; asks the node when nothing is, or when it has
        just refused what was believed. UnknownTopic when there is none."""
        route = self.known_route(topic)
        if route is None:
            info = look_up(self._backend, topic)
            now = time.monotonic()
            with self._lock:
                route = self.buffer.routes.get(topic)
                if route is None:
                    route = self.buffer.routes[topic] = Route(info, now)
                else:
                    route.learn(info, now)
        return route

    def known_route(self, topic: str) -> Route | None:
        route = self.buffer.routes.get(topic) if isinstance(topic, str) else None
        return None if route is None or route.is_doubtful else route

    def _refresh_routes(self) -> None:
        """Topics grow, so what is known of them is looked up again now and then."""
        now = time.monotonic()
        for route in tuple(self.buffer.routes.values()):
            if route.is_stale_at > now:
                continue
            route.is_stale_at = now + PAUSE_SECONDS_MAX
            try:
                info = self._backend.topic(route.topic)
            except UnknownTopic:
                route.is_doubtful = True
            except HeadraceError:
                # The next look is soon enough.
                continue
            else:
                with self._lock:
                    route.learn(info, now)

    # The end.

    def flush(self, seconds: float | None = None) -> None:
        """Until everything that was taken is over; raises the first failure that
        nobody has heard of."""
        end = None if seconds is None else time.monotonic() + seconds
        for parcel in self.buffer.begin_flush():
            if not parcel.wait(None if end is None else end - time.monotonic()):
                raise TimeoutError(
                    f"not everything was published within {counted(seconds or 0.0, 'second')}"
                )
        failure = self.buffer.failure()
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Take nothing more, and flush. Fine when closed."""
        if not self.buffer.close():
            return
        try:
            self.flush()
        finally:
            with self._lock:
                self._is_stopped = True
                self._work.notify()
            if self._thread is not None:
                self._thread.join()

    # The thread.

    def _on_work(self, moment: float) -> None:
        """Called by the buffer, under the lock."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headrace-producer", daemon=True)
            self._thread.start()
        if self._is_asleep and (self._asleep_until is None or moment < self._asleep_until):
            self._is_asleep = False
            self._work.notify()

    def _run(self) -> None:
        while True:
            callbacks: Callbacks = []
            flight: Flight | None = None
            with self._lock:
                now = time.monotonic()
                if self.buffer.trouble is not None:
                    callbacks = self.buffer.expire(now)
                if now >= self._pause_until:
                    flight = self.buffer.next_flight(now)
                if flight is None and not callbacks:
                    if self._is_stopped:
                        return
                    self._sleep(now)
                    continue
            for callback in callbacks:
                callback()
            if flight is not None:
                self._send(flight)
            self._refresh_routes()

    def _sleep(self, now: float) -> None:
        until = self._pause_until if now < self._pause_until else self.buffer.due()
        self._is_asleep, self._asleep_until = True, until
        self._work.wait(None if until is None else max(0.0, until - now))
        self._is_asleep = False

    # One flight.

    def _send(self, flight: Flight) -> None:
        try:
            if isinstance(flight.sent[0][1], MessageParcel):
                self._send_messages(*flight.sent[0])
                self._land(flight, [None])
                return
            batches = self._encode(flight)
            self._backend.begin_batches(
                batches, lambda outcomes: self._on_answered(flight, outcomes)
            )
        except HeadraceError as error:
            self._land(flight, [error] * len(flight.sent))
            return
        except Exception as error:
            # Whoever waits for these must not wait for ever.
            failure = HeadraceError(f"the producer failed: {error!r}")
            failure.__cause__ = error
            self._land(flight, [failure] * len(flight.sent))
            return
        if not self._options.is_answered:
            self._land(flight, [None] * len(flight.sent), is_answered=False)

    def _encode(self, flight: Flight) -> list[PlacedBatch]:
        if self._options.is_answered and any(w.producer_id is None for w, _ in flight.sent):
            self._identify(flight)
        batches = []
        for writer, parcel in flight.sent:
            assert isinstance(parcel, BatchParcel)
            batch = parcel.encode(self._options.codec)
            batches.append(PlacedBatch(writer.topic, writer.partition, batch))
        return batches

    def _identify(self, flight: Flight) -> None:
        for writer, parcel in flight.sent:
            if writer.producer_id is None:
                if self._producer_id is None or parcel.stamp is not None:
                    self._producer_id = self._backend.new_producer_id()
                with self._lock:
                    writer.identify(self._producer_id, parcel)

    def _send_messages(self, writer: PartitionWriter, parcel: Parcel) -> None:
        assert isinstance(parcel, MessageParcel)
        parcel.places = self._backend.publish(writer.topic, parcel.messages)

    def _on_answered(self, flight: Flight, outcomes: BatchOutcomes) -> None:
        """Called by whatever thread has the answer."""
        if not self._options.is_answered:
            with self._lock:
                self.buffer.on_answered()
            return
        if isinstance(outcomes, HeadraceError):
            self._land(flight, [outcomes] * len(flight.sent))
            return
        errors: list[HeadraceError | None] = []
        for (_, parcel), outcome in zip(flight.sent, outcomes, strict=True):
            if isinstance(outcome, HeadraceError):
                errors.append(outcome)
            else:
                parcel.first_offset = outcome.offset
                errors.append(None)
        self._land(flight, errors)

    def _land(
        self, flight: Flight, errors: Sequence[HeadraceError | None], *, is_answered: bool = True
    ) -> None:
        with self._lock:
            self._note_trouble(errors)
            callbacks = self.buffer.land(flight, errors, is_answered=is_answered)
        for callback in callbacks:
            callback()

    def _note_trouble(self, errors: Sequence[HeadraceError | None]) -> None:
        lost = next((e for e in errors if isinstance(e, Disconnected | Unreachable)), None)
        self.buffer.trouble = lost
        if lost is None:
            self._pause = PAUSE_SECONDS
            return
        self._pause_until = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)
