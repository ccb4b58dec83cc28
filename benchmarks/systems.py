"""The queues that are measured, behind one face.

    headrace          durability "synced", which is its default
    persist-queue     SQLiteAckQueue; WAL, synchronous FULL
    litequeue         WAL; synchronous raised from its NORMAL to FULL
    huey              SqliteStorage with fsync=True; WAL, synchronous FULL
    sqlite by hand    one table, WAL, synchronous FULL, one transaction a batch

Everybody's answer means that the message is on disk. Peers are used through their
public API; where it can do many things in one transaction, a batch does. huey has
no lease: taking a message deletes it, so its work is half of what others do.

SQLite by hand is no peer: it is what somebody writes who needs no more than a
table, without delays, retries, dead letters or more than one group.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import headrace
from benchmarks.samples import OURS


class System(Protocol):
    name: str

    def publish(self, value: bytes) -> None: ...

    def publish_many(self, values: Sequence[bytes]) -> None: ...

    def work(self, count: int) -> int:
        """Take and finish up to `count` messages; how many there were."""

    def close(self) -> None: ...


class HeadraceSystem:
    name = OURS

    def __init__(self, folder: Path) -> None:
        self._handle = headrace.open(folder)
        self._handle.create_topic("bench")
        self._queue = self._handle.queue("bench")

    def publish(self, value: bytes) -> None:
        self._handle.publish("bench", value)

    def publish_many(self, values: Sequence[bytes]) -> None:
        self._handle.publish_many("bench", values)

    def work(self, count: int) -> int:
        messages = self._queue.lease(count)
        if messages:
            self._queue.ack(messages)
        return len(messages)

    def close(self) -> None:
        self._handle.close()


class PersistQueueSystem:
    name = "persist-queue"

    def __init__(self, folder: Path) -> None:
        import persistqueue

        self._empty = persistqueue.Empty
        self._queue: Any = persistqueue.SQLiteAckQueue(str(folder), multithreading=True)

    def publish(self, value: bytes) -> None:
        self._queue.put(value)

    def publish_many(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._queue.put(value)

    def work(self, count: int) -> int:
        for done in range(count):
            try:
                item = self._queue.get(block=False, raw=True)
            except self._empty:
                return done
            self._queue.ack(id=item["pqid"])
        return count

    def close(self) -> None:
        self._queue.close()


class LiteQueueSystem:
    name = "litequeue"

    def __init__(self, folder: Path) -> None:
        from litequeue import LiteQueue

        self._queue: Any = LiteQueue(folder / "queue.db")
        self._queue.conn.execute("PRAGMA synchronous = FULL")

    def publish(self, value: bytes) -> None:
        self._queue.put(value.decode())

    def publish_many(self, values: Sequence[bytes]) -> None:
        with self._queue.transaction(mode="IMMEDIATE"):
            for value in values:
                self._queue.put(value.decode())

    def work(self, count: int) -> int:
        # A pop is a transaction of its own and cannot be part of another.
        taken: list[str] = []
        while len(taken) < count and (message := self._queue.pop()) is not None:
            taken.append(message.message_id)
        with self._queue.transaction(mode="IMMEDIATE"):
            for message_id in taken:
                self._queue.done(message_id)
        return len(taken)

    def close(self) -> None:
        self._queue.close()


class HueySystem:
    name = "huey"

    def __init__(self, folder: Path) -> None:
        from huey.storage import SqliteStorage

        self._storage: Any = SqliteStorage(filename=str(folder / "huey.db"), fsync=True)

    def publish(self, value: bytes) -> None:
        self._storage.enqueue(value)

    def publish_many(self, values: Sequence[bytes]) -> None:
        for value in values:
            self._storage.enqueue(value)

    def work(self, count: int) -> int:
        for done in range(count):
            if self._storage.dequeue() is None:
                return done
        return count

    def close(self) -> None:
        self._storage.close()


class SqliteSystem:
    name = "sqlite by hand"

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            folder / "queue.db", isolation_level=None, check_same_thread=False
        )
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE message (id INTEGER PRIMARY KEY, value BLOB, leased_until REAL)",
        ):
            self._connection.execute(statement)

    def publish(self, value: bytes) -> None:
        with self._lock:
            self._connection.execute("INSERT INTO message (value) VALUES (?)", (value,))

    def publish_many(self, values: Sequence[bytes]) -> None:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "INSERT INTO message (value) VALUES (?)", [(value,) for value in values]
            )
            self._connection.execute("COMMIT")

    def work(self, count: int) -> int:
        with self._lock:
            taken = self._connection.execute(
                "UPDATE message SET leased_until = unixepoch() + 30 WHERE id IN (SELECT id FROM "
                "message WHERE coalesce(leased_until, 0) < unixepoch() ORDER BY id LIMIT ?) "
                "RETURNING id, value",
                (count,),
            ).fetchall()
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "DELETE FROM message WHERE id = ?", [(number,) for number, _ in taken]
            )
            self._connection.execute("COMMIT")
        return len(taken)

    def close(self) -> None:
        self._connection.close()


PEERS = (PersistQueueSystem.name, LiteQueueSystem.name, HueySystem.name)

SYSTEMS: tuple[Callable[[Path], System], ...] = (
    HeadraceSystem,
    PersistQueueSystem,
    LiteQueueSystem,
    HueySystem,
    SqliteSystem,
)
