"""Delayed messages: how late they come, and what waiting for them costs.

Lateness: a million messages are delayed; some of them fall due one after the other
while a consumer receives and acks. Late is the time between the moment a message
was due and the moment its consumer has it.

Idle: a consumer waits, and everything in the queue is due in an hour. The process
time of the whole process counts.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import headrace
from benchmarks import child
from benchmarks.samples import OURS, Sample, percentile
from benchmarks.sizes import VALUE_BYTES, Sizes

BATCH = 1_000
# Publishing the ones to be measured takes a moment, and must be over by then.
MESSAGES_PUBLISHED_A_SECOND = 5_000


def lateness(place: Path, sizes: Sizes) -> list[Sample]:
    place.mkdir(parents=True)
    found = child.run(
        "waiting.lateness_of_due",
        folder=str(place), seconds=sizes.late_seconds, per_second=sizes.late_per_second,
        delayed=sizes.late_delayed,
    )  # fmt: skip
    return [Sample(OURS, what, "ms", value) for what, value in found.items()]


def idle(place: Path, sizes: Sizes) -> list[Sample]:
    place.mkdir(parents=True)
    used = child.run(
        "waiting.process_time_of_idling",
        folder=str(place), seconds=sizes.idle_seconds, delayed=sizes.idle_delayed,
    )  # fmt: skip
    return [Sample(OURS, "process time", "%", used * 100 / sizes.idle_seconds)]


def lateness_of_due(folder: str, seconds: int, per_second: int, delayed: int) -> dict[str, float]:
    measured = seconds * per_second
    with headrace.open(folder) as handle:
        handle.create_topic("bench")
        _delay_by_an_hour(handle, delayed - measured)
        late: list[float] = []
        # The group sees the million before anything falls due: that is not what
        # is measured here.
        with handle.queue("bench") as queue:
            first = time.time() + 0.5 + measured / MESSAGES_PUBLISHED_A_SECOND
            for start in range(0, measured, BATCH):
                numbers = range(start, min(start + BATCH, measured))
                dues = [first + number / per_second for number in numbers]
                handle.publish_many(
                    "bench",
                    [headrace.NewMessage(str(due).encode(), deliver_at=due) for due in dues],
                )
            assert time.time() < first, "publishing took longer than planned"
            while len(late) < measured:
                messages = queue.receive(max=100, wait=30)
                now = time.time()
                assert messages, "messages that were due did not come"
                late += [(now - float(message.raw or b"")) * 1000 for message in messages]
                queue.ack(messages)
    assert min(late) > -1, "a message came before it was due"
    return {
        "p50": percentile(late, 0.50),
        "p99": percentile(late, 0.99),
        "max": max(late),
    }


def process_time_of_idling(folder: str, seconds: float, delayed: int) -> float:
    with headrace.open(folder) as handle:
        handle.create_topic("bench")
        _delay_by_an_hour(handle, delayed)
        with handle.queue("bench") as queue:
            waiter = threading.Thread(target=queue.receive)
            waiter.start()
            # Its first look happens before the clock starts.
            time.sleep(min(1.0, seconds))
            before = time.process_time()
            time.sleep(seconds)
            used = time.process_time() - before
        waiter.join()
    return used


def _delay_by_an_hour(handle: headrace.Headrace, messages: int) -> None:
    """Spread over the second hour from now, a thousand at one moment."""
    soonest = time.time() + 3600
    for number, start in enumerate(range(0, messages, BATCH)):
        values = [b"x" * VALUE_BYTES] * min(BATCH, messages - start)
        handle.publish_many("bench", values, deliver_at=soonest + number * 3.6)
