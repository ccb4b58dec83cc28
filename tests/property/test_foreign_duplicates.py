"""Batches of clients on a topic that drops duplicates, against a dictionary: producers that
number their batches and others, wrong clocks, time that passes, retries and restarts."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.values import Published
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import Codec, NewRecord, attribute_headers, build_batch

TOPIC, GROUP = "orders", "workers"
WINDOW_MS = 1_000


class Send(NamedTuple):
    """A batch of records with these ids, or none."""

    ids: list[bytes | None]
    # Of one that numbers its batches; -1 for one that does not.
    producer_id: int
    behind_ms: int
    codec: Codec


class Retry(NamedTuple):
    """The last batch of this producer, whose answer was lost."""

    producer_id: int


class Wait(NamedTuple):
    ms: int


class Restart(NamedTuple):
    pass


ids = st.sampled_from([None, b"a", b"b", b"c", b"a-long-one-that-is-kept-as-a-digest"])
steps = st.lists(
    st.one_of(
        st.builds(
            Send,
            st.lists(ids, min_size=1, max_size=5),
            st.integers(-1, 1),
            st.sampled_from([0, 7, 10**6, -(10**6)]),
            st.sampled_from([Codec.NONE, Codec.ZSTD]),
        ),
        st.builds(Retry, st.integers(0, 1)),
        st.builds(Wait, st.sampled_from([1, 400, WINDOW_MS - 1, WINDOW_MS])),
        st.just(Restart()),
    ),
    max_size=25,
)


class HandClock:
    def __init__(self) -> None:
        self.time_ms = 1_000_000_000

    def now_ms(self) -> int:
        return self.time_ms


class Twin:
    """What is in the log, and where each id was published."""

    def __init__(self) -> None:
        self.end = 0
        self.log: dict[int, bytes] = {}
        self.known: dict[bytes, tuple[int, int]] = {}

    def send(self, step: Send, values: list[bytes], now_ms: int) -> Published:
        """The place that is answered."""
        kept: dict[int, bytes] = {}
        firsts: list[int] = []
        for place, (each, value) in enumerate(zip(step.ids, values, strict=True)):
            first = self.known.get(each) if each is not None else None
            if first is not None and now_ms - first[1] < WINDOW_MS:
                firsts.append(first[0])
                continue
            if each is not None:
                self.known[each] = self.end + place, now_ms
            kept[self.end + place] = value
        start = self.end
        if kept:
            self.end = max(kept) + 1
        elif step.producer_id >= 0:
            # An empty batch, which has the number that comes next.
            self.end += 1
        self.log |= kept
        return Published(0, start) if kept else Published(0, firsts[0], True)


def written(node: Node) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    position, end = 0, -1
    while position != end:
        records, end = node.read(TOPIC, 0, position)
        found |= {record.offset: record.value or b"" for record in records}
        position, end = end, position
    return found


@given(steps)
def test_what_is_appended_and_answered_is_what_a_dictionary_would_say(
    history: list[Send | Retry | Wait | Restart],
) -> None:
    clock, disk, twin = HandClock(), MemoryDisk(), Twin()
    node = Node.open(":memory:", disk=disk, clock=clock)
    node.create_topic(TOPIC, partitions=1, settings={"dedup": True, "dedup_window_ms": WINDOW_MS})
    node.open_queue(GROUP, [TOPIC], "ann")
    sequences = [0, 0]
    last: dict[int, bytes] = {}
    number = 0
    for step in history:
        match step:
            case Wait():
                clock.time_ms += step.ms
            case Restart():
                node.close()
                node = Node.open(":memory:", disk=disk, clock=clock)
            case Retry():
                if step.producer_id in last:
                    again = node.publish_batch(TOPIC, 0, bytearray(last[step.producer_id]))
                    assert again.duplicate
            case Send():
                values = [b"%d" % (number + place) for place in range(len(step.ids))]
                number += len(values)
                made = [
                    NewRecord(None, value, _headers(each), clock.time_ms - step.behind_ms)
                    for each, value in zip(step.ids, values, strict=True)
                ]
                batch = build_batch(
                    made,
                    codec=step.codec,
                    producer_id=step.producer_id,
                    producer_epoch=0 if step.producer_id >= 0 else -1,
                    base_sequence=sequences[step.producer_id] if step.producer_id >= 0 else -1,
                )
                if step.producer_id >= 0:
                    sequences[step.producer_id] += len(values)
                    last[step.producer_id] = bytes(batch)
                place = node.publish_batch(TOPIC, 0, batch)
                assert place == twin.send(step, values, clock.time_ms)
    with closing(node):
        assert written(node) == twin.log
        leased = node.lease(GROUP, [TOPIC], "ann", 1_000)
        assert {each.offset: each.value for each in leased} == twin.log


def _headers(dedup_id: bytes | None) -> tuple[tuple[str, bytes], ...]:
    return () if dedup_id is None else attribute_headers(dedup_id=dedup_id)
