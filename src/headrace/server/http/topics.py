"""Topics: made, listed, described, changed, deleted."""

from __future__ import annotations

from headrace.calls import Face
from headrace.core.errors import InvalidArgument
from headrace.server.http.overview import group_row, topic_row
from headrace.server.http.route import Call
from headrace.server.http.shown import shown_topic, topic_summary
from headrace.server.topics import change_topic
from headrace.wire.http import bodies
from headrace.wire.http import overview_bodies as o


async def create(call: Call) -> bodies.ShownTopic:
    wanted: bodies.NewTopic = call.body
    info = await call.calls.run_in_slices(
        Face.topic_creation, wanted.name, partitions=wanted.partitions, settings=wanted.settings
    )
    return shown_topic(info)


async def list_all(call: Call) -> bodies.Topics:
    query: bodies.PageQuery = call.query
    # Names first: of ten thousand topics a page describes a hundred.
    names = await call.run(Face.topic_names)
    later = [name for name in names if query.after is None or name > query.after]
    page = later[: query.limit]
    topics = [topic_summary(await call.run(Face.topic, name)) for name in page]
    return bodies.Topics(topics=topics, next=page[-1] if len(later) > len(page) else None)


async def describe(call: Call) -> bodies.ShownTopic:
    return shown_topic(await call.run(Face.topic, call.path["topic"]))


async def describe_page(call: Call) -> o.TopicPage:
    """The topic in numbers, and a page of its partitions: some have ten thousand."""
    query: o.PartitionsQuery = call.query
    name = call.path["topic"]
    picture = await call.facts.survey.look()
    topic = call.calls.run_nowait(Face.topic_named, name)
    totals = picture.topics[name]
    start = query.after + 1
    page = range(start, min(start + query.limit, topic.partitions))
    found = [await call.run(Face.partition_info, name, index) for index in page]
    readers = [each for each in picture.groups.values() if name in each.topics]
    return o.TopicPage(
        name=name,
        id=topic.id.hex(),
        partition_count=topic.partitions,
        messages=totals.records,
        size_bytes=totals.size_bytes,
        rate_in=topic_row(totals, picture).rate_in,
        dead_letters=totals.dead_letters,
        settings=topic.settings.to_mapping(),
        groups=[group_row(each, picture) for each in readers],
        partitions=[bodies.ShownPartition(**each._asdict()) for each in found],
        next=page[-1] if page and page[-1] + 1 < topic.partitions else None,
    )


async def change(call: Call) -> bodies.ShownTopic:
    wanted: bodies.ChangedTopic = call.body
    name = call.path["topic"]
    if not wanted.settings and wanted.partitions is None:
        raise InvalidArgument("there is nothing to change; give settings or partitions")
    return shown_topic(
        await change_topic(
            call.calls, name, wanted.settings, wanted.partitions, wanted.break_key_order
        )
    )


async def delete(call: Call) -> None:
    await call.run(Face.delete_topic, call.path["topic"])
