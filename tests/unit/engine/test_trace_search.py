"""Searches for messages: what they read, where a page ends, and that none is passed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.core import limits
from headrace.core.trace_values import TRACE_STATES, TracePage, TraceQuery
from headrace.engine import history, trace_search, tracing, window
from headrace.engine.history import History
from headrace.record import BatchParts, Codec, NewRecord, build_batch

STREAM, LATE = "audit", "late"


def search_all(bench: Any, query: TraceQuery, limit: int = 100) -> tuple[list[str], int]:
    """Ids of everything that is found, page after page, and how many pages there were."""
    found: list[str] = []
    after, pages = None, 0
    while True:
        page: TracePage = bench.node.traces(query, after=after, limit=limit)
        pages += 1
        found += [str(each.id) for each in page.traces]
        assert len(page.traces) <= limit
        if page.next is None:
            return found, pages
        assert page.next != after
        after = page.next


def publish_compressed(bench: Any, records: list[NewRecord], partition: int = 0) -> None:
    bench.node.publish_batch(bench.topic, partition, build_batch(records, codec=Codec.ZSTD))


def fill(bench: Any) -> None:
    """Messages in every state, seen by some groups and not by others."""
    bench.make(partitions=2, group={"backoff_ms": 5_000})
    for index in range(2):
        for number in range(10):
            records = [NewRecord(b"%d" % (number % 3), b"value", (), 1_000_000 + number)] * 2
            publish_compressed(bench, records, index)
    leased = bench.lease(30)
    receipts = [each.receipt for each in leased]
    bench.node.ack(bench.group, receipts[:10])
    bench.node.nack(bench.group, receipts[10:15])
    bench.node.reject(bench.group, receipts[15:20], reason="bad")
    bench.node.open_queue(LATE, [bench.topic], "worker", {"start": "latest"})
    for index in range(2):
        publish_compressed(bench, [NewRecord(b"1", b"last", (), 2_000_000)] * 3, index)
    bench.node.join_stream(STREAM, [bench.topic], "reader", "earliest")
    bench.node.commit(STREAM, {(bench.topic, 0): 7})


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (window, history):
        monkeypatch.setattr(module, "CHUNK", 16)
        monkeypatch.setattr(module, "CHUNK_BITS", 4)


@pytest.fixture
def histories(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each history was read for."""
    read: list[int] = []

    def make(partition: Any, carried: Any, offsets: Any) -> History:
        read.append(len(offsets))
        return History(partition, carried, offsets)

    monkeypatch.setattr(tracing, "History", make)
    return read


def test_a_search_for_an_outcome_that_no_message_has_reads_no_history(
    bench: Any, histories: list[int]
) -> None:
    bench.make()
    bench.publish(*[b"x"] * 500)
    bench.node.ack(bench.group, bench.receipts(400))
    assert search_all(bench, TraceQuery(outcome="dead-lettered")) == ([], 1)
    bench.node.open_queue(LATE, [bench.topic], "worker", {"start": "latest"})
    assert search_all(bench, TraceQuery(group=LATE, outcome="leased")) == ([], 1)
    assert not histories


@pytest.mark.usefixtures("small_chunks")
def test_of_what_a_group_never_saw_histories_are_read_once(
    bench: Any, histories: list[int]
) -> None:
    bench.make()
    bench.publish(*[b"x"] * 500)
    bench.node.open_queue(LATE, [bench.topic], "worker", {"start": "latest"})
    bench.publish(b"seen")
    # In the states of that group, what lies before its start looks acked.
    assert search_all(bench, TraceQuery(group=LATE, outcome="acked")) == ([], 1)
    assert len(histories) == 1
    assert search_all(bench, TraceQuery(group=LATE)) == ([f"{bench.topic}:0:500"], 1)


def test_of_what_matches_histories_are_read_for_one_page(bench: Any, histories: list[int]) -> None:
    bench.make()
    bench.publish(*[b"x"] * 500)
    page = bench.node.traces(TraceQuery(outcome="pending"), limit=10)
    assert (len(page.traces), page.next) == (10, f"{bench.topic}:0:10")
    assert histories == [10]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("records_max", "history_bytes_max", "limit"),
    [
        (1, 1, 3),
        (7, limits.TRACE_HISTORIES_BYTES_MAX, 3),
        (limits.TRACE_SEARCH_RECORDS_MAX, 1, 100),
    ],
)
def test_pages_together_have_what_one_look_at_everything_has(
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
    records_max: int,
    history_bytes_max: int,
    limit: int,
) -> None:
    fill(bench)
    everything = bench.node.traces(TraceQuery(), limit=1_000).traces
    assert len(everything) == 51
    monkeypatch.setattr(limits, "TRACE_SEARCH_RECORDS_MAX", records_max)
    monkeypatch.setattr(limits, "TRACE_HISTORIES_BYTES_MAX", history_bytes_max)
    for group in (None, bench.group, STREAM, LATE):
        for outcome in (None, *TRACE_STATES):
            query = TraceQuery(topic=bench.topic, group=group, outcome=outcome)
            expected = [
                str(each.id)
                for each in everything
                if each.id.topic == bench.topic and trace_search._is_wanted(each, query)
            ]
            assert search_all(bench, query, limit)[0] == expected, query


def test_a_page_ends_when_enough_records_were_looked_at(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRACE_SEARCH_RECORDS_MAX", 100)
    bench.make()
    for _ in range(50):
        bench.publish(*[b"x"] * 10)
    page = bench.node.traces(TraceQuery(outcome="expired"))
    assert page == TracePage([], f"{bench.topic}:0:100")
    assert search_all(bench, TraceQuery(outcome="expired")) == ([], 5)


def test_a_page_ends_in_the_middle_of_a_batch_that_holds_very_many(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRACE_SEARCH_RECORDS_MAX", 5_000)
    monkeypatch.setattr(trace_search, "PIECE_BYTES", 64 * 1024)
    bench.make()
    publish_compressed(bench, [NewRecord(b"k", b"x")] * 20_000 + [NewRecord(b"last", b"x")])
    found, pages = search_all(bench, TraceQuery(key=b"last"))
    assert found == [f"{bench.topic}:0:20000"]
    assert 3 <= pages <= 5


def test_what_compressed_batches_hold_counts_and_not_what_they_take(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRACE_SEARCH_BYTES_MAX", 3_000_000)
    opened: list[int] = []

    def note(batch: Any, header: Any) -> Any:
        parts = parts_of(batch, header)
        opened.append(parts.size_bytes)
        return parts

    parts_of: Callable[..., Any] = BatchParts
    monkeypatch.setattr(trace_search, "BatchParts", note)
    bench.make()
    for _ in range(10):
        publish_compressed(bench, [NewRecord(None, bytes(1_000_000))])
    page = bench.node.traces(TraceQuery(key=b"none"))
    # Together they are a few hundred bytes, and one piece.
    assert page == TracePage([], f"{bench.topic}:0:3")
    assert len(opened) == 3
    assert search_all(bench, TraceQuery(key=b"none")) == ([], 4)


def test_large_values_are_traced_a_few_at_a_time(
    bench: Any, monkeypatch: pytest.MonkeyPatch, histories: list[int]
) -> None:
    monkeypatch.setattr(trace_search, "TRACED_BYTES", 250_000)
    bench.make()
    bench.publish(*[bytes(100_000)] * 10)
    assert len(search_all(bench, TraceQuery())[0]) == 10
    assert histories == [2] * 5
