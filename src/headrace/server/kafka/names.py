"""Topics as requests name them: by name, or by id in newer versions."""

from __future__ import annotations

from headrace.core.errors import InvalidName, UnknownTopic
from headrace.engine.catalog import Topic
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
