"""The survey and the samples of the last minutes, on a node without a socket."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.asking import Asking, run

from headrace.calls import Face
from headrace.core.quantiles import quantile_ms
from headrace.core.values import Outgoing
from headrace.platform.memory_disk import MemoryDisk
from headrace.server import live
from headrace.server.live import PUBLISHING, sample_between, totals_of
from headrace.server.loop_calls import Calls
from headrace.server.metrics.counting import Histogram
from headrace.server.survey import FRESH_SECONDS, Survey
from headrace.testing.manual_clock import ManualClock
from headrace.wire.remote.methods import METHODS


def test_a_quantile_lies_in_its_bucket_where_its_rank_does() -> None:
    histogram = Histogram((0.001, 0.002, 0.004))
    assert quantile_ms(histogram.bounds, [0, 0, 0, 0], 0.5) is None
    assert quantile_ms(histogram.bounds, [0, 10, 0, 0], 0.5) == pytest.approx(1.5)
    assert quantile_ms(histogram.bounds, [50, 50, 0, 0], 0.5) == pytest.approx(1.0)
    assert quantile_ms(histogram.bounds, [98, 0, 2, 0], 0.99) == pytest.approx(3.0)
    # Above the last bound nothing more is known.
    assert quantile_ms(histogram.bounds, [0, 0, 0, 5], 0.99) == pytest.approx(4.0)


def test_publishing_by_the_sdk_is_measured_under_the_names_that_it_has() -> None:
    assert {api for door, api in PUBLISHING if door == "sdk"} <= METHODS.keys()


def test_everybody_who_asks_at_once_gets_the_same_picture() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        survey = Survey(asking.service)
        first, second = await asyncio.gather(survey.look(), survey.look())
        assert first is second and await survey.look() is first
        await Calls(asking.service, door="test").run(Face.create_topic, "orders", partitions=4)
        # What was made since is in it at once.
        assert (await survey.look()).topics["orders"].partitions == 4
        await survey.close()

    run(scenario)


def test_a_sample_says_what_happened_between_two_looks() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        asking = Asking(MemoryDisk(), clock=clock)
        service = asking.service
        calls = Calls(service, door="test", auto_create=True)
        survey = Survey(service)
        await calls.run(Face.create_topic, "orders", partitions=1)
        await calls.run(Face.open_queue, "billing", ["orders"], "worker")
        before = await survey.look(), totals_of(service.counts)

        await calls.run(Face.publish, "orders", [Outgoing(b"x")] * 20)
        leased = await calls.run(Face.lease, "billing", ["orders"], "worker", 6)
        receipts = [each.receipt for each in leased]
        await calls.run(Face.nack, "billing", receipts[:2], delay_ms=60_000)
        await calls.run(Face.reject, "billing", receipts[2:3], reason="no")
        clock.skip(2)
        await asking.skip(FRESH_SECONDS + 1)
        after = await survey.look(), totals_of(service.counts)
        sample = sample_between(*before, *after, service.counts)

        assert (sample.messages_in, sample.messages_out) == (10.0, 3.0)
        assert (sample.ready, sample.leased, sample.delayed) == (14, 3, 2)
        assert (sample.failures, sample.letters) == (1.5, 1)
        assert after[0].topic_rates["orders"].taken == 10.0
        assert after[0].groups["billing"].dead_lettered == 1
        assert after[0].letters == {"orders": 1}
        await survey.close()

    run(scenario)


def test_the_ring_keeps_so_many_samples_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.core.limits.LIVE_SAMPLES_MAX", 3)

    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        ring = live.Live(asking.service, Survey(asking.service))
        assert ring.samples.maxlen == 3
        ring.open()
        await ring.close()

    run(scenario)
