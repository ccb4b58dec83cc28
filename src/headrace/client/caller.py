"""Calling a node elsewhere: links, and what becomes of calls when one breaks.

    call -- link -- node         broken: a new link says again what we hold
              |
    listener -- watch            answered when looking again may be worth it

A new link says again which consumers and members there are. In time (the node waits for
a few seconds) a consumer keeps its leases, and receipts of before are good; a stream goes
on from its cursors. Calls that can do no harm are sent again, for a while; of others the
caller is told that it is not known whether they took effect.

Whoever holds leases comes back by itself, as soon as the link ends: a job that runs for
long makes no call in time. A thread does that, which is there only meanwhile. All others
come back with their next call.

A link that is silent for too long while somebody waits for an answer is given up, and is
then a broken one.

    nodes    a -- b -- c        a link leads to the first that answers, from the one before
             away --^           on, round and round: those of one cluster, whichever it is

Rejected: links to all of them at once. What a consumer holds belongs to one connection.

Waiting is a request too: the node answers a `watch` when something may have come. It
is asked again by whoever looks next, before it looks.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from headrace.client.link import SILENCE_SECONDS, Answered, Link, Pending
from headrace.client.node_clock import NodeClock
from headrace.client.probing import explain
from headrace.client.socket_link import SocketLink
from headrace.core.errors import Closed, Disconnected, HeadraceError, Unreachable
from headrace.core.node_settings import Address
from headrace.core.ports import Clock
from headrace.core.settings import OffsetReset
from headrace.wire.remote.codec import decode_answer, encode_request
from headrace.wire.remote.methods import METHODS, Hello, News

Wake = Callable[[], None]
Topics = tuple[str, ...]

RETRY_SECONDS = 10.0
BACKOFF_SECONDS = 0.05
BACKOFF_SECONDS_MAX = 1.0
HELLO_SECONDS = 10.0

logger = logging.getLogger("headrace.client")


class Caller:
    """Connected when it is made; Unreachable when there is no node within `wait_seconds`.
    None, there and for `retry_seconds`, is for as long as it takes."""

    def __init__(
        self,
        address: Address,
        *others: Address,
        auto_create: bool = True,
        retry_seconds: float | None = RETRY_SECONDS,
        wait_seconds: float | None = 0.0,
        silence_seconds: float = SILENCE_SECONDS,
        reconnects: bool = True,
        clock: Clock | None = None,
        link: type[Link] = SocketLink,
        closed: threading.Event | None = None,
    ) -> None:
        """`others` are asked in turn while the node at `address` is away. `closed`, set by
        another thread, ends the wait for a node that is not there."""
        # The one that the link leads to, or that is asked next, comes first.
        self._addresses = deque((address, *others))
        self._cluster_id = ""
        self._link_kind = link
        self._node_clock = NodeClock()
        self._clock: Clock = self._node_clock if clock is None else clock
        self._auto_create = auto_create
        self._retry_seconds = retry_seconds
        self._silence_seconds = silence_seconds
        self._hello_seconds = min(HELLO_SECONDS, silence_seconds)
        self._client_id = f"headrace-{platform.node() or 'unknown'}-{os.getpid()}"
        self._closed = threading.Event() if closed is None else closed
        # Held while a new link is made.
        self._link_lock = threading.Lock()
        self._links_made = 0
        # What a new link has to say again. Guarded by `_lock`, as are the watches, and the
        # links and the thread below.
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._linked_at = 0.0
        # Connected, and has yet to say what we hold.
        self._new_link: Link | None = None
        self._coming_back: threading.Thread | None = None
        self._return_pauses = self._pauses(None)
        # Called on each link but the first, when it has said what we hold.
        self.on_returned: Wake | None = None
        self._queues: dict[tuple[str, str], Topics] = {}
        self._members: dict[tuple[str, str], tuple[Topics, OffsetReset]] = {}
        self._listeners: dict[Topics, list[Wake]] = {}
        # Topics that somebody listens to and that the node is not watching for us.
        self._unwatched: set[Topics] = set()
        # Loops and waits without end outlast a node that is away.
        self.reconnects = reconnects
        # Said that the node is away, and not yet that it is back.
        self._is_away = False
        self.hello = self._connect_first(wait_seconds)

    @property
    def address(self) -> Address:
        """Of the node that the link leads to, or led to last."""
        return self._addresses[0]

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def is_linked(self) -> bool:
        return self._link is not None and self._link.is_alive

    def close(self) -> None:
        if not self._closed.is_set():
            self._leave_all()
        self.give_up()
        coming_back = self._coming_back
        if coming_back is not None and coming_back is not threading.current_thread():
            coming_back.join()
        self._wake_all()

    def give_up(self) -> None:
        """Wait for the node no more: calls that are under way, and all later ones, raise
        Closed. What is held is not given back; the node ends it after its grace."""
        with self._lock:
            self._closed.set()
            links = (self._link, self._new_link)
        for link in links:
            if link is not None:
                link.close()

    # Calling.

    def _call(self, name: str, *arguments: Any) -> Any:
        request = encode_request(name, arguments)
        is_repeatable = METHODS[name].is_repeatable
        retries = self._retries()
        while True:
            pending = self._send(request, retries)
            try:
                return decode_answer(name, pending.wait())
            except Disconnected:
                if not is_repeatable or self._closed.is_set():
                    raise
                if not next(retries):
                    raise

    def _call_in_parts(
        self,
        name: str,
        parts: Iterable[tuple[Any, ...]],
        *,
        within_seconds: float | None = None,
    ) -> list[Any]:
        """An answer for each part. The next is sent before the answer to the one
        before; what fails first is raised when all of them are over. With
        `within_seconds` it is tried once, and that is how long an answer may take."""
        retries = self._retries() if within_seconds is None else repeat(False)
        wait_seconds = -1 if within_seconds is None else within_seconds
        sent: list[Pending] = []
        answers: list[Any] = []
        first: HeadraceError | None = None
        for part in parts:
            try:
                request = encode_request(name, part)
            except HeadraceError as error:
                # As if the node had refused it: what went before is waited for.
                first = error
                break
            sent.append(self._send(request, retries))
        for pending in sent:
            try:
                answers.append(decode_answer(name, pending.wait(wait_seconds)))
            except HeadraceError as error:
                first = first or error
        if first is not None:
            raise first
        return answers

    def _begin(self, name: str, arguments: tuple[Any, ...], on_answered: Answered) -> None:
        """Send it and go on. Unreachable, Disconnected: it was not sent, and the caller
        decides whether to try again."""
        request = encode_request(name, arguments)
        if self._closed.is_set():
            raise Closed("this handle is closed; connect again")
        link = self._live_link()
        if self._node_clock.is_old:
            self._ask_time(link)
        link.send(request, on_answered)

    def _ask_time(self, link: Link) -> None:
        """Producers stamp messages by the node's clock. They do not wait for the answer."""
        begun = self._node_clock.begin()

        def on_answered(pending: Pending) -> None:
            if pending.frame is not None:
                with contextlib.suppress(HeadraceError):
                    hello: Hello = decode_answer("hello", pending.frame)
                    self._node_clock.on_answer(hello.now_ms, begun)

        link.send(encode_request("hello", (self._auto_create,)), on_answered)

    def _send(
        self, request: bytes, retries: Iterator[bool], on_answered: Answered | None = None
    ) -> Pending:
        """On the link that there is, or on a new one: what was not sent as a whole
        can be sent again."""
        while True:
            try:
                link = self._live_link()
                self._send_watches(link)
                return link.send(request, on_answered)
            except (Unreachable, Disconnected):
                if self._closed.is_set():
                    raise Closed("this handle is closed; connect again") from None
                if not next(retries):
                    raise

    def _retries(self) -> Iterator[bool]:
        return self._pauses(self._retry_seconds)

    def _pauses(self, seconds: float | None) -> Iterator[bool]:
        """Each time after a pause; False when it has been tried for long enough."""
        end: float | None = None
        pause = BACKOFF_SECONDS
        while True:
            now = time.monotonic()
            if end is None:
                end = math.inf if seconds is None else now + seconds
            if now >= end:
                yield False
                continue
            self._closed.wait(min(pause, end - now))
            pause = min(2 * pause, BACKOFF_SECONDS_MAX)
            yield True

    def _connect_first(self, wait_seconds: float | None) -> Hello:
        pauses = self._pauses(wait_seconds)
        while True:
            try:
                return self._connect()
            except Unreachable as error:
                if wait_seconds == 0:
                    raise
                self.on_away(error)
                if not next(pauses):
                    raise
                if self._closed.is_set():
                    raise Closed(f"the wait for {self.address} was given up") from error

    def on_away(self, error: HeadraceError) -> None:
        """The node is away and that is put up with: said once, until it is back."""
        if not self._is_away:
            self._is_away = True
            named = " or ".join(map(str, self._addresses))
            logger.warning("waiting for the node at %s to come back: %s", named, error)

    def _live_link(self) -> Link:
        link = self._link
        if link is None or not link.is_alive:
            with self._link_lock:
                if self._closed.is_set():
                    raise Closed("this handle is closed; connect again")
                if self._link is None or not self._link.is_alive:
                    self._connect()
                link = self._link
        assert link is not None
        return link

    def _connect(self) -> Hello:
        """A link to the first node that answers, each of them asked once."""
        tried = []
        while True:
            try:
                return self._connect_to(self.address)
            except Unreachable as error:
                tried.append(error)
                self._addresses.rotate(-1)
                if len(tried) == len(self._addresses):
                    break
        if len(tried) == 1:
            raise tried[0]
        named = ", ".join(map(str, self._addresses))
        why = "; ".join(map(str, tried))
        raise Unreachable(f"no node answers at any of {named}: {why}") from tried[-1]

    def _connect_to(self, address: Address) -> Hello:
        """Make a link, and say what we are and hold."""
        hello_request = encode_request("hello", (self._auto_create,))
        try:
            link = self._link_kind(
                address,
                self._client_id,
                silence_seconds=self._silence_seconds,
                ping=hello_request,
            )
        except OSError as error:
            raise Unreachable(
                f"no node answers at {address} ({error.strerror or error}); start one with: "
                f"headrace serve --{self._link_kind.door} {address}"
            ) from error
        with self._lock:
            # From here on a close of ours ends it, and whatever waits below.
            self._new_link = link
            is_closed = self._closed.is_set()
        try:
            if is_closed:
                raise Closed("this handle is closed; connect again")
            begun = self._node_clock.begin()
            pending = link.send(hello_request)
            hello: Hello = decode_answer("hello", pending.wait(self._hello_seconds))
            self._check_cluster(address, hello)
            self._node_clock.on_answer(hello.now_ms, begun)
            self._say_again(link)
        except Disconnected as error:
            link.close()
            raise Unreachable(explain(address, error, self._link_kind.door)) from error
        except BaseException:
            link.close()
            raise
        if self._is_away:
            self._is_away = False
            logger.warning("the node at %s is there", address)
        comes_back = weakref.WeakMethod(self._on_link_ended)

        def on_ended() -> None:
            # A handle that was dropped stays away.
            if (method := comes_back()) is not None:
                method()

        link.when_ended(on_ended)
        if self.on_returned is not None:
            self.on_returned()
        return hello

    def _check_cluster(self, address: Address, hello: Hello) -> None:
        """Nodes of different clusters have different messages. One address alone may lead to
        a node that was made anew."""
        if len(self._addresses) == 1:
            return
        if self._cluster_id not in ("", hello.cluster_id):
            raise Unreachable(
                f"the node at {address} is of cluster {hello.cluster_id} and not of "
                f"{self._cluster_id}; name nodes of one cluster"
            )
        self._cluster_id = hello.cluster_id

    def _on_link_ended(self) -> None:
        with self._lock:
            if self._closed.is_set() or not self._queues or self._coming_back is not None:
                return
            self._coming_back = threading.Thread(
                target=self._come_back, name=f"headrace-return-{self.address}", daemon=True
            )
            self._coming_back.start()

    def _come_back(self) -> None:
        """Until there is a link, or nothing that one is needed for."""
        if time.monotonic() - self._linked_at > BACKOFF_SECONDS_MAX:
            self._return_pauses = self._pauses(None)
        else:
            # Links that end at once are not made again and again at once.
            next(self._return_pauses)
        while True:
            with self._lock:
                # Seen together, so that a link that ends now finds either us or nobody.
                if self.is_linked or self._closed.is_set() or not self._queues:
                    self._coming_back = None
                    return
            try:
                self._live_link()
            except HeadraceError as error:
                if not self._closed.is_set():
                    self.on_away(error)
                next(self._return_pauses)

    def _say_again(self, link: Link) -> None:
        """And from then on it is the link."""
        with self._lock:
            queues = tuple(self._queues)
            requests = [
                encode_request("open_queue", (group, topics, consumer, None))
                for (group, consumer), topics in self._queues.items()
            ]
            requests += [
                encode_request("join_stream", (group, topics, member, reset))
                for (group, member), (topics, reset) in self._members.items()
            ]
            self._unwatched = set(self._listeners)
        # A topic or group that is gone is met by whoever uses it next.
        for pending in [link.send(request) for request in requests]:
            pending.wait()
        with self._lock:
            # Who left meanwhile had no link to say it on.
            left = [who for who in queues if who not in self._queues]
            self._link, self._new_link = link, None
            self._links_made += 1
            self._linked_at = time.monotonic()
        for who in left:
            link.send(encode_request("leave", who))

    def _leave_all(self) -> None:
        """Give back what nobody has given back, as a node would do it by itself, but
        in words: then what was leased does not count as delivered."""
        link = self._link
        with self._lock:
            requests = [encode_request("leave", who) for who in self._queues]
            requests += [encode_request("leave_stream", who) for who in self._members]
        if link is None or not link.is_alive:
            return
        with contextlib.suppress(HeadraceError):
            for pending in [link.send(request) for request in requests]:
                pending.wait(self._hello_seconds)

    # Waiting.

    def add_listener(self, wake: Wake, topics: Sequence[str] = ()) -> None:
        wanted = tuple(sorted(topics))
        with self._lock:
            listeners = self._listeners.setdefault(wanted, [])
            listeners.append(wake)
            if len(listeners) == 1:
                self._unwatched.add(wanted)

    def remove_listener(self, wake: Wake) -> None:
        with self._lock:
            for topics, listeners in list(self._listeners.items()):
                if wake in listeners:
                    listeners.remove(wake)
                    if not listeners:
                        del self._listeners[topics]
                        self._unwatched.discard(topics)
                    return

    def _send_watches(self, link: Link) -> None:
        """In the thread of whoever looks next, and before it looks: what comes
        between the two is not missed."""
        if not self._unwatched:
            return
        with self._lock:
            wanted, self._unwatched = self._unwatched, set()
        for topics in wanted:
            request = encode_request("watch", (topics,))
            link.send(request, partial(self._on_news, topics))

    def _on_news(self, topics: Topics, pending: Pending) -> None:
        """Called by the link's reader."""
        if pending.frame is not None:
            try:
                news: News = decode_answer("watch", pending.frame)
                self._node_clock.on_news(news.now_ms)
            except HeadraceError:
                # Too many watches, or an older node: the next look is a minute away.
                return
        with self._lock:
            wakes = tuple(self._listeners.get(topics, ()))
            if wakes:
                self._unwatched.add(topics)
        for wake in wakes:
            wake()

    def _wake_all(self) -> None:
        with self._lock:
            wakes = [wake for listeners in self._listeners.values() for wake in listeners]
        for wake in wakes:
            wake()
