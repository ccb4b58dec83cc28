"""Runs of Produce requests through a connection: what is stored and answered is what
one request at a time would have brought."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from tests.twins import both
from tests.unit.server import connected
from tests.unit.server.connected import Producing

from headrace.core.ports import Disk
from headrace.engine import contents
from headrace.record import Codec, NewRecord, build_batch
from headrace.record.batch import CONTROL, HEADER_BYTES, seal_batch
from headrace.server.deletion import delete_topics
from headrace.server.kafka import produce_runs
from headrace.server.kafka.connection import OPEN_REQUESTS_MAX
from headrace.server.kafka.errors import Error
from headrace.testing.fault_disk import FaultDisk
from headrace.wire.kafka.produce_run import Run, write_answers


@pytest.fixture(params=both("headrace.wire.kafka.produce_run.read_run"), autouse=True)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_runs, "read_run", request.param)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests each run had that was taken."""
    lengths: list[int] = []

    def note(answers: Any, run: Run) -> bytes:
        lengths.append(len(run.order))
        return write_answers(answers, run)

    monkeypatch.setattr(produce_runs, "write_answers", note)
    return lengths


def play(
    scenario: Callable[[Producing], Awaitable[None]], disk: Disk | None = None, **settings: Any
) -> None:
    connected.play(partial(Producing, disk, **settings), scenario)


def batch_of(*values: bytes, **options: Any) -> bytearray:
    records = [NewRecord(None, value, (), 1_700_000_000_000) for value in values]
    return build_batch(records, **options)


