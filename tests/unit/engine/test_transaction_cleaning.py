"""Retention and compaction of transactions: no marker goes before its records do."""

from __future__ import annotations

from tests.unit.engine.conftest import Bench
from tests.unit.engine.transactions import Writer

from headrace.engine.records import iterate_batches
from headrace.record import read_header

COMPACTED = {
    "cleanup": "compact",
    "dirty_ratio_min": 0,
    "segment_bytes": 1024,
    "tombstone_ms": 1_000,
}


def begin(bench: Bench, **settings: object) -> Writer:
    bench.node.create_topic(bench.topic, partitions=1, settings=settings)
    return Writer(bench.partition(), bench.clock.time_ms)


def clean(bench: Bench, writer: Writer) -> None:
    """Seal what is there, and let the node do its housekeeping."""
    writer.partition.log.roll(writer.now_ms)
    writer.sync()
    bench.node._broker.maintain(bench.clock.time_ms)


def stored(bench: Bench) -> list[tuple[int, int, bool]]:
    """Base offset, producer, and whether it is a marker, of every batch on disk."""
    log = bench.partition().log
    found = []
    for data, position in iterate_batches(log, log.start_offset, log.end_offset):
        header = read_header(data, position)
        found.append((header.base_offset, header.producer_id, header.is_control))
    return found


def streamed(bench: Bench) -> list[tuple[int, bytes | None]]:
    records, _ = bench.node.read(bench.topic, 0, bench.partition().log.start_offset)
    return [(record.offset, record.value) for record in records]


def test_compaction_drops_what_was_aborted_and_keeps_what_it_did_not_supersede(
    bench: Bench,
) -> None:
    writer = begin(bench, **COMPACTED)
    writer.write(-1, b"kept", key=b"a")
    writer.write(1, b"void", key=b"a")
    writer.write(2, b"new", key=b"b")
    writer.abort(1)
    writer.commit(2)
    writer.write(-1, b"end", key=b"z")
    clean(bench, writer)
    assert stored(bench) == [
        (0, -1, False),
        (2, 2, False),
        (3, 1, True),
        (4, 2, True),
        (5, -1, False),
    ]
    assert streamed(bench) == [(0, b"kept"), (2, b"new"), (5, b"end")]
    assert bench.partition().aborted_between(0, 99) == []
    bench.crash()
    assert bench.partition().last_stable_offset == 6
    assert streamed(bench) == [(0, b"kept"), (2, b"new"), (5, b"end")]


def test_a_marker_goes_when_its_records_are_gone_and_everybody_had_time_to_see_it(
    bench: Bench,
) -> None:
    writer = begin(bench, **COMPACTED)
    writer.write(1, b"void", key=b"a")
    writer.abort(1)
    writer.write(2, b"old", key=b"b")
    writer.commit(2)
    writer.write(3, b"stays", key=b"c")
    writer.commit(3)
    writer.write(-1, b"new", key=b"b")
    clean(bench, writer)
    markers = [1, 3, 5]
    assert [base for base, _, control in stored(bench) if control] == markers
    bench.skip(999)
    clean(bench, writer)
    assert [base for base, _, control in stored(bench) if control] == markers
    bench.skip(1)
    clean(bench, writer)
    # The one whose record lives stays with it.
    assert [base for base, _, control in stored(bench) if control] == [5]
    bench.crash()
    assert bench.partition().open_transactions() == []
    assert bench.partition().last_stable_offset == 7
    assert streamed(bench) == [(4, b"stays"), (6, b"new")]


def test_a_marker_in_a_later_segment_waits_for_records_in_an_earlier_one(bench: Bench) -> None:
    writer = begin(bench, **COMPACTED)
    writer.write(1, b"x" * 900, key=b"a")
    writer.write(1, b"y" * 900, key=b"b")
    writer.commit(1)
    writer.write(-1, b"z" * 900, key=b"b")
    clean(bench, writer)
    bench.skip(10_000)
    clean(bench, writer)
    assert (2, 1, True) in stored(bench)
    bench.crash()
    assert bench.partition().last_stable_offset == 4
    writer = Writer(bench.partition(), bench.clock.time_ms)
    # A batch that ends its segment stays without records until segments are joined.
    for _ in range(4):
        writer.write(-1, b"new", key=b"a")
        clean(bench, writer)
        bench.skip(10_000)
        bench.crash()
        writer = Writer(bench.partition(), bench.clock.time_ms)
        end = bench.partition().log.end_offset
        assert bench.partition().last_stable_offset == end
        assert streamed(bench) == [(3, b"z" * 900), (end - 1, b"new")]
    assert (0, 1, False) not in stored(bench)


def test_nothing_undecided_is_compacted(bench: Bench) -> None:
    writer = begin(bench, **COMPACTED)
    writer.write(-1, b"old", key=b"a")
    writer.write(1, b"open", key=b"b")
    writer.write(-1, b"new", key=b"a")
    clean(bench, writer)
    assert len(stored(bench)) == 3
    writer.commit(1)
    clean(bench, writer)
    assert [base for base, _, _ in stored(bench)] == [1, 2, 3]


def test_a_transaction_that_ends_in_the_active_segment_is_compacted_later(bench: Bench) -> None:
    writer = begin(bench, **COMPACTED)
    writer.write(1, b"one", key=b"a")
    writer.partition.log.roll(writer.now_ms)
    writer.commit(1)
    writer.sync()
    bench.node._broker.maintain(bench.clock.time_ms)
    writer.write(2, b"two", key=b"a")
    writer.commit(2)
    clean(bench, writer)
    assert streamed(bench) == [(2, b"two")]


def test_an_aborted_batch_at_the_end_of_a_segment_keeps_its_marker(bench: Bench) -> None:
    writer = begin(bench, **COMPACTED)
    writer.write(1, b"v" * 900, key=b"a")
    writer.write(1, b"w" * 900, key=b"a")
    writer.abort(1)
    writer.write(-1, b"end", key=b"z")
    for _ in range(3):
        clean(bench, writer)
        bench.skip(2_000)
    assert streamed(bench) == [(3, b"end")]
    bench.crash()
    assert bench.partition().last_stable_offset == 4
    assert bench.partition().open_transactions() == []
    assert streamed(bench) == [(3, b"end")]


def test_time_does_not_take_what_is_undecided(bench: Bench) -> None:
    writer = begin(bench, retention_ms=1_000, segment_bytes=1024)
    writer.write(-1, b"a" * 900)
    writer.write(1, b"b" * 900)
    writer.write(-1, b"c" * 900)
    writer.sync()
    bench.skip(10_000)
    clean(bench, writer)
    assert bench.partition().log.start_offset == 1
    writer.abort(1)
    writer.sync()
    bench.node._broker.maintain(bench.clock.time_ms)
    assert bench.partition().log.start_offset == 4


def test_acks_do_not_take_what_is_undecided(bench: Bench) -> None:
    writer = begin(bench, retention="acked", segment_bytes=1024)
    bench.node.open_queue(bench.group, [bench.topic], "ann", {"isolation": "read_uncommitted"})
    writer.write(1, b"a" * 900)
    writer.write(1, b"b" * 900)
    writer.sync()
    bench.node.ack(bench.group, bench.receipts())
    clean(bench, writer)
    assert bench.partition().log.start_offset == 0
    writer.commit(1)
    clean(bench, writer)
    assert bench.partition().log.start_offset == 3
