"""Pipelines on Spark, by what their connectors leave at the node.

    a reader    commits its progress to a group, with a note that says who it is
    a sink      that writes exactly once keeps a marker for each task: the group
                __spark.{sink}.{task}, whose offset is the next batch, with a note of
                the rows that the task ever wrote

What a pipeline made of what it read is in its own ledger; the node does not know it.
"""

from __future__ import annotations

from headrace.calls import Face
from headrace.core.values import SPARK_PROGRESS, SPARK_SINK_PREFIX, spark_rows_of
from headrace.server.http.route import Call
from headrace.server.http.shown import moment_of
from headrace.server.slices import Slices
from headrace.wire.http import overview_bodies as o


async def list_all(call: Call) -> o.Pipelines:
    picture = await call.facts.survey.look()
    slices = Slices()
    sources: list[o.PipelineSource] = []
    sinks: dict[str, o.PipelineSink] = {}
    for name in call.calls.run_nowait(Face.stream_names):
        await slices.rest()
        cursors, topics = call.calls.run_nowait(Face.cursors_of, name)
        if not cursors:
            continue
        committed_at = moment_of(max(each.at_ms for each in cursors))
        if name.startswith(SPARK_SINK_PREFIX):
            sink = name.removeprefix(SPARK_SINK_PREFIX).rpartition(".")[0]
            batch = max(each.offset for each in cursors) - 1
            known = sinks.setdefault(
                sink,
                o.PipelineSink(
                    name=sink,
                    topics=list(topics),
                    tasks=0,
                    rows=0,
                    batch=batch,
                    committed_at=committed_at,
                ),
            )
            known.tasks += 1
            known.rows += sum(spark_rows_of(each.metadata) for each in cursors)
            known.batch = max(known.batch, batch)
            known.committed_at = max(known.committed_at, committed_at)
        elif any(each.metadata == SPARK_PROGRESS for each in cursors):
            totals = picture.groups.get(name)
            sources.append(
                o.PipelineSource(
                    name=name,
                    topics=list(topics),
                    partitions=len(cursors),
                    read=sum(each.offset for each in cursors),
                    lag=0 if totals is None else totals.lag,
                    committed_at=committed_at,
                )
            )
    return o.Pipelines(sources=sources, sinks=list(sinks.values()))
