"""Topics as requests name them: by name, or by id in newer versions; and what Kafka
asks of new names.

The topic of cursors has the name here that Kafka's clients know (`__consumer_offsets`), and
no other. What they read there is in coordinator_topics.py.
"""

from __future__ import annotations

from headrace.core.errors import InvalidName, TopicExists, UnknownTopic
from headrace.engine.catalog import CONSUMER_OFFSETS, CURSOR_TOPIC, STATE_TOPICS, Catalog, Topic
from headrace.engine.topics import Topics
from headrace.server.service import Service
from headrace.wire.kafka.primitives import ZERO_UUID

# There is no topic of the second name.
_STORED_NAMES = {CONSUMER_OFFSETS: CURSOR_TOPIC, CURSOR_TOPIC: CONSUMER_OFFSETS}


def kafka_name(topic: Topic) -> str:
    return CONSUMER_OFFSETS if topic.name == CURSOR_TOPIC else topic.name


def is_listed(topic: Topic) -> bool:
    """Whether clients that ask for all topics are told of this one: of the node's own
    those that Kafka has, too."""
    return not topic.is_internal or topic.name in STATE_TOPICS


def find_topic(catalog: Catalog, name: str) -> Topic | None:
    return catalog.topics.get(_STORED_NAMES.get(name, name))


def topic_named(topics: Topics, name: str) -> Topic:
    """UnknownTopic, or InvalidName when no topic can be called so."""
    topic = find_topic(topics.catalog, name)
    if topic is None and name == CURSOR_TOPIC:
        raise UnknownTopic(f"there is no topic {name!r}")
    return topics.named(name) if topic is None else topic


def topic_of(service: Service, name: str, topic_id: bytes) -> Topic:
    """By its id when there is one, else by its name. UnknownTopic."""
    topics = service.broker.topics
    if topic_id == ZERO_UUID:
        try:
            return topic_named(topics, name)
        except InvalidName as error:
            # For Kafka's clients a name that no topic can have is one that none has.
            raise UnknownTopic(str(error)) from error
    topic = topics.catalog.topics_by_id.get(topic_id)
    if topic is None:
        raise UnknownTopic("there is no topic with this id")
    return topic


def check_no_collision(catalog: Catalog, name: str) -> None:
    """InvalidName where a topic has the same name but for dots and underscores. Kafka's
    rule, for its metrics; topics that are made by other doors are not held to it."""
    if "." in name or "_" in name:
        unified, size = name.replace(".", "_"), len(name)
        for each in catalog.topics:
            if len(each) == size and each.replace(".", "_") == unified and each != name:
                raise InvalidName(f"topic {name!r} collides with the existing topic {each!r}")


def check_not_shown(catalog: Catalog, name: str) -> None:
    """TopicExists where clients see a topic of this name that is stored under another."""
    if name not in catalog.topics and find_topic(catalog, name) is not None:
        raise TopicExists(f"there is a topic {name!r} already")
