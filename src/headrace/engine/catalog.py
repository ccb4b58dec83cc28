"""The catalog: the immutable picture of topics and groups, and how it changes.

Every change is an event in the metadata log; `apply` makes the next picture from
an event and the last one. Whoever holds a picture holds a consistent one.

The state log names a group by its number, which is never used twice, so a group
that is deleted and made again starts from nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from headrace.core.settings import GroupSettings, TopicSettings
from headrace.core.values import DEAD_LETTER_SUFFIX

# The queue group that holds a dead-letter topic's messages until somebody
# redrives or purges them.
DEAD_LETTER_GROUP = "__dead-letters"
CURSOR_TOPIC = "__cursors"
# What Kafka's clients call that topic.
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
TRACE_TOPIC = "__trace"
INTERNAL_TOPICS = frozenset((CURSOR_TOPIC, TRANSACTION_TOPIC, TRACE_TOPIC))
# In which the node keeps what it has promised; how long traces are kept is the users' to say.
STATE_TOPICS = frozenset((CURSOR_TOPIC, TRANSACTION_TOPIC))
# No user's topic has one of these names: the node's own, and those in which Kafka's
# clients expect what a broker keeps for itself.
RESERVED_TOPICS = INTERNAL_TOPICS | {
    CONSUMER_OFFSETS,
    "__share_group_state",
    "__cluster_metadata",
}


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Topic:
    id: bytes
    name: str
    partitions: int
    settings: TopicSettings
    # The topic whose dead letters these are.
    source_id: bytes | None = None
    # What clients of Kafka's protocol have set, by Kafka's names and as they gave it: also
    # what is a setting, and then that counts, and what means nothing here.
    configs: Mapping[str, str] = field(default_factory=_empty, hash=False)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def folder(self) -> str:
        return f"topics/{self.id.hex()}"


@dataclass(frozen=True, slots=True)
class Group:
    id: int
    name: str
    kind: Literal["queue", "stream"]
    settings: GroupSettings
    # The topics, by id, that a queue group has subscribed to.
    topics: frozenset[bytes] = frozenset()

    @property
    def is_internal(self) -> bool:
        return self.name == DEAD_LETTER_GROUP


@dataclass(frozen=True, slots=True)
class Catalog:
    topics: Mapping[str, Topic] = field(default_factory=_empty)
    topics_by_id: Mapping[bytes, Topic] = field(default_factory=_empty)
    groups: Mapping[str, Group] = field(default_factory=_empty)
    groups_by_id: Mapping[int, Group] = field(default_factory=_empty)
    next_group: int = 1
    next_producer: int = 0
    # How often this directory was opened for writing: the leaders' epoch.
    epoch: int = 0
    # What was configured by name, as text: by Kafka's type of resource and its name.
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=_empty)

    def dead_letters_of(self, topic: Topic) -> Topic | None:
        found = self.topics.get(topic.name + DEAD_LETTER_SUFFIX)
        return found if found is not None and found.source_id == topic.id else None

    def source_of(self, name: str) -> Topic | None:
        """The topic whose dead letters are called so, if there is one."""
        stem = name.removesuffix(DEAD_LETTER_SUFFIX)
        return None if stem == name else self.topics.get(stem)


# Events. Numbers and the order of fields are on disk.


class TopicCreated(msgspec.Struct, array_like=True, tag=1, frozen=True):
    id: bytes
    name: str
    partitions: int
    settings: dict[str, Any]
    source_id: bytes | None
    configs: dict[str, str] = {}


class TopicDeleted(msgspec.Struct, array_like=True, tag=2, frozen=True):
    id: bytes


class TopicAltered(msgspec.Struct, array_like=True, tag=3, frozen=True):
    id: bytes
    partitions: int
    settings: dict[str, Any]
    configs: dict[str, str] = {}


class GroupCreated(msgspec.Struct, array_like=True, tag=4, frozen=True):
    id: int
    name: str
    kind: Literal["queue", "stream"]
    settings: dict[str, Any]


class GroupAltered(msgspec.Struct, array_like=True, tag=5, frozen=True):
    id: int
    settings: dict[str, Any]


class GroupSubscribed(msgspec.Struct, array_like=True, tag=6, frozen=True):
    id: int
    topic_id: bytes


class GroupDeleted(msgspec.Struct, array_like=True, tag=7, frozen=True):
    id: int


class ProducersReserved(msgspec.Struct, array_like=True, tag=8, frozen=True):
    """Producer ids below this may have been given out."""

    end: int


class EpochBegan(msgspec.Struct, array_like=True, tag=9, frozen=True):
    epoch: int


class CatalogReset(msgspec.Struct, array_like=True, tag=10, frozen=True):
    """Begins a snapshot; the rest of its batch builds the catalog anew."""

    next_group: int
    next_producer: int
    epoch: int


class GroupUnsubscribed(msgspec.Struct, array_like=True, tag=11, frozen=True):
    id: int
    topic_id: bytes


class ConfigsGiven(msgspec.Struct, array_like=True, tag=12, frozen=True):
    """All that is configured of one thing from now on; nothing, for it to be forgotten."""

    kind: int
    name: str
    values: dict[str, str]


CatalogEvent = (
    TopicCreated
    | TopicDeleted
    | TopicAltered
    | GroupCreated
    | GroupAltered
    | GroupSubscribed
    | GroupUnsubscribed
    | GroupDeleted
    | ProducersReserved
    | EpochBegan
    | CatalogReset
    | ConfigsGiven
)


def apply(catalog: Catalog, event: CatalogEvent) -> Catalog:
    match event:
        case TopicCreated():
            settings = TopicSettings.from_mapping(event.settings)
            configs = MappingProxyType(event.configs)
            topic = Topic(
                event.id, event.name, event.partitions, settings, event.source_id, configs
            )
            return _with_topic(catalog, topic)
        case TopicDeleted():
            return _without_topic(catalog, catalog.topics_by_id[event.id])
        case TopicAltered():
            topic = catalog.topics_by_id[event.id]
            settings = TopicSettings.from_mapping(event.settings)
            configs = MappingProxyType(event.configs)
            changed = replace(
                topic, partitions=event.partitions, settings=settings, configs=configs
            )
            return _with_topic(catalog, changed)
        case GroupCreated():
            group = Group(
                event.id, event.name, event.kind, GroupSettings.from_mapping(event.settings)
            )
            catalog = replace(catalog, next_group=max(catalog.next_group, event.id + 1))
            return _with_group(catalog, group)
        case GroupAltered():
            group = catalog.groups_by_id[event.id]
            return _with_group(
                catalog, replace(group, settings=GroupSettings.from_mapping(event.settings))
            )
        case GroupSubscribed():
            group = catalog.groups_by_id[event.id]
            return _with_group(catalog, replace(group, topics=group.topics | {event.topic_id}))
        case GroupUnsubscribed():
            group = catalog.groups_by_id[event.id]
            return _with_group(catalog, replace(group, topics=group.topics - {event.topic_id}))
        case GroupDeleted():
            return _without_group(catalog, catalog.groups_by_id[event.id])
        case ProducersReserved():
            return replace(catalog, next_producer=max(catalog.next_producer, event.end))
        case EpochBegan():
            return replace(catalog, epoch=event.epoch)
        case CatalogReset():
            return Catalog(
                next_group=event.next_group, next_producer=event.next_producer, epoch=event.epoch
            )
        case ConfigsGiven():
            given = dict(catalog.configs)
            given.pop((event.kind, event.name), None)
            if event.values:
                given[event.kind, event.name] = MappingProxyType(dict(event.values))
            return replace(catalog, configs=MappingProxyType(given))


def created(topic: Topic) -> TopicCreated:
    """The event that makes this topic, or makes one of its id into it."""
    return TopicCreated(
        topic.id,
        topic.name,
        topic.partitions,
        topic.settings.to_mapping(),
        topic.source_id,
        dict(topic.configs),
    )


def snapshot(catalog: Catalog) -> list[CatalogEvent]:
    """Events that build this catalog from anything."""
    made: list[CatalogEvent] = [
        CatalogReset(catalog.next_group, catalog.next_producer, catalog.epoch)
    ]
    for topic in catalog.topics.values():
        made.append(created(topic))
    for group in catalog.groups.values():
        made.append(GroupCreated(group.id, group.name, group.kind, group.settings.to_mapping()))
        made += [GroupSubscribed(group.id, topic_id) for topic_id in sorted(group.topics)]
    made += [ConfigsGiven(*key, dict(values)) for key, values in catalog.configs.items()]
    return made


def _with_topic(catalog: Catalog, topic: Topic) -> Catalog:
    return replace(
        catalog,
        topics=MappingProxyType({**catalog.topics, topic.name: topic}),
        topics_by_id=MappingProxyType({**catalog.topics_by_id, topic.id: topic}),
    )


def _without_topic(catalog: Catalog, topic: Topic) -> Catalog:
    catalog = replace(
        catalog,
        topics=MappingProxyType({n: t for n, t in catalog.topics.items() if t.id != topic.id}),
        topics_by_id=MappingProxyType(
            {i: t for i, t in catalog.topics_by_id.items() if i != topic.id}
        ),
    )
    left = {
        name: replace(group, topics=group.topics - {topic.id})
        for name, group in catalog.groups.items()
        if topic.id in group.topics
    }
    if not left:
        return catalog
    # All at once: thousands of groups may have read the topic.
    return replace(
        catalog,
        groups=MappingProxyType({**catalog.groups, **left}),
        groups_by_id=MappingProxyType(
            {**catalog.groups_by_id, **{group.id: group for group in left.values()}}
        ),
    )


def _with_group(catalog: Catalog, group: Group) -> Catalog:
    return replace(
        catalog,
        groups=MappingProxyType({**catalog.groups, group.name: group}),
        groups_by_id=MappingProxyType({**catalog.groups_by_id, group.id: group}),
    )


def _without_group(catalog: Catalog, group: Group) -> Catalog:
    return replace(
        catalog,
        groups=MappingProxyType({n: g for n, g in catalog.groups.items() if g.id != group.id}),
        groups_by_id=MappingProxyType(
            {i: g for i, g in catalog.groups_by_id.items() if i != group.id}
        ),
    )
