"""The numbers of `headrace bench` mean what they say."""

from __future__ import annotations

from headrace.cli.bench import BUCKETS_MAX, Round, histogram


def test_a_percentile_is_the_time_that_so_many_calls_kept_to() -> None:
    calls = [(1, milliseconds / 1000) for milliseconds in range(1, 101)]
    measured = Round("publish", 1, calls)
    assert round(measured.percentile_ms(50)) == 50
    assert round(measured.percentile_ms(99)) == 99
    assert round(measured.percentile_ms(100)) == 100


def test_the_rate_counts_messages_and_not_calls() -> None:
    measured = Round("publish", 10, [(10, 0.5), (10, 0.5)])
    assert measured.messages == 20
    assert round(measured.rate) == 20


def test_a_single_call_is_every_percentile() -> None:
    measured = Round("publish", 1, [(1, 0.002)])
    assert {measured.percentile_ms(share) for share in (1, 50, 99, 100)} == {2.0}


def test_the_histogram_counts_every_call_once() -> None:
    lines = list(histogram([1.0, 1.5, 2.0, 3.9, 4.0, 1_000_000.0]))
    counts = [int(line.split()[2]) for line in lines]
    assert counts[:3] == [2, 2, 1]
    assert counts[-1] == 1
    assert len(lines) == BUCKETS_MAX
