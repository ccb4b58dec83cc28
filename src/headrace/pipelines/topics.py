"""Which topics a pipeline reads: one, several, or those of a pattern that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.kafka.cluster import KafkaCluster
from headrace.spark.pattern.topics import topic_pattern

if TYPE_CHECKING:
    from headrace.client.kafka.cluster import TopicInfo
    from headrace.pipelines.settings import PipelineSettings
    from headrace.spark.directory import Directory


def names_of(settings: PipelineSettings) -> list[str] | None:
    """The topics that the settings name; None where they have a pattern."""
    names = settings.subscription.get("subscribe")
    return None if names is None else names.split(",")


def topics_of(
    settings: PipelineSettings, cluster: KafkaCluster | Directory
) -> dict[str, TopicInfo]:
    """Those of them that there are."""
    names = names_of(settings)
    if names is not None:
        return cluster.topics(names)
    pattern = topic_pattern(settings.subscription["subscribePattern"])
    there = {name: topic for name, topic in cluster.topics().items() if not topic.is_internal}
    return {name: there[name] for name in pattern.choose(there)}


def read_names(settings: PipelineSettings) -> set[str]:
    """The names of the topics that are read, looked up where only a pattern is known."""
    names = names_of(settings)
    if names is not None:
        return set(names)
    if settings.path:
        from headrace.spark.directory import Directory

        with Directory(settings.path) as directory:
            return set(topics_of(settings, directory))
    with KafkaCluster(settings.bootstrap) as cluster:
        return set(topics_of(settings, cluster))
