"""Topics as requests name them: by name, or by id in newer versions; and what Kafka
asks of new names."""

from __future__ import annotations

from headrace.core.errors import InvalidName, UnknownTopic
from headrace.engine.catalog import Catalog, Topic
from headrace.server.service import Service
from headrace.wire.kafka.primitives import ZERO_UUID


def topic_of(service: Service, name: str, topic_id: bytes) -> Topic:
    """By its id when there is one, else by its name. UnknownTopic."""
    topics = service.broker.topics
    if topic_id == ZERO_UUID:
        try:
            return topics.named(name)
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
