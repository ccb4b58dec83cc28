"""Topics: the catalog together with the partitions that are open here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.core import limits
from headrace.core.errors import (
    HeadraceError,
    InvalidArgument,
    InvalidName,
    LimitExceeded,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from headrace.core.ports import Disk, Entropy
from headrace.core.settings import CheckedRecords, TopicSettings
from headrace.core.steps import Steps, run_to_end
from headrace.core.values import DEAD_LETTER_SUFFIX, check_name
from headrace.core.wording import counted
from headrace.engine.catalog import (
    RESERVED_TOPICS,
    Catalog,
    CatalogEvent,
    Topic,
    TopicAltered,
    TopicDeleted,
    created,
)
from headrace.engine.creation_rate import CreationRate
from headrace.engine.metadata import Metadata
from headrace.engine.partition import Partition
from headrace.engine.records import KeptBlocks
from headrace.engine.refused_topics import RefusedTopics
from headrace.log import make_folder

PARTITIONS_DEFAULT = 3


class Topics:
    def __init__(
        self,
        disk: Disk,
        entropy: Entropy,
        metadata: Metadata,
        *,
        read_only: bool,
        on_full: Callable[[], bool],
    ) -> None:
        self._on_full = on_full
        self._disk = disk
        self._entropy = entropy
        self.metadata = metadata
        self._read_only = read_only
        self._partitions: dict[bytes, list[Partition]] = {}
        # Those that somebody has to see to, in the order in which that showed.
        self._troubled: dict[Partition, None] = {}
        self._kept_blocks = KeptBlocks()
        # Of topics that are made because a client named them.
        self.auto_creation = CreationRate(None)
        self._refused = RefusedTopics()
        # Of topics that are being made.
        self._names_taken: set[str] = set()
        # With how many partitions a topic is made when it is first published to; 0: none is.
        self.auto_create_partitions = 0
        # What of clients' batches is gone over before they are appended.
        self.check_records: CheckedRecords = "beginning"
        # Topics to which partitions are being added.
        self._growing: set[bytes] = set()

    @property
    def catalog(self) -> Catalog:
        return self.metadata.catalog

    def change(self, events: list[CatalogEvent], now_ms: int) -> None:
        self.metadata.append(events, now_ms)

    # Finding.

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._partitions.values():
            yield from partitions

    def named(self, name: str) -> Topic:
        topic = self.catalog.topics.get(name) if isinstance(name, str) else None
        if topic is None:
            check_name("topic", name)
            raise UnknownTopic(
                f"there is no topic {name!r}; create it with create_topic({name!r}) "
                f"or `headrace topic create {name}`"
            )
        return topic

    def partitions(self, topic: Topic) -> list[Partition]:
        return self._partitions[topic.id]

    def partition(self, topic: Topic, index: int) -> Partition:
        if isinstance(index, bool) or not isinstance(index, int):
            raise InvalidArgument(f"a partition is a number, not {index!r}")
        if not 0 <= index < topic.partitions:
            raise UnknownPartition(
                f"topic {topic.name!r} has partitions 0 to {topic.partitions - 1}, not {index}"
            )
        return self._partitions[topic.id][index]

    def find(self, topic_id: bytes, index: int) -> Partition | None:
        partitions = self._partitions.get(topic_id, [])
        return partitions[index] if 0 <= index < len(partitions) else None

    def troubled(self) -> list[Partition]:
        """Partitions that are stopped, or have batches that cannot be read."""
        for gone in [each for each in self._troubled if not self._is_there(each)]:
            del self._troubled[gone]
        return list(self._troubled)

    def _is_there(self, partition: Partition) -> bool:
        return self.find(partition.topic.id, partition.index) is partition

    # Opening.

    def open_all(self, now_ms: int) -> None:
        for topic in self.catalog.topics.values():
            self._open(topic, now_ms)
        if not self._read_only:
            self._remove_orphans()

    def _open(self, topic: Topic, now_ms: int) -> list[Partition]:
        """Open those of the topic's partitions that are not open yet."""
        opened = self._partitions.setdefault(topic.id, [])
        added = []
        for index in range(len(opened), topic.partitions):
            partition = self._open_partition(topic, index, now_ms)
            if self._read_only:
                # Otherwise whoever takes the lead does.
                partition.load(self.catalog.groups_by_id, now_ms)
            added.append(partition)
        opened += added
        return added

    def _open_partition(self, topic: Topic, index: int, now_ms: int) -> Partition:
        partition = Partition(
            self._disk, topic, index, now_ms, read_only=self._read_only, on_full=self._on_full
        )
        partition.on_trouble = partial(self._troubled.setdefault, partition)
        if partition.is_stopped:
            partition.on_trouble()
        partition.records.share(self._kept_blocks)
        return partition

    def _remove_orphans(self) -> None:
        """Folders of topics whose deletion was cut short. Only what is known to
        be deleted goes: data must not depend on nothing else being missing."""
        there = set(self._disk.list("topics"))
        for topic_id in self.metadata.deleted:
            if topic_id.hex() in there:
                self._disk.remove_tree(f"topics/{topic_id.hex()}")

    # Changing.

    def to_publish_to(self, name: str, now_ms: int, *, may_create: bool = True) -> Topic:
        """The topic of this name, made where it is missing and both the node and the
        caller want that: whoever publishes comes through here, by any door. Reading
        and leasing never make a topic."""
        try:
            return self.named(name)
        except UnknownTopic:
            # Dead letters are published by the node, and to Kafka's clients by `metadata`.
            is_ours = self.catalog.source_of(name) is not None
            if not may_create or not self.auto_create_partitions or is_ours:
                raise
        reason = self._refused.reason(name, now_ms)
        if reason is not None:
            raise UnknownTopic(
                f"there is no topic {name!r}, and publishing does not make it: to create it was "
                f"refused ({reason}); create it as it can be"
            )
        return self._create_at_a_rate(name, self.auto_create_partitions, now_ms)

    def note_refused(self, name: str, error: HeadraceError, now_ms: int) -> None:
        """Somebody wanted to make this topic and was told why not: it does not come into
        being by its name alone, in another form than was asked for."""
        is_about_name = isinstance(error, TopicExists | InvalidName)
        if not is_about_name and name not in self.catalog.topics:
            self._refused.note(name, str(error), now_ms)

    def create(
        self,
        name: str,
        partitions: int,
        settings: TopicSettings,
        now_ms: int,
        *,
        source: Topic | None = None,
        internal: bool = False,
    ) -> Topic:
        return run_to_end(
            self.creation(name, partitions, settings, now_ms, source=source, internal=internal)
        )

    def _create_at_a_rate(self, name: str, partitions: int, now_ms: int) -> Topic:
        """A topic that a client named. LimitExceeded when too many are made so at once."""
        self.check_new(name, partitions)
        if not self.auto_creation.take(now_ms):
            raise LimitExceeded(
                f"topic {name!r} is not made: too many new topics were named at once; try again "
                "in a second, or create it"
            )
        return self.create(name, partitions, TopicSettings(), now_ms)

    def creation(
        self,
        name: str,
        partitions: int,
        settings: TopicSettings,
        now_ms: int,
        *,
        source: Topic | None = None,
        internal: bool = False,
        configs: Mapping[str, str] | None = None,
    ) -> Steps[Topic]:
        """`create` in slices of one partition. Nobody sees the topic before it is
        whole, and meanwhile nobody else can take its name. `configs` as in `Topic`."""
        self.check_new(name, partitions, is_letters=source is not None, internal=internal)
        topic_id = self._entropy.random_bytes(16)
        source_id = None if source is None else source.id
        topic = Topic(topic_id, name, partitions, settings, source_id, configs or {})
        opened: list[Partition] = []
        self._names_taken.add(name)
        try:
            # What may fail on a full disk comes first: once a topic is in the catalog,
            # its partitions are open.
            for index in range(partitions):
                make_folder(self._disk, f"{topic.folder}/{index}")
                opened.append(self._open_partition(topic, index, now_ms))
                self._lead(opened[-1:], now_ms)
                yield
            self.change([created(topic)], now_ms)
        except BaseException:
            for partition in opened:
                partition.close_files()
            with contextlib.suppress(OSError):
                self._disk.remove_tree(topic.folder)
            raise
        finally:
            self._names_taken.discard(name)
        self._refused.forget(name)
        self._partitions[topic_id] = opened
        return self.catalog.topics_by_id[topic_id]

    def is_being_made(self, name: str) -> bool:
        return name in self._names_taken

    def check_new(
        self, name: str, partitions: int, *, is_letters: bool = False, internal: bool = False
    ) -> None:
        """Raises whatever `create` would say to such a topic."""
        check_name("topic", name)
        if name in self.catalog.topics or name in self._names_taken:
            raise TopicExists(f"there is a topic {name!r} already")
        if name in RESERVED_TOPICS and not internal:
            raise InvalidName(f"{name!r} is a topic that Headrace keeps for itself")
        if not is_letters and len(name) > limits.NAME_CHARACTERS_MAX:
            raise InvalidName(f"{name!r} has more than {limits.NAME_CHARACTERS_MAX} characters")
        if not is_letters and self.catalog.source_of(name) is not None:
            raise InvalidName(
                f"{name!r} is for the dead letters of a topic that is there; it is made when the "
                "first message is given up"
            )
        self._check_count(partitions)
        # What a node needs for itself never fails because users made many topics.
        if not is_letters and not internal and self.is_full():
            raise LimitExceeded(f"there are {limits.TOPICS_MAX} topics, the most allowed")

    def is_full(self) -> bool:
        """Whether users have made as many topics as they may."""
        topics = self.catalog.topics
        count = len(topics) + len(self._names_taken)
        if count < limits.TOPICS_MAX:
            return False
        ours = sum(each.is_internal or each.source_id is not None for each in topics.values())
        return count - ours >= limits.TOPICS_MAX

    def _lead(self, partitions: Iterable[Partition], now_ms: int) -> None:
        for partition in partitions:
            partition.become_leader(self.catalog.epoch, now_ms)

    def ensure_dead_letters(self, topic: Topic, now_ms: int) -> Topic:
        """The topic's dead-letter topic, made on demand like its source."""
        found = self.catalog.dead_letters_of(topic)
        if found is not None:
            return found
        there = self.catalog.topics.get(topic.name + DEAD_LETTER_SUFFIX)
        if there is not None:
            return self._make_letters_of(topic, there, now_ms)
        settings = TopicSettings(
            durability=topic.settings.durability,
            sync_interval_ms=topic.settings.sync_interval_ms,
            retention="acked",
            retention_ms=None,
            record_bytes_max=limits.RECORD_BYTES_MAX,
            trace_sample=topic.settings.trace_sample,
        )
        return self.create(
            topic.name + DEAD_LETTER_SUFFIX, topic.partitions, settings, now_ms, source=topic
        )

    def _make_letters_of(self, topic: Topic, there: Topic, now_ms: int) -> Topic:
        """The letters of a topic that was deleted and made again stay with the name. A
        user's topic of that name, older than `topic`, becomes that of its letters: nothing
        that it holds or gets is lost before somebody has seen to it."""
        settings = there.settings
        if there.source_id is None:
            settings = replace(
                settings,
                cleanup="delete",
                retention="acked",
                retention_ms=None,
                retention_bytes=None,
                record_bytes_max=limits.RECORD_BYTES_MAX,
                dedup=False,
            )
        letters = replace(there, settings=settings, source_id=topic.id)
        self.change([created(letters)], now_ms)
        return self._on_topic_changed(there.id, now_ms)

    def delete(self, topic: Topic, now_ms: int) -> list[Partition]:
        """Out of the catalog at once; the closed partitions are returned, and
        their folder goes by `remove_files` when the change is synced."""
        self.change([TopicDeleted(topic.id)], now_ms)
        return self._partitions.pop(topic.id)

    def remove_files(self, topic: Topic) -> None:
        self._disk.remove_tree(topic.folder)

    def alter(
        self,
        topic: Topic,
        settings: Mapping[str, Any],
        now_ms: int,
        *,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """`configs` as in `Topic`; None leaves them."""
        changed = self.altered_settings(topic, settings)
        kept = dict(topic.configs if configs is None else configs)
        self.change([TopicAltered(topic.id, topic.partitions, changed.to_mapping(), kept)], now_ms)
        return self._on_topic_changed(topic.id, now_ms)

    def altered_settings(self, topic: Topic, settings: Mapping[str, Any]) -> TopicSettings:
        """What they would be; raises what altering them would raise."""
        changed = topic.settings.changed(settings)
        if changed.ordering != topic.settings.ordering:
            raise InvalidArgument(
                f"the ordering of {topic.name!r} cannot change: groups have begun to read it; "
                "create another topic"
            )
        return changed

    def growth(
        self,
        topic: Topic,
        partitions: int,
        now_ms: int,
        *,
        break_key_order: bool,
        prepare: Callable[[Partition], None],
    ) -> Steps[list[Partition]]:
        """More partitions, in slices of one. Nobody sees them before all of them are
        there, prepared by `prepare`, and meanwhile nobody else can add any."""
        self._check_growth(topic, partitions, break_key_order=break_key_order)
        grown = replace(topic, partitions=partitions)
        opened: list[Partition] = []
        self._growing.add(topic.id)
        try:
            for index in range(topic.partitions, partitions):
                make_folder(self._disk, f"{topic.folder}/{index}")
                partition = self._open_partition(grown, index, now_ms)
                opened.append(partition)
                # What a growth that was cut short has left.
                self._lead([partition], now_ms)
                partition.load(self.catalog.groups_by_id, now_ms)
                prepare(partition)
                yield
                if topic.id not in self.catalog.topics_by_id:
                    raise UnknownTopic(f"topic {topic.name!r} was deleted while it grew")
            now = self.catalog.topics_by_id[topic.id]
            settings, configs = now.settings.to_mapping(), dict(now.configs)
            self.change([TopicAltered(topic.id, partitions, settings, configs)], now_ms)
        except BaseException:
            for partition in opened:
                partition.close_files()
                with contextlib.suppress(OSError):
                    self._disk.remove_tree(partition.path)
            raise
        finally:
            self._growing.discard(topic.id)
        self._partitions[topic.id] += opened
        self._on_topic_changed(topic.id, now_ms)
        return opened

    def _check_growth(self, topic: Topic, partitions: int, *, break_key_order: bool) -> None:
        self._check_count(partitions)
        if topic.id in self._growing:
            raise InvalidArgument(
                f"topic {topic.name!r} is being grown already; try again when that is done"
            )
        if partitions < topic.partitions:
            raise InvalidArgument(
                f"topic {topic.name!r} has {counted(topic.partitions, 'partition')}; a "
                "topic cannot shrink"
            )
        if topic.settings.dedup and not break_key_order:
            raise InvalidArgument(
                f"topic {topic.name!r} finds duplicates within a partition, and with more "
                "partitions an id may go to another one than before; pass break_key_order=True if "
                "that is fine"
            )
        if topic.settings.ordering == "key" and not break_key_order:
            raise InvalidArgument(
                f"topic {topic.name!r} keeps the order of keys, and with more partitions a key "
                "may move to another one while its older messages wait; pass break_key_order=True "
                "if that is fine"
            )

    def _on_topic_changed(self, topic_id: bytes, now_ms: int) -> Topic:
        changed = self.catalog.topics_by_id[topic_id]
        for partition in self.partitions(changed):
            partition.on_topic_changed(changed, now_ms)
        return changed

    @staticmethod
    def _check_count(partitions: int) -> None:
        if isinstance(partitions, bool) or not isinstance(partitions, int):
            raise InvalidArgument(f"the number of partitions is a number, not {partitions!r}")
        if not 1 <= partitions <= limits.PARTITIONS_PER_TOPIC_MAX:
            raise InvalidArgument(
                f"a topic has 1 to {limits.PARTITIONS_PER_TOPIC_MAX} partitions, not {partitions}"
            )
