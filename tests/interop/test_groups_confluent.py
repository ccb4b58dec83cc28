"""Consumer groups as confluent-kafka runs them, in both of Kafka's protocols."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import (
    PROTOCOLS,
    TOPIC,
    Member,
    make_topic,
    publish,
    quiet,
    settings_of,
    share,
    tell,
    wait_until,
)

INCREMENTAL = ("cooperative-sticky", "consumer")


@contextmanager
def members(*started: Member) -> Iterator[list[Member]]:
    running = list(started)
    try:
        yield running
    finally:
        for member in running:
            member.close()


class Load:
    """Publishes numbers until it is stopped; keeps those that were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: set[str] = set()
        self._stop = threading.Event()
        self._producer = Producer(
            {
                **quiet(bootstrap),
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "enable.idempotence": True,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = str(number)
            self._producer.produce(
                TOPIC, value.encode(), key=value.encode(), on_delivery=self._on_delivery
            )
            self._producer.poll(0.001)
            number += 1

    def _on_delivery(self, error: KafkaError | None, message: object) -> None:
        if error is None:
            self.acknowledged.add(message.value().decode())  # type: ignore[attr-defined]
            tell()

    def stop(self) -> set[str]:
        self._stop.set()
        self._thread.join(30)
        assert self._producer.flush(30) == 0
        return self.acknowledged


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_group_goes_on_where_it_committed_after_a_restart_of_the_node(
    node: NodeProcess, protocol: str
) -> None:
    make_topic(node.bootstrap)
    before = [f"before {number}" for number in range(300)]
    publish(node.bootstrap, before)
    with members(Member(node.bootstrap, "billing", protocol)) as (first,):
        wait_until(lambda: len(first.values) >= 300, "the first member reads everything")
    assert sorted(first.values) == sorted(before)
    node.restart()
    after = [f"after {number}" for number in range(30)]
    publish(node.bootstrap, after)
    with members(Member(node.bootstrap, "billing", protocol)) as (second,):
        wait_until(lambda: len(second.values) >= 30, "the second member reads the rest")
    assert sorted(second.values) == sorted(after)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_message_is_seen_while_members_come_and_go(node: NodeProcess, protocol: str) -> None:
    make_topic(node.bootstrap, partitions=6)
    load = Load(node.bootstrap)
    with members(*(Member(node.bootstrap, "billing", protocol) for _ in range(2))) as running:
        wait_until(lambda: share(running, 6), "two members share the topic")
        running += [Member(node.bootstrap, "billing", protocol) for _ in range(2)]
        wait_until(lambda: share(running, 6), "four members share the topic")
        for leaver in running[:2]:
            leaver.close()
        wait_until(lambda: share(running[2:], 6), "the last two members share the topic")
        published = load.stop()
        wait_until(
            lambda: published <= {value for member in running for value in member.values},
            "every message that was acknowledged is seen",
        )
    assert published


@pytest.mark.parametrize("protocol", INCREMENTAL)
def test_partitions_that_stay_are_not_stopped_by_a_rebalance(
    node: NodeProcess, protocol: str
) -> None:
    make_topic(node.bootstrap, partitions=6)
    with members(Member(node.bootstrap, "billing", protocol)) as running:
        first = running[0]
        wait_until(lambda: share(running, 6), "one member has everything")
        running.append(Member(node.bootstrap, "billing", protocol))
        wait_until(lambda: share(running, 6), "two members share the topic")
        moved = [parts for what, parts in first.events if what != "assigned"]
        kept = {index for _, index in first.owned}
        assert len(kept) == 3
        assert not any(parts & kept for parts in moved)
        assert all(what != "lost" for what, _ in first.events)


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_static_member_gets_its_part_back_and_nobody_notices(
    node: NodeProcess, protocol: str
) -> None:
    make_topic(node.bootstrap)
    names = ("east", "west")
    started = [
        Member(node.bootstrap, "billing", protocol, group_instance_id=name) for name in names
    ]
    with members(*started) as running:
        wait_until(lambda: share(running, 4), "two members share the topic")
        east, west = running
        part, noticed = west.owned, len(east.events)
        west.close()
        back = Member(node.bootstrap, "billing", protocol, group_instance_id="west")
        running.append(back)
        wait_until(lambda: back.owned, "the static member is back")
        assert back.owned == part
        publish(node.bootstrap, [str(number) for number in range(100)])
        wait_until(
            lambda: len({*east.values, *back.values}) == 100, "both go on reading their parts"
        )
        assert len(east.events) == noticed


def test_an_instance_id_that_is_taken_over_shuts_out_its_former_holder(node: NodeProcess) -> None:
    make_topic(node.bootstrap)
    old = Member(node.bootstrap, "billing", "range", group_instance_id="east")
    with members(old) as running:
        wait_until(lambda: share([old], 4), "the first holder has everything")
        running.append(Member(node.bootstrap, "billing", "range", group_instance_id="east"))
        wait_until(lambda: "fenced" in old.fatal, "the first holder is told")
        wait_until(lambda: share(running[1:], 4), "the second holder has everything")


def test_an_instance_id_in_use_is_not_given_to_a_second_member(node: NodeProcess) -> None:
    make_topic(node.bootstrap)
    holder = Member(node.bootstrap, "billing", "consumer", group_instance_id="east")
    with members(holder) as running:
        wait_until(lambda: share([holder], 4), "the holder has everything")
        late = Member(node.bootstrap, "billing", "consumer", group_instance_id="east")
        running.append(late)
        wait_until(lambda: "still used" in late.fatal, "the second one is refused")
        publish(node.bootstrap, ["still here"])
        wait_until(lambda: holder.values, "the holder goes on")
        assert not late.owned


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_consumer_goes_to_a_point_in_time(node: NodeProcess, protocol: str) -> None:
    make_topic(node.bootstrap, partitions=1)
    producer = Producer(quiet(node.bootstrap))
    for number in range(10):
        producer.produce(TOPIC, str(number).encode(), timestamp=1_000_000 + 1_000 * number)
    producer.flush(30)
    consumer = Consumer(
        {
            **quiet(node.bootstrap),
            "group.id": "billing",
            **settings_of(protocol),
        }
    )
    consumer.subscribe([TOPIC])
    end = time.monotonic() + 30
    while not consumer.assignment() and time.monotonic() < end:
        consumer.poll(0.05)
    (found,) = consumer.offsets_for_times([TopicPartition(TOPIC, 0, 1_006_500)], 10)
    assert found.offset == 7
    consumer.seek(found)
    values: list[bytes | None] = []
    while len(values) < 3 and time.monotonic() < end:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    assert values == [b"7", b"8", b"9"]


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_partitions_that_are_added_are_read_as_well(node: NodeProcess, protocol: str) -> None:
    make_topic(node.bootstrap, partitions=2)
    with members(*(Member(node.bootstrap, "billing", protocol) for _ in range(2))) as running:
        wait_until(lambda: share(running, 2), "two members share the topic")
        admin = AdminClient(quiet(node.bootstrap))
        for grown in admin.create_partitions([NewPartitions(TOPIC, 5)]).values():
            grown.result()
        wait_until(lambda: share(running, 5), "they share the larger topic")
        producer = Producer(quiet(node.bootstrap))
        for index in range(5):
            producer.produce(TOPIC, str(index).encode(), partition=index)
        producer.flush(30)
        wait_until(
            lambda: len({value for member in running for value in member.values}) == 5,
            "messages of the added partitions",
        )


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_topic_made_anew_under_the_same_name_is_read_from_its_start(
    node: NodeProcess, protocol: str
) -> None:
    make_topic(node.bootstrap)
    publish(node.bootstrap, [f"old {number}" for number in range(20)])
    with members(Member(node.bootstrap, "billing", protocol)) as (first,):
        wait_until(lambda: len(first.values) >= 20, "the old messages")
    admin = AdminClient(quiet(node.bootstrap))
    for gone in admin.delete_topics([TOPIC]).values():
        gone.result()
    make_topic(node.bootstrap)
    new = [f"new {number}" for number in range(5)]
    publish(node.bootstrap, new)
    with members(Member(node.bootstrap, "billing", protocol)) as (second,):
        wait_until(lambda: len(second.values) >= 5, "the new messages")
    assert sorted(second.values) == new


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "consumer"])
def test_nothing_is_lost_when_the_node_is_killed_while_a_group_reads(
    node: NodeProcess, protocol: str
) -> None:
    make_topic(node.bootstrap)
    load = Load(node.bootstrap)
    with members(*(Member(node.bootstrap, "billing", protocol) for _ in range(2))) as running:
        wait_until(lambda: share(running, 4), "two members share the topic")
        wait_until(lambda: len(load.acknowledged) > 200, "some load")
        node.restart(kill=True)
        known = len(load.acknowledged)
        wait_until(lambda: len(load.acknowledged) > known + 200, "load after the restart")
        published = load.stop()
        wait_until(
            lambda: published <= {value for member in running for value in member.values},
            "every message that was acknowledged is seen",
        )
        wait_until(lambda: share(running, 4), "the members share the topic again")
