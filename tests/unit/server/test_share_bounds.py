"""How much of a partition a share group may have out, and where it begins."""

from __future__ import annotations

import pytest
from tests.unit.server.asking import run
from tests.unit.server.share_door import ACCEPT, GROUP, Shared, ranges

from headrace.core.errors import InvalidArgument
from headrace.core.settings import GroupSettings, start_age_ms
from headrace.record import build_batch, read_header
from headrace.record.record import NewRecord


def test_no_more_of_a_partition_is_out_than_the_group_allows() -> None:
    async def scenario() -> None:
        shared = Shared(leases_per_partition_max=3)
        await shared.beat()
        await shared.beat("m2")
        await shared.publish(*[b"x"] * 10)
        assert ranges(await shared.fetch(0, count=2, exact=True)) == [(0, 1, 1)]
        assert ranges(await shared.fetch(0, "m2", exact=True)) == [(2, 2, 1)]
        assert ranges(await shared.fetch(1, "m2", exact=True)) == []
        acks = ((0, 1, (ACCEPT,)),)
        assert ranges(await shared.fetch(1, acks=acks, exact=True)) == [(3, 4, 1)]

    run(scenario)


def test_a_batch_is_given_whole_whatever_a_client_asks_for_unless_it_says_otherwise() -> None:
    async def scenario() -> None:
        shared = Shared(leases_per_partition_max=12)
        await shared.beat()
        for _ in range(3):
            await shared.publish(*[b"x"] * 10)
        assert ranges(await shared.fetch(0, count=5)) == [(0, 9, 1)]
        # There is room for two.
        assert ranges(await shared.fetch(1, count=5)) == [(10, 11, 1)]
        assert ranges(await shared.fetch(2, count=5)) == []
        acks = ((0, 11, (ACCEPT,)),)
        assert ranges(await shared.fetch(3, count=1, acks=acks)) == [(12, 19, 1)]
        # Of a batch that is larger than what may be out, as much as that.
        await shared.publish(*[b"x"] * 30)
        acks = ((12, 19, (ACCEPT,)),)
        assert ranges(await shared.fetch(4, count=10, acks=acks)) == [(20, 29, 1)]
        acks = ((20, 29, (ACCEPT,)),)
        assert ranges(await shared.fetch(5, count=5, acks=acks)) == [(30, 41, 1)]
        acks = ((30, 41, (ACCEPT,)),)
        assert ranges(await shared.fetch(6, count=5, acks=acks, exact=True)) == [(42, 46, 1)]

    run(scenario)


def test_who_asks_for_no_bytes_gets_none_and_who_asks_for_one_gets_a_record() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.publish(b"x")
        assert ranges(await shared.fetch(0, bytes_max=0)) == []
        assert ranges(await shared.fetch(1, bytes_max=1)) == [(0, 0, 1)]

    run(scenario)


def test_a_group_begins_with_what_is_not_older_than_it_says() -> None:
    async def scenario() -> None:
        shared = Shared()
        now_ms = shared.service.clock.now_ms()
        place = shared.broker.topics.partition(shared.topic, 0)
        for age_ms in (7_200_000, 5_000_000, 60_000):
            batch = build_batch([NewRecord(None, b"x", timestamp_ms=now_ms - age_ms)])
            place.append(batch, read_header(batch), now_ms)
        commit = shared.service.commit()
        commit.data.append((place, place.log.end_offset))
        await shared.service.finish(commit)
        broker = shared.broker
        broker.groups.alter(broker.groups.named(GROUP), {"start": "by_duration:PT1H30M"}, now_ms)
        await shared.beat()
        assert ranges(await shared.fetch(0)) == [(1, 2, 1)]

    run(scenario)


@pytest.mark.parametrize(
    ("start", "age_ms"),
    [
        ("by_duration:P1D", 86_400_000),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P1DT0.5S", 86_400_500),
    ],
)
def test_a_duration_is_one_of_iso_8601(start: str, age_ms: int) -> None:
    assert start_age_ms(start) == age_ms
    assert GroupSettings(start=start).start == start


@pytest.mark.parametrize(
    "start", ["", "by_duration:", "by_duration:P", "by_duration:PT", "P1D", "first"]
)
def test_where_a_group_begins_has_to_be_known(start: str) -> None:
    with pytest.raises(InvalidArgument, match="start"):
        GroupSettings(start=start)
