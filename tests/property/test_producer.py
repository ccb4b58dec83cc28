"""Producer state against a twin with one flat list of batches."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import CorruptLog, FencedProducer, OutOfOrderSequence, UnsupportedFormat
from headrace.engine.producer import Duplicate, ProducerState
from headrace.record.batch import BatchHeader

SEQUENCES = 2**31


class Appended(NamedTuple):
    producer: int
    epoch: int
    sequence: int
    records: int
    offset: int


class FlatList:
    """The twin: the batches of all producers in one list, searched each time."""

    def __init__(self) -> None:
        self.appended: list[Appended] = []

    def of(self, producer: int) -> list[Appended]:
        return [entry for entry in self.appended if entry.producer == producer]

    def append(self, entry: Appended) -> None:
        self.appended.append(entry)
        for forgotten in self.of(entry.producer)[:-5]:
            self.appended.remove(forgotten)

    def truncate_to(self, offset: int) -> None:
        self.appended = [entry for entry in self.appended if entry.offset < offset]

    def answer(self, producer: int, epoch: int, sequence: int, count: int) -> object:
        past = self.of(producer)
        if not past:
            return None
        latest = past[-1]
        if epoch < latest.epoch:
            return FencedProducer
        for entry in past:
            if entry[1:4] == (epoch, sequence, count):
                return Duplicate(entry.offset, entry.offset + count - 1)
        follows = (latest.sequence + latest.records) % SEQUENCES
        expected = follows if epoch == latest.epoch else 0
        return None if sequence == expected else OutOfOrderSequence


def header_of(producer: int, epoch: int, sequence: int, count: int) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, 0, count - 1, 0, 0, producer, epoch, sequence, count)


def answer_of(state: ProducerState, header: BatchHeader) -> object:
    try:
        return state.check(header, 0)
    except (FencedProducer, OutOfOrderSequence) as error:
        return type(error)


# What a producer does next: go on, repeat one of its batches, skip, or start anew.
steps = st.tuples(
    st.sampled_from(["next", "next", "next", "repeat", "skip", "epoch", "old", "cut", "restart"]),
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(0, 7),
)


@given(st.lists(steps, max_size=60), st.sampled_from([0, 5, SEQUENCES - 4]))
def test_the_state_answers_as_one_who_searches_a_list(
    history: list[tuple[str, int, int, int]], first_sequence: int
) -> None:
    state, twin, end_offset = ProducerState(), FlatList(), 0
    for step, producer, count, back in history:
        if step == "restart":
            state = ProducerState.decode(state.encode())
            continue
        if step == "cut":
            if twin.appended[-back:]:
                end_offset = twin.appended[-back:][0].offset
            state.truncate_to(end_offset)
            twin.truncate_to(end_offset)
            continue
        epoch, sequence, count = next_batch(twin.of(producer), step, first_sequence, count, back)
        header = header_of(producer, epoch, sequence, count)
        expected = twin.answer(producer, epoch, sequence, count)
        assert answer_of(state, header) == expected
        if expected is None:
            state.on_append(header, end_offset, 0)
            twin.append(Appended(producer, epoch, sequence, count, end_offset))
            end_offset += count


def next_batch(
    past: list[Appended], step: str, first_sequence: int, count: int, back: int
) -> tuple[int, int, int]:
    """The epoch, the sequence and the count of what a producer sends next."""
    if not past:
        return 0, first_sequence, count
    latest = past[-1]
    sequence = (latest.sequence + latest.records) % SEQUENCES
    if step == "repeat":
        return past[-1 - back % len(past)][1:4]
    if step == "skip":
        return latest.epoch, (sequence + back) % SEQUENCES, count
    if step == "epoch":
        return latest.epoch + 1, 0 if back else sequence, count
    if step == "old":
        return latest.epoch - 1, sequence, count
    return latest.epoch, sequence, count


@given(st.binary(max_size=200))
def test_bytes_that_are_no_snapshot_are_refused_and_nothing_else(noise: bytes) -> None:
    try:
        ProducerState.decode(noise)
    except (CorruptLog, UnsupportedFormat):
        return
    raise AssertionError("noise was taken for a snapshot")
