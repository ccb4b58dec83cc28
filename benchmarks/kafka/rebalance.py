"""A group gets one member more, and one less: how long until everybody has their share.

Members are confluent-kafka's consumers, each in a thread of its own. A member of the
classic protocol learns of a rebalance with its next heartbeat, which are 250 ms
apart here instead of 3 s, or the pause would be all that is measured; with the
newer protocol the broker says when.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.kafka.bench import Bench
from benchmarks.kafka.brokers import Broker
from benchmarks.kafka.report import Line, at_most

PROTOCOLS = {
    "classic": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 250},
    "consumer": {},
}
POLL_SECONDS = 0.01
PATIENCE_SECONDS = 60.0


class Member:
    """One consumer. What it holds, and since when, is read by others."""

    def __init__(self, broker: Broker, group: str, topic: str, protocol: str) -> None:
        from confluent_kafka import Consumer

        session = {"session.timeout.ms": 10_000} if protocol == "classic" else {}
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "log_level": 2,
                **session,
                **PROTOCOLS[protocol],
            }
        )
        self._consumer.subscribe([topic])
        self.held: frozenset[int] = frozenset()
        self.changed = time.perf_counter()
        self._is_leaving = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._is_leaving.is_set():
            self._consumer.poll(POLL_SECONDS)
            held = frozenset(each.partition for each in self._consumer.assignment())
            if held != self.held:
                self.held, self.changed = held, time.perf_counter()
        self._consumer.close()

    def leave(self) -> None:
        self._is_leaving.set()

    def join_thread(self) -> None:
        self._thread.join(PATIENCE_SECONDS)


def rebalance(bench: Bench) -> Iterator[Line]:
    found: dict[tuple[str, str, str], list[float]] = {}
    for number in range(bench.sizes.runs):
        for protocol in PROTOCOLS:
            for broker in bench.brokers():
                joined, left = _measure(bench, broker, protocol, f"{protocol}-{number}")
                found.setdefault((protocol, "join", broker.name), []).append(joined)
                found.setdefault((protocol, "leave", broker.name), []).append(left)
                bench.progress(
                    f"{broker.name:9}{protocol:9} join {joined:.2f} s, leave {left:.2f} s"
                )
    sizes = bench.sizes
    for protocol in PROTOCOLS:
        for event in ("join", "leave"):
            yield Line(
                f"{sizes.members} members over {sizes.member_partitions} partitions, "
                f"{protocol} protocol: one {event}s",
                "s",
                found[protocol, event, "headrace"],
                found.get((protocol, event, bench.peer), []),
                at_most(1),
            )


def _measure(bench: Bench, broker: Broker, protocol: str, group: str) -> tuple[float, float]:
    partitions = bench.sizes.member_partitions
    with broker.topic(partitions) as topic:
        members = [
            Member(broker, group, topic.name, protocol) for _ in range(bench.sizes.members - 1)
        ]
        try:
            _wait_until_shared(members, partitions)
            began = time.perf_counter()
            members.append(Member(broker, group, topic.name, protocol))
            joined = _wait_until_shared(members, partitions) - began
            began = time.perf_counter()
            leaving = members.pop(0)
            leaving.leave()
            left = _wait_until_shared(members, partitions) - began
            leaving.join_thread()
        finally:
            for member in members:
                member.leave()
            for member in members:
                member.join_thread()
    return joined, left


def _wait_until_shared(members: list[Member], partitions: int) -> float:
    """When the last of them got its share: every partition is held once, and nobody
    has more than one above another."""
    deadline = time.perf_counter() + PATIENCE_SECONDS
    while time.perf_counter() < deadline:
        shares = [member.held for member in members]
        sizes = [len(share) for share in shares]
        is_whole = sum(sizes) == partitions == len(frozenset().union(*shares))
        if is_whole and max(sizes) - min(sizes) <= 1:
            return max(member.changed for member in members)
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"the group did not settle: shares of {sizes}")
