"""What a read takes from the log: as much as its answer has, and not more."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.values import Outgoing

TOPIC = "records"


@pytest.fixture
def reads(bench: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each look into the log has brought."""
    bench.node.create_topic(TOPIC, partitions=1, settings={"segment_bytes": 1024 * 1024})
    log = bench.partition(topic=TOPIC).log
    real = log.read
    sizes: list[int] = []

    def read(*args: Any) -> Any:
        data = real(*args)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(log, "read", read)
    return sizes


def test_large_records_are_not_read_before_they_fit(bench: Any, reads: list[int]) -> None:
    for index in range(40):
        bench.node.publish(TOPIC, [Outgoing(bytes([index]) * 100_000)])
    offset = 0
    for expected in (range(3), range(3, 6)):
        found, offset = bench.node.read(TOPIC, 0, offset, count_max=1_000, bytes_max=250_000)
        assert [record.offset for record in found] == list(expected)
        assert [record.value[0] for record in found] == list(expected)
    assert sum(reads) < 1_000_000


def test_headers_count_as_bytes_too(bench: Any, reads: list[int]) -> None:
    headers = (("note", b"x" * 50_000),)
    bench.node.publish(TOPIC, [Outgoing(b"", None, headers) for _ in range(20)])
    found, offset = bench.node.read(TOPIC, 0, 0, count_max=1_000, bytes_max=120_000)
    assert len(found) == offset == 3


def test_a_gap_is_one_step_however_few_records_are_wanted(bench: Any, reads: list[int]) -> None:
    bench.node.alter_topic(TOPIC, {"cleanup": "compact"})
    for _ in range(24):
        bench.node.publish(TOPIC, [Outgoing(b"v" * 50, b"key") for _ in range(1_000)])
    bench.skip(31_000)
    bench.node.publish(TOPIC, [Outgoing(b"v", b"other")])
    partition = bench.partition(topic=TOPIC)
    end = partition.last_stable_offset
    offset, steps = 0, 0
    while not (found := partition.records.read_next(offset, 1, end, partition.aborted_between))[0]:
        offset, steps = found[1], steps + 1
    assert found[0][0].offset > 10_000
    assert steps < 10
    [record], offset = bench.node.read(TOPIC, 0, 0, count_max=1)
    assert (record.offset, offset) == (found[0][0].offset, found[1])
