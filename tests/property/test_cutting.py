"""Cutting batches by bytes gives what decoding and filtering would."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.settings import TopicSettings
from headrace.engine.catalog import Topic
from headrace.engine.cutting import CUT_BELOW, Cutter
from headrace.engine.partition import Partition
from headrace.engine.runs import count_of, offsets_of, runs_of
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import build_batch, check_batch, read_header, read_records, split_batches
from headrace.record.record import NewRecord, Record

# Lengths around those where a record's own length takes one more byte.
sizes = st.one_of(st.integers(0, 3), st.integers(50, 70), st.just(8200))
batches = st.lists(
    st.tuples(st.lists(sizes, min_size=1, max_size=40), st.integers(0, 4)), min_size=1, max_size=5
)


def partition_of(made: list[tuple[list[int], int]]) -> tuple[Partition, list[Record]]:
    topic = Topic(b"t" * 16, "jobs", 1, TopicSettings(), None)
    partition = Partition(MemoryDisk(), topic, 0, 0)
    partition.become_leader(1, 0)
    for lengths, codec in made:
        records = [
            NewRecord(b"k" * (length % 5), b"v" * length, timestamp_ms=1000 + number)
            for number, length in enumerate(lengths)
        ]
        options: dict[str, Any] = {"codec": codec}
        batch = build_batch(records, **options)
        partition.append(batch, read_header(batch), 0)
    partition.log.sync_now()
    partition.on_synced(0)
    return partition, partition.read([0, partition.high_watermark])


@given(made=batches, chosen=st.lists(st.sets(st.integers(0, 199)), min_size=1, max_size=3))
def test_what_is_asked_for_is_sent_and_a_small_part_alone(
    made: list[tuple[list[int], int]], chosen: list[set[int]]
) -> None:
    partition, records = partition_of(made)
    by_offset = {record.offset: record for record in records}
    cutter = Cutter()
    # Several times, since a batch stays open for the next bite.
    for offsets in chosen:
        runs = runs_of(sorted(offset for offset in offsets if offset in by_offset))
        covered = cutter.cover(partition, runs, 2**30)
        assert covered.held == runs and not covered.missing
        wanted = set(offsets_of(runs))
        last = -1
        for sent in covered.batches:
            [(position, header)] = split_batches(sent)
            check_batch(sent, position)
            found = read_records(sent, header)
            assert all(record == by_offset[record.offset] for record in found)
            offsets_sent = [record.offset for record in found]
            assert offsets_sent[0] > last
            last = offsets_sent[-1]
            own = wanted & set(offsets_sent)
            assert len(own) * CUT_BELOW >= len(offsets_sent)
            wanted -= own
        assert not wanted


@given(made=batches, bytes_max=st.integers(1, 20_000))
def test_an_answer_stays_within_its_bytes_or_is_one_batch(
    made: list[tuple[list[int], int]], bytes_max: int
) -> None:
    partition, records = partition_of(made)
    covered = Cutter().cover(partition, [0, len(records)], bytes_max)
    assert count_of(covered.held) > 0 and covered.held[0] == 0
    assert len(covered.batches) == 1 or sum(map(len, covered.batches)) <= bytes_max


@given(made=batches, start=st.integers(0, 150), size=st.integers(1, 60), more=st.integers(0, 60))
def test_a_run_that_may_be_longer_ends_with_a_batch_where_it_can(
    made: list[tuple[list[int], int]], start: int, size: int, more: int
) -> None:
    partition, records = partition_of(made)
    start = min(start, len(records) - 1)
    enough = min(start + size, len(records))
    reach = min(enough + more, len(records))
    covered = Cutter().cover(partition, [start, reach], 2**30, enough)
    ends = [0]
    for lengths, _ in made:
        ends.append(ends[-1] + len(lengths))
    end = next(each for each in ends if each >= enough)
    before = max(each for each in ends if each < enough)
    [first, last] = covered.held
    assert first == start and not covered.missing
    if end <= reach:
        assert last == end
    elif before >= (start + enough) // 2 and before > start and more:
        assert last == (before if enough < reach else enough)
    else:
        assert last == reach
    offsets = [
        record.offset
        for sent in covered.batches
        for _, header in split_batches(sent)
        for record in read_records(sent, header)
    ]
    assert set(range(first, last)) <= set(offsets)
