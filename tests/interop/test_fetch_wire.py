"""Fetch, said word by word: limits, waiting, sessions, and what is out of range."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import WireClient, each_version, fresh_name, make, publish

from headrace.record import NewRecord, build_batch, read_records
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated import delete_topics_request as delete
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import produce_request as produce
from headrace.wire.kafka.primitives import ZERO_UUID


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path_factory.mktemp("fetch") / "data", "--log-level", "error")
    yield process
    process.stop()


@pytest.fixture
def client(shared: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared.bootstrap) as made:
        yield made


@pytest.fixture
def topic(client: WireClient) -> Any:
    return make(client, fresh_name(), 3)


def fill(client: WireClient, topic: Any, index: int, *values: bytes) -> None:
    batch = build_batch([NewRecord(None, value, (), 1_700_000_000_000) for value in values])
    data = produce.TopicProduceData(
        topic.name, topic.topic_id, (produce.PartitionProduceData(index, bytes(batch)),)
    )
    answer = client.call("Produce", 13, produce.ProduceRequest(None, -1, 1_000, (data,)))
    assert answer.responses[0].partition_responses[0].error_code == 0


def asking(topic: Any, *places: tuple[int, int], **options: Any) -> fetch.FetchRequest:
    epoch = options.pop("leader_epoch", -1)
    partition_max_bytes = options.pop("partition_max_bytes", 1024 * 1024)
    wanted = fetch.FetchTopic(
        topic.name,
        topic.topic_id,
        tuple(
            fetch.FetchPartition(index, epoch, offset, partition_max_bytes=partition_max_bytes)
            for index, offset in places
        ),
    )
    defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50_000_000, "session_epoch": -1}
    topics = (wanted,) if places else ()
    return fetch.FetchRequest(topics=topics, **{**defaults, **options})


def partitions_of(answer: Any) -> dict[int, Any]:
    assert answer.error_code == 0
    return {each.partition_index: each for topic in answer.responses for each in topic.partitions}


def values_in(data: Any) -> list[bytes | None]:
    records = bytes(data.records or b"")
    found: list[bytes | None] = []
    while records:
        size = 12 + int.from_bytes(records[8:12], "big")
        found += [record.value for record in read_records(records[:size])]
        records = records[size:]
    return found


@each_version("Fetch")
def test_every_version_gets_the_records(client: WireClient, topic: Any, version: int) -> None:
    fill(client, topic, 0, b"a", b"b")
    found = partitions_of(client.call("Fetch", version, asking(topic, (0, 0), (1, 0))))
    assert values_in(found[0]) == [b"a", b"b"]
    assert found[0].high_watermark == 2
    assert values_in(found[1]) == []


def test_a_batch_goes_out_whole_though_an_offset_within_it_was_asked_for(
    client: WireClient, topic: Any
) -> None:
    fill(client, topic, 0, b"a", b"b", b"c")
    found = partitions_of(client.call("Fetch", 11, asking(topic, (0, 2))))
    assert values_in(found[0]) == [b"a", b"b", b"c"]


def test_the_first_batch_goes_out_whatever_the_limits_and_others_wait(
    client: WireClient, topic: Any
) -> None:
    for index in range(3):
        fill(client, topic, index, b"x" * 10_000)
        fill(client, topic, index, b"y" * 10_000)
    found = partitions_of(
        client.call("Fetch", 11, asking(topic, (0, 0), (1, 0), (2, 0), max_bytes=100))
    )
    assert [len(values_in(found[index])) for index in range(3)] == [1, 0, 0]
    found = partitions_of(
        client.call("Fetch", 11, asking(topic, (0, 0), (1, 0), (2, 0), max_bytes=25_000))
    )
    assert [len(values_in(found[index])) for index in range(3)] == [2, 0, 0]
    found = partitions_of(
        client.call("Fetch", 11, asking(topic, (0, 0), (1, 0), (2, 0), partition_max_bytes=11_000))
    )
    assert [len(values_in(found[index])) for index in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("offset", [-1, 3, 2**40])
def test_an_offset_out_of_range_is_answered_with_the_range(
    client: WireClient, topic: Any, offset: int
) -> None:
    fill(client, topic, 0, b"a", b"b")
    data = partitions_of(client.call("Fetch", 11, asking(topic, (0, offset))))[0]
    assert data.error_code == Error.OFFSET_OUT_OF_RANGE
    assert (data.log_start_offset, data.high_watermark) == (0, 2)


def test_unknown_topics_partitions_and_ids_are_told_apart(client: WireClient, topic: Any) -> None:
    missing = Error.UNKNOWN_TOPIC_OR_PARTITION
    answer = client.call("Fetch", 11, asking(topic, (9, 0)))
    assert partitions_of(answer)[9].error_code == missing
    stranger = topic._replace(name="nobody-made-this")
    assert (
        partitions_of(client.call("Fetch", 12, asking(stranger, (0, 0))))[0].error_code == missing
    )
    stranger = topic._replace(topic_id=b"\7" * 16)
    answer = client.call("Fetch", 13, asking(stranger, (0, 0)))
    assert partitions_of(answer)[0].error_code == Error.UNKNOWN_TOPIC_ID


def test_a_leader_epoch_other_than_ours_is_fenced(client: WireClient, topic: Any) -> None:
    newer = client.call("Fetch", 12, asking(topic, (0, 0), leader_epoch=1_000))
    assert partitions_of(newer)[0].error_code == Error.UNKNOWN_LEADER_EPOCH
    older = client.call("Fetch", 12, asking(topic, (0, 0), leader_epoch=0))
    data = partitions_of(older)[0]
    assert data.error_code == Error.FENCED_LEADER_EPOCH
    ours = data.current_leader.leader_epoch
    same = client.call("Fetch", 12, asking(topic, (0, 0), leader_epoch=ours))
    assert partitions_of(same)[0].error_code == 0


def test_a_long_poll_is_woken_by_a_produce(shared: NodeProcess, topic: Any) -> None:
    with WireClient(shared.bootstrap) as reader, WireClient(shared.bootstrap) as writer:
        # Far longer than the test may take: only the produce can end it.
        reader.send("Fetch", 11, asking(topic, (0, 0), (1, 0), max_wait_ms=60_000))
        fill(writer, topic, 1, b"news")
        found = partitions_of(reader.receive("Fetch", 11))
        assert values_in(found[1]) == [b"news"]


def test_a_long_poll_waits_for_as_many_bytes_as_it_asked_for(
    shared: NodeProcess, topic: Any
) -> None:
    with WireClient(shared.bootstrap) as reader, WireClient(shared.bootstrap) as writer:
        reader.send("Fetch", 11, asking(topic, (0, 0), max_wait_ms=60_000, min_bytes=3_000))
        for number in range(4):
            fill(writer, topic, 0, b"%d" % number * 1_000)
        assert len(values_in(partitions_of(reader.receive("Fetch", 11))[0])) == 3


def test_a_long_poll_ends_in_time_with_what_there_is(client: WireClient, topic: Any) -> None:
    fill(client, topic, 0, b"little")
    answer = client.call("Fetch", 11, asking(topic, (0, 0), max_wait_ms=50, min_bytes=10_000))
    assert values_in(partitions_of(answer)[0]) == [b"little"]


def test_a_long_poll_on_a_deleted_topic_ends_with_an_error(shared: NodeProcess, topic: Any) -> None:
    with WireClient(shared.bootstrap) as reader, WireClient(shared.bootstrap) as admin:
        reader.send("Fetch", 11, asking(topic, (0, 0), max_wait_ms=60_000))
        gone = delete.DeleteTopicsRequest(
            topics=(delete.DeleteTopicState(topic.name, ZERO_UUID),), timeout_ms=1_000
        )
        assert admin.call("DeleteTopics", 6, gone).responses[0].error_code == 0
        data = partitions_of(reader.receive("Fetch", 11))[0]
        assert data.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_session_tells_only_what_is_new(client: WireClient, topic: Any) -> None:
    fill(client, topic, 0, b"a")
    first = client.call("Fetch", 12, asking(topic, (0, 0), (1, 0), (2, 0), session_epoch=0))
    assert first.session_id != 0
    assert set(partitions_of(first)) == {0, 1, 2}

    def go_on(epoch: int, *places: tuple[int, int]) -> Any:
        options = {"session_id": first.session_id, "session_epoch": epoch}
        return client.call("Fetch", 12, asking(topic, *places, **options))

    assert partitions_of(go_on(1, (0, 1))) == {}
    fill(client, topic, 2, b"b")
    assert values_in(partitions_of(go_on(2))[2]) == [b"b"]
    # Not moved on by its client, so it is sent again.
    assert values_in(partitions_of(go_on(3))[2]) == [b"b"]
    assert partitions_of(go_on(4, (2, 1))) == {}
    assert go_on(4).error_code == Error.INVALID_FETCH_SESSION_EPOCH
    assert go_on(-1).session_id == 0
    assert go_on(5).error_code == Error.FETCH_SESSION_ID_NOT_FOUND


def test_within_a_session_every_partition_gets_its_turn(client: WireClient, topic: Any) -> None:
    for index in range(3):
        fill(client, topic, index, b"x" * 5_000)
    first = client.call(
        "Fetch", 12, asking(topic, (0, 0), (1, 0), (2, 0), session_epoch=0, max_bytes=10)
    )
    served = [index for index, data in partitions_of(first).items() if data.records]
    for epoch in (1, 2):
        answer = client.call(
            "Fetch",
            12,
            asking(topic, session_id=first.session_id, session_epoch=epoch, max_bytes=10),
        )
        served += [index for index, data in partitions_of(answer).items() if data.records]
    assert sorted(served) == [0, 1, 2]


def test_many_readers_are_woken_by_one_produce(shared: NodeProcess, topic: Any) -> None:
    readers = [WireClient(shared.bootstrap) for _ in range(50)]
    try:
        for reader in readers:
            reader.send("Fetch", 11, asking(topic, (0, 0), max_wait_ms=60_000))
        with WireClient(shared.bootstrap) as writer:
            fill(writer, topic, 0, b"all")
        for reader in readers:
            assert values_in(partitions_of(reader.receive("Fetch", 11))[0]) == [b"all"]
    finally:
        for reader in readers:
            reader.__exit__()


def test_nothing_is_shown_before_it_is_on_disk(shared: NodeProcess, topic: Any) -> None:
    """A reader that never stops asking never sees more than was acknowledged."""
    acked, ahead, is_over = [0], [], threading.Event()

    def read() -> None:
        with WireClient(shared.bootstrap) as reader:
            while not is_over.is_set():
                seen = partitions_of(reader.call("Fetch", 11, asking(topic, (0, 0))))[0]
                # One produce may be on disk and its answer still on its way.
                if seen.high_watermark > acked[0] + 1:
                    ahead.append(seen.high_watermark)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        with WireClient(shared.bootstrap) as writer:
            for _ in range(100):
                publish(writer, topic.name, 1)
                acked[0] += 1
    finally:
        is_over.set()
        thread.join(30)
    assert ahead == []