@pytest.mark.parametrize("durability", ["synced", "os"])
def test_a_run_is_stored_and_answered_in_order(durability: str, runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        wanted = [b"%d" % number for number in range(200)]
        bench.send(b"".join(bench.request(batch_of(value)) for value in wanted))
        answers = await bench.answers(200)
        assert answers == [(number + 1, 0, number) for number in range(200)]
        assert bench.stored() == wanted
        assert runs == [199]
        assert bench.connection.is_idle

    play(scenario, durability=durability)


def test_batches_of_several_records_get_the_offsets_of_their_first(runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        sizes = [3, 1, 5, 2]
        bench.send(b"".join(bench.request(batch_of(*[b"x"] * size)) for size in sizes))
        offsets = [offset for _, _, offset in await bench.answers(4)]
        assert offsets == [0, 3, 4, 9]
        assert runs == [3]

    play(scenario)


def test_requests_that_arrive_in_pieces_are_the_same_requests(runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        wanted = [b"%d" % number for number in range(20)]
        data = b"".join(bench.request(batch_of(value)) for value in wanted)
        for at in range(0, len(data), 61):
            bench.send(data[at : at + 61])
        assert [answer[2] for answer in await bench.answers(20)] == list(range(20))
        assert bench.stored() == wanted
        assert set(runs) == {1}

    play(scenario)


def test_a_run_may_be_to_several_partitions_once_each_was_written_to(runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        indexes = [0, 1, 0, 0, 1, 1, 1, 0]
        bench.send(b"".join(bench.request(batch_of(b"%d" % each), index=each) for each in indexes))
        offsets = [offset for _, _, offset in await bench.answers(8)]
        assert offsets == [0, 0, 1, 2, 1, 2, 3, 3]
        assert bench.stored(0) == [b"0"] * 4
        assert bench.stored(1) == [b"1"] * 4
        assert runs == [6]

    play(scenario)


@pytest.mark.parametrize("refused", [0, 1])
def test_what_is_refused_of_one_partition_is_answered_in_its_place(
    refused: int, runs: list[int]
) -> None:
    async def scenario(bench: Producing) -> None:
        def sent(index: int, sequence: int) -> bytes:
            batch = batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence)
            return bench.request(batch, index=index)

        bench.send(sent(0, 0) + sent(1, 0))
        assert [answer[1:] for answer in await bench.answers(2)] == [(0, 0), (0, 0)]
        # One of them goes on with a gap, the other one does not.
        first = {refused: 5, 1 - refused: 1}
        indexes = [0, 1, 1, 0]
        asked = [
            sent(index, first[index] + indexes[:at].count(index))
            for at, index in enumerate(indexes)
        ]
        bench.send(b"".join(asked))
        answers = await bench.answers(4)
        assert [number for number, _, _ in answers] == [3, 4, 5, 6]
        gap = Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        good = iter([(0, 1), (0, 2)])
        assert [answer[1:] for answer in answers] == [
            gap if index == refused else next(good) for index in indexes
        ]
        assert runs == [4]
        assert bench.connection.is_idle

    play(scenario)


def test_what_is_repeated_to_one_partition_is_answered_as_before(runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        def sent(index: int, sequence: int) -> bytes:
            batch = batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence)
            return bench.request(batch, index=index)

        bench.send(sent(0, 0) + sent(1, 0) + sent(1, 1))
        await bench.answers(3)
        bench.send(sent(1, 1) + sent(0, 1))
        assert [answer[1:] for answer in await bench.answers(2)] == [(0, 1), (0, 1)]
        assert (len(bench.stored(0)), len(bench.stored(1))) == (2, 2)

    play(scenario)


def test_what_is_handled_one_by_one_waits_behind_what_is_for_a_thread(runs: list[int]) -> None:
    """Ids against duplicates: there are no runs, though the requests are found as one."""

    async def scenario(bench: Producing) -> None:
        small = batch_of(b"small")
        large = batch_of(bytes(contents.LIGHT_BYTES * 2), codec=Codec.ZSTD)
        bench.send(bench.request(small))
        await bench.answers(1)
        bench.send(b"".join(map(bench.request, [small, large, small, small])))
        assert [answer[1:] for answer in await bench.answers(4)] == [(0, at) for at in range(1, 5)]
        sizes = [len(value or b"") for value in bench.stored()]
        assert sizes == [5, 5, contents.LIGHT_BYTES * 2, 5, 5]
        assert runs == []

    play(scenario, dedup=True)


def test_a_damaged_batch_is_refused_alone(runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        damaged = batch_of(b"damaged")
        damaged[-1] ^= 1
        control = batch_of(b"control")
        struct.pack_into(">h", control, 21, CONTROL)
        seal_batch(control, 0, len(control))
        good = [batch_of(b"%d" % number) for number in range(5)]
        sent = [good[0], good[1], damaged, good[2], control, good[3], good[4]]
        bench.send(b"".join(bench.request(each) for each in sent))
        answers = await bench.answers(7)
        bad = Error.CORRUPT_MESSAGE, Error.INVALID_RECORD
        assert [code for _, code, _ in answers] == [0, 0, bad[0], 0, bad[1], 0, 0]
        assert [offset for _, _, offset in answers] == [0, 1, -1, 2, -1, 3, 4]
        assert runs == [1, 1, 2]

    play(scenario)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_with_nonsense_in_it_is_refused_alone(codec: Codec, runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        good = [batch_of(b"%d" % number, codec=codec) for number in range(6)]
        nonsense = good[0][:]
        nonsense[HEADER_BYTES:] = bytes(len(nonsense) - HEADER_BYTES)
        seal_batch(nonsense, 0, len(nonsense))
        sent = [*good[:3], nonsense, *good[3:]]
        bench.send(b"".join(bench.request(each) for each in sent))
        answers = await bench.answers(7)
        assert [code for _, code, _ in answers] == [0, 0, 0, Error.INVALID_RECORD, 0, 0, 0]
        assert bench.stored() == [b"%d" % number for number in range(6)]

    play(scenario)


def test_what_holds_much_ends_a_run_and_goes_on_behind_it(runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        large = bytes(contents.LIGHT_BYTES // 3)
        bench.broker.topics.check_records = "all"
        batches = [batch_of(large, codec=Codec.ZSTD) for _ in range(7)]
        bench.send(b"".join(map(bench.request, batches)))
        assert [answer[1:] for answer in await bench.answers(7)] == [(0, at) for at in range(7)]
        assert runs == [2, 2, 2]

    play(scenario)


def test_what_holds_much_ends_a_run_of_several_partitions(runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        large = bytes(contents.LIGHT_BYTES // 3)
        bench.broker.topics.check_records = "all"
        indexes = [0, 1, 0, 1, 1, 0, 1, 0, 0]
        bench.send(
            b"".join(
                bench.request(batch_of(large, codec=Codec.ZSTD), index=each) for each in indexes
            )
        )
        wanted = [(0, indexes[:at].count(index)) for at, index in enumerate(indexes)]
        assert [answer[1:] for answer in await bench.answers(9)] == wanted
        assert sum(runs) == 7 and max(runs) == 2

    play(scenario)


def test_a_producer_that_repeats_a_run_is_answered_with_its_first_offsets(
    runs: list[int],
) -> None:
    async def scenario(bench: Producing) -> None:
        def sent() -> bytes:
            batches = [
                batch_of(b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
                for number in range(4)
            ]
            return b"".join(map(bench.request, batches))

        bench.send(sent())
        first = await bench.answers(4)
        bench.send(sent())
        again = await bench.answers(4)
        assert [answer[1:] for answer in first] == [answer[1:] for answer in again]
        assert bench.stored() == [b"0", b"1", b"2", b"3"]
        assert runs == [3]
        following = batch_of(b"4", producer_id=7, producer_epoch=0, base_sequence=4)
        bench.send(bench.request(following))
        assert (await bench.answers(1))[0][1:] == (0, 4)

    play(scenario)


def test_a_gap_in_the_sequence_is_refused_though_a_run_went_before(runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        sequences = [0, 1, 2, 9, 3]
        bench.send(
            b"".join(
                bench.request(batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=each))
                for each in sequences
            )
        )
        codes = [code for _, code, _ in await bench.answers(5)]
        assert codes == [0, 0, 0, Error.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]

    play(scenario)


def test_a_batch_that_is_too_large_is_refused_alone() -> None:
    async def scenario(bench: Producing) -> None:
        sizes = [10, 10, 4000, 10]
        bench.send(b"".join(bench.request(batch_of(b"x" * size)) for size in sizes))
        codes = [code for _, code, _ in await bench.answers(4)]
        assert codes == [0, 0, Error.MESSAGE_TOO_LARGE, 0]
        # To the byte, as Kafka counts it: the whole batch.
        largest, over = batch_of(b"x" * 1930), batch_of(b"x" * 1931)
        assert (len(largest), len(over)) == (2000, 2001)
        for batch, code in ((largest, 0), (over, Error.MESSAGE_TOO_LARGE)):
            bench.send(bench.request(batch))
            assert (await bench.answers(1))[0][1] == code

    play(scenario, record_bytes_max=2000)


def test_a_failed_sync_is_told_to_every_request_of_the_run() -> None:
    disk = FaultDisk()

    async def scenario(bench: Producing) -> None:
        bench.send(b"".join(bench.request(batch_of(b"safe"), index=each) for each in (0, 1)))
        assert [code for _, code, _ in await bench.answers(2)] == [0, 0]
        disk.fail_syncs = True
        indexes = (0, 1, 1)
        bench.send(b"".join(bench.request(batch_of(b"x"), index=each) for each in indexes))
        answers = await bench.answers(3)
        assert [(number, code) for number, code, _ in answers] == [
            (number, Error.KAFKA_STORAGE_ERROR) for number in (3, 4, 5)
        ]

    play(scenario, disk)


def test_a_run_is_no_longer_than_the_requests_that_may_be_open(runs: list[int]) -> None:
    async def scenario(bench: Producing) -> None:
        count = OPEN_REQUESTS_MAX + 100
        bench.send(bench.request(batch_of(b"x")))
        await bench.answers(1)
        # Nothing is answered before the sync, and reading stops when the limit is
        # reached; what came already is handled when there is room.
        one = bench.request(batch_of(b"x"))
        data = one * count
        assert len(data) < 256 * 1024
        bench.send(data)
        assert not bench.line.is_reading_now
        assert runs == [OPEN_REQUESTS_MAX]
        offsets = [offset for _, _, offset in await bench.answers(count)]
        assert offsets == list(range(1, count + 1))
        assert bench.line.is_reading_now

    play(scenario)


def test_the_route_of_a_deleted_topic_leads_to_a_refusal() -> None:
    async def scenario(bench: Producing) -> None:
        bench.send(bench.request(batch_of(b"x")))
        await bench.answers(1)
        bench.broker.delete_topic(bench.topic, 0, bench.service.commit())
        bench.send(bench.request(batch_of(b"x")) * 2)
        codes = [code for _, code, _ in await bench.answers(2)]
        assert codes == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 2

    play(scenario)


@pytest.mark.parametrize("is_run", [False, True])
def test_a_topic_that_goes_before_the_sync_is_told_to_every_request(
    is_run: bool, runs: list[int]
) -> None:
    async def scenario(bench: Producing) -> None:
        count = 3 if is_run else 1
        if is_run:
            bench.send(bench.request(batch_of(b"x")))
            await bench.answers(1)
        bench.send(b"".join(bench.request(batch_of(b"x")) for _ in range(count)))
        await delete_topics(bench.service, [bench.topic])
        codes = [code for _, code, _ in await bench.answers(count)]
        assert codes == [Error.UNKNOWN_TOPIC_OR_PARTITION] * count
        assert runs == ([3] if is_run else [])

    play(scenario)
