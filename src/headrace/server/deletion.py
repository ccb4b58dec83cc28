"""Deleting a topic while the node serves.

    catalog, cursors, moves  ->  synced  ->  files closed and removed, in a thread
    long polls are woken         |
                                 '-- the deletion counts, and is answered

The round of syncs that was under way when the topic went may still be at work on
its files. The deletion's own commit is done in a later round at the earliest, so
when it is done nobody is.
"""

from __future__ import annotations

from headrace.core.errors import DeadlineExceeded
from headrace.core.request_context import NEVER
from headrace.engine.broker import Deleted
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.topics import Topics
from headrace.server.service import Service
from headrace.server.slices import Slices


async def delete_topics(service: Service, topics: list[Topic], deadline: float = NEVER) -> None:
    """The topics are gone, one after the other; returns when that lasts. When it does not by
    the deadline, DeadlineExceeded; their files go all the same."""
    commit = service.commit()
    broker = service.broker
    deleted, slices = [], Slices()
    for topic in topics:
        # The dead letters of one may be another of them.
        if topic.id in broker.topics.catalog.topics_by_id:
            gone = broker.delete_topic(topic, service.clock.now_ms(), commit)
            service.commits.on_deleted()
            service.wake_partitions(gone.partitions)
            deleted.append(gone)
            await slices.rest()
    try:
        await service.finish(commit, deadline)
    except DeadlineExceeded:
        service.finish_alone(_remove_when_safe(service, commit, deleted))
        raise
    await _remove(service, deleted)


async def _remove_when_safe(service: Service, commit: Commit, deleted: list[Deleted]) -> None:
    await service.finish(commit)
    await _remove(service, deleted)


async def _remove(service: Service, deleted: list[Deleted]) -> None:
    # Files that stay behind, when the node ends before this, go with its next start.
    await service.loop.run_in_executor(None, remove_files, service.broker.topics, deleted)


def remove_files(topics: Topics, deleted: list[Deleted]) -> None:
    """Of topics whose deletion is on disk. It may take a while."""
    for each in deleted:
        for partition in each.partitions:
            partition.close_files()
        for topic in each.topics:
            topics.remove_files(topic)
