"""Every row that is measured, with what it has to reach. Titles are filled in with
the sizes of the run."""

from __future__ import annotations

from benchmarks import (
    compressing,
    machine,
    memory,
    priorities,
    reopen,
    throughput,
    tracing,
    waiting,
)
from benchmarks.samples import Row, Target

ROWS = (
    Row("fdatasync", "One fdatasync of this disk", machine.fdatasync),
    Row(
        "publish-one",
        "Durable publish, {threads} threads, one message each",
        throughput.publish_one,
        (Target("publish", 10_000, True), Target("p99", 10, False)),
    ),
    Row(
        "publish-many",
        "Durable publish in batches of {publish_batch:,}",
        throughput.publish_many,
        (Target("publish", 300_000, True), Target("publish", 10, True, times_peers=True)),
    ),
    Row(
        "work-many",
        "Lease and durable ack in batches of {work_batch:,}",
        throughput.work_many,
        (
            Target("lease and ack", 100_000, True),
            Target("lease and ack", 10, True, times_peers=True),
        ),
    ),
    Row("work-one", "Lease and durable ack, one at a time", throughput.work_one),
    Row("tracing", "Lease and ack one at a time, {traced:,} messages", tracing.tracing),
    Row(
        "priorities",
        "Lease and ack in batches of {work_batch:,}, {mixed_backlog:,} waiting",
        priorities.priorities,
        once=True,
    ),
    Row("compressing", "A batch that its topic compresses anew", compressing.compressing),
    Row(
        "memory",
        "Queue state in memory, {pending:,} pending",
        memory.memory,
        (
            Target("pending", 16, False),
            Target("pending, some leased", 16, False),
            Target("delayed", 16, False),
        ),
        once=True,
    ),
    Row(
        "reopen",
        "Open after kill -9, {pending:,} messages",
        reopen.reopen,
        (Target("open", 1, False),),
        once=True,
    ),
    Row(
        "lateness",
        "Lateness of due messages, {late_delayed:,} delayed",
        waiting.lateness,
        (Target("p99", 50, False),),
        once=True,
    ),
    Row(
        "idle",
        "Process time while one consumer waits, {idle_delayed:,} delayed",
        waiting.idle,
        (Target("process time", 0.1, False),),
        once=True,
    ),
)
