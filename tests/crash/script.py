"""A script that does a bit of everything that writes to a directory.

Small segments, so that they roll; messages that end in every way there is; topics
that are compacted, kept until acked, grown, deleted and made again.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.crash.actor import Actor

from headrace import Headrace
from headrace.testing import ManualClock

QUEUES = ("jobs", "keyed", "short")


def work(actor: Actor, clock: ManualClock, reopen: Callable[[], Headrace]) -> None:
    """A bit of everything that writes."""
    actor.create_topic("jobs", 2, segment_bytes=2_048)
    actor.create_topic("keyed", 2, ordering="key", segment_bytes=2_048)
    actor.create_topic("short", 1, segment_bytes=1_024, retention="acked")
    actor.create_topic("table", 1, segment_bytes=1_024, cleanup="compact", dirty_ratio_min=0)
    actor.create_topic("passing", 2)
    actor.create_topic("brief", 1, segment_bytes=1_024, retention_bytes=2_000)
    for topic in QUEUES:
        actor.queue(topic)
    for step in range(6):
        _publish(actor, step)
        _consume(actor, step)
        if step == 1:
            actor.delete_topic("passing")
            actor.create_topic("passing", 1, dedup=True)
            actor.queue("passing")
            with actor.handle.queue("short", "others") as others:
                others.ack(others.lease(3))
        elif step == 2:
            actor.handle.alter_group("others", max_attempts=5)
            actor.handle.delete_group("others")
            actor.handle.alter_topic("keyed", dedup_window_ms=1_000)
            actor.grow_topic("jobs", 3)
            # Housekeeping comes with the next publish.
            clock.skip(31)
        elif step == 3:
            actor.reopen(reopen)
        elif step == 4:
            actor.delete_records("jobs", 0, 4)
            clock.skip(31)


def _publish(actor: Actor, step: int) -> None:
    actor.publish("jobs", [f"{step}-a"], priority="high")
    actor.publish("jobs", [f"{step}-m{n}" + "." * 90 for n in range(12)])
    for n in range(3):
        actor.publish("keyed", [f"{step}-k{n}"], key=f"key-{n % 2}")
        actor.publish("table", [f"{step}-t{n}" + "." * 200], key=f"row-{n}")
    actor.publish("short", [f"{step}-s{n}" + "." * 100 for n in range(6)])
    [late] = actor.publish("jobs", [f"{step}-late"], delay=3_600)
    actor.publish("jobs", [f"{step}-soon"], delay=5, priority="low")
    actor.publish("keyed", [f"{step}-brief"], key="key-2", ttl=20)
    actor.publish("brief", [f"{step}-b{n}" + "." * 100 for n in range(9)])
    if step % 2:
        actor.cancel("jobs", late)
    if step > 1:
        actor.publish("passing", [f"{step}-p"], dedup_ids=[f"id-{step // 2}"])
    actor.commit("readers", "jobs", 0, step)
    actor.commit("readers", "table", 0, step)


def _consume(actor: Actor, step: int) -> None:
    for topic in QUEUES:
        messages = actor.lease(topic, 9)
        actor.settle("extend", topic, messages[:1])
        actor.settle("ack", topic, messages[:4])
        actor.settle("nack", topic, messages[4:6], error="no")
        actor.settle("reject", topic, messages[6:7], error="bad")
        actor.settle("release", topic, messages[7:8])
    # Nobody ever finishes these, so they run out of attempts.
    for _ in range(3):
        actor.settle("nack", "jobs", actor.lease("jobs", 3), error="poison")
    if step == 2:
        actor.redrive("jobs", 2)
    elif step == 3:
        actor.purge("jobs", 1)
    actor.settle("ack", "short", actor.lease("short", 20))
