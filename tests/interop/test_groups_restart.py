"""Members of groups while the node is killed and comes back: they go on as if nothing had
been, in every protocol, with real clients."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, Producer
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
    wait_until,
)


def numbered(what: str, count: int = 60) -> set[str]:
    return {f"{what} {number}" for number in range(count)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_kill_of_the_node_brings_no_rebalance(node: NodeProcess, protocol: str) -> None:
    make_topic(node.bootstrap, partitions=6)
    with ExitStack() as stack:
        running = [
            stack.enter_context(closing(Member(node.bootstrap, "billing", protocol)))
            for _ in range(2)
        ]
        wait_until(lambda: share(running, 6), "two members share the topic")
        publish(node.bootstrap, numbered("before"))
        wait_until(lambda: seen(running) >= numbered("before"), "what was published is read")
        before = [list(member.events) for member in running]
        node.restart(kill=True)
        publish(node.bootstrap, numbered("after"))
        wait_until(lambda: seen(running) >= numbered("after"), "the members go on")
        assert [member.events for member in running] == before
        assert share(running, 6)


def seen(members: list[Member]) -> set[str]:
    return {value for member in members for value in member.values}


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_a_transaction_commits_offsets_of_a_member_of_before_the_kill(
    node: NodeProcess, protocol: str
) -> None:
    make_topic(node.bootstrap, partitions=1)
    make_topic(node.bootstrap, "paid", partitions=1)
    publish(node.bootstrap, ["an order"])
    consumer = Consumer(
        {
            **quiet(node.bootstrap),
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            **settings_of(protocol),
        }
    )
    producer = Producer(
        {**quiet(node.bootstrap), "transactional.id": "till", "reconnect.backoff.max.ms": 200}
    )
    with closing(consumer):
        consumer.subscribe([TOPIC])
        found = consumer.poll(30)
        assert found is not None and found.error() is None
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("paid", found.value())
        assert producer.flush(30) == 0
        node.restart(kill=True)
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        [committed] = consumer.committed(position, 30)
        assert committed.offset == 1
