"""How a call runs: what the calls need from whoever serves them.

    calls      publish, lease, ack, ...      written once, in this package
      |
    Served     time, a commit, the wait for the disk, and who asks
      |
      |-- node/served.py          in this process: a lock, and a wait that blocks
      '-- server/loop_calls.py    on an event loop: collected now, awaited later

A call changes what it may and puts into a commit what has to be on disk before it
is answered. It says what others may wait for. It never waits itself: whether the
disk is waited for in a thread or on a loop is not its business.

Rejected: calls as coroutines, run to their end by the embedded node. They would
cost every publish some microseconds, and be read with a grain of salt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from headrace.core.errors import SyncFailed, UnknownGroup
from headrace.core.name_lists import distinct_topics
from headrace.core.ports import Clock
from headrace.core.request_context import BY_NODE, RequestContext
from headrace.core.values import GroupMember
from headrace.engine.broker import Broker, Deleted
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition

T = TypeVar("T")


class Served(ABC):
    clock: Clock
    # Of the call that is being carried out.
    context: RequestContext = BY_NODE
    _broker: Broker
    # Whether a topic is made when it is first published to or queued.
    _auto_create: bool

    @abstractmethod
    def _reading(self) -> AbstractContextManager[int]:
        """The broker to ourselves, and the time."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[tuple[int, Commit]]:
        """The same with a commit: the call is answered when it is done."""

    @abstractmethod
    def _write(self, work: Callable[[int, Commit], T], *, waits: bool = True) -> T:
        """The same for calls that many make at once. `waits`: whether the commit
        has to wait for the disk."""

    @abstractmethod
    def _looking(self, find: Callable[[], Sequence[Partition]]) -> AbstractContextManager[int]:
        """For answers that depend on the time: whatever has come due in these
        partitions happens first, and is on disk, where we may write."""

    @abstractmethod
    def _catch_up(self) -> None:
        """What was begun before is done after this; the call is to look again."""

    @abstractmethod
    def _remove(self, deleted: Deleted, commit: Commit) -> None:
        """Close and delete the files of topics that are gone, when the commit is
        done and no sync is at work on them."""

    def _maintain(self, now_ms: int) -> None:
        """Called now and then by calls that write much."""
        return

    def _on_sync_failed(self, error: SyncFailed) -> None:
        """The disk failed under a part of a call, and the rest of the call goes on."""
        return

    # Who reads by another protocol than ours: in this process alone nobody does.

    def _groups_at_doors(self) -> set[str]:
        """Stream groups that have such members."""
        return set()

    def _members_at_doors(self, group: str) -> list[GroupMember]:
        return []

    # Waking whoever waits, once the call is done.

    @abstractmethod
    def _notify_published(self) -> None:
        """There are new messages."""

    @abstractmethod
    def _notify_freed(self, group: str) -> None:
        """A queue group may have something ready that it had not before."""

    @abstractmethod
    def _notify_changed(self) -> None:
        """Topics or the members of groups are not what they were."""

    # Names.

    def _streams(self) -> set[str]:
        """Groups that have positions, or members at the doors."""
        return self._broker.cursors.groups() | self._groups_at_doors()

    def _check_group(self, name: str) -> None:
        """UnknownGroup when there is neither a queue nor a stream of this name."""
        if name not in self._broker.topics.catalog.groups and name not in self._streams():
            raise UnknownGroup(f"there is no group {name!r}")

    def _topic_to_write(self, name: str, now_ms: int) -> Topic:
        return self._broker.topics.to_publish_to(name, now_ms, may_create=self._auto_create)

    def _is_synced(self, topic: str) -> bool:
        """Whether publishing there waits for the disk. Asked without the lock: a
        topic that is altered at this moment may be taken for what it was."""
        found = self._broker.topics.catalog.topics.get(topic) if isinstance(topic, str) else None
        return found is None or found.settings.durability == "synced"

    def _partitions_named(self, topic: str) -> list[Partition]:
        return self._broker.topics.partitions(self._broker.topics.named(topic))

    def _topics_named(self, names: Sequence[str]) -> list[Topic]:
        return [self._broker.topics.named(name) for name in distinct_topics(names)]
