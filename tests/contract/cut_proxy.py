"""A way to a node that a test can cut, and on which it can hold answers back.

client ── requests ──> node     always
client <── answers ─── node     unless they are held back: then nobody gets them

A connection that is swallowed stays open, takes everything and passes nothing on.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class CutProxy:
    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._answers = threading.Event()
        self._answers.set()
        self._swallowed: set[socket.socket] = set()
        # Bytes that the node has answered, whoever got them.
        self._answered = threading.Condition()
        self._held_bytes = 0
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def hold_answers(self) -> None:
        """From now on answers are thrown away."""
        self._held_bytes = 0
        self._answers.clear()

    def swallow(self) -> None:
        """The connections that there are pass nothing on any more; new ones work."""
        self._swallowed.update(each for pair in self._pairs for each in pair)

    def wait_for_held(self, seconds: float) -> bool:
        """Whether the node has answered something that nobody got."""
        with self._answered:
            return self._answered.wait_for(lambda: self._held_bytes > 0, seconds)

    def cut(self) -> None:
        """Break every connection; new ones work, and answers come again."""
        pairs, self._pairs = self._pairs, []
        for each in (each for pair in pairs for each in pair):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._answers.set()

    def close(self) -> None:
        # A close alone does not wake who accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                node = socket.create_connection(self._target)
            except OSError:
                return
            self._pairs.append((client, node))
            self._start(self._pass_on, client, node, False)
            self._start(self._pass_on, node, client, True)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if source in self._swallowed:
                    continue
                if is_answer and not self._answers.is_set():
                    with self._answered:
                        self._held_bytes += len(data)
                        self._answered.notify_all()
                else:
                    target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()
