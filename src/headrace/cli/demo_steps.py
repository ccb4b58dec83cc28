"""The steps of the demo, in their order. Each says what it does while it does it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.cli.demo_clients import KafkaClient, Order, Seen, read_as_group
from headrace.cli.demo_metrics import Metrics, begin_metrics, roll_up, triage
from headrace.cli.demo_node import DemoNode
from headrace.cli.demo_words import note, say
from headrace.cli.output import Progress, progress
from headrace.core.wording import counted

if TYPE_CHECKING:
    from headrace.client.handle import Headrace
    from headrace.client.message import Message

WORKERS = 4
# Every so many orders one cannot be worked, until the "bug" is fixed; and every so
# many fail when they are tried for the first time.
POISON_EVERY = 1_000
FLAKY_EVERY = 100
PRIORITIES = (b"critical", b"high", b"normal", b"low", b"background")
PULSES_BEFORE_KILL = 300


class Demo:
    """What the steps share: the node, and what they found out."""

    def __init__(
        self, node: DemoNode, folder: str, orders: int, client: KafkaClient | None
    ) -> None:
        self.node = node
        self.folder = folder
        self.orders = orders
        # None where no Kafka client is to be had.
        self.client = client
        # For the summary: what, and how much of it.
        self.numbers: dict[str, object] = {}
        # What was promised, what was expected, what was found.
        self.checks: list[tuple[str, int, int]] = []
        self.worked: Counter[int] = Counter()
        self.retried = 0
        # What runs beside the steps; None where Spark is not to be had.
        self.metrics: Metrics | None = None
        self.report: str | None = None

    def connect(self) -> Headrace:
        import headrace

        return headrace.connect(self.node.address)


Step = Callable[[Demo], None]


def orders_of(count: int) -> Iterator[Order]:
    for number in range(count):
        yield Order(
            b"customer-%d" % (number % 500),
            json.dumps({"id": number, "total": number % 90 + 10}).encode(),
            [("headrace-priority", PRIORITIES[number % 5])],
        )


# Kafka clients.


def produce(demo: Demo) -> None:
    with demo.connect() as handle:
        handle.create_topic("orders", partitions=3)
    name = "the SDK" if demo.client is None else demo.client.name
    if demo.client is None:
        say("skipped: Kafka clients (pip install confluent-kafka). The SDK stands in for them")
        say(f"the SDK publishes {counted(demo.orders, 'order')}, each on disk when it is told so")
    else:
        say(
            f"{name}, unmodified, publishes {counted(demo.orders, 'order')}, each on disk "
            "when acknowledged"
        )
    began = time.perf_counter()
    with progress("publishing", demo.orders) as bar:
        if demo.client is None:
            delivered = _produce_by_sdk(demo, bar)
        else:
            delivered = demo.client.produce(
                demo.node.address, "orders", orders_of(demo.orders), bar.advance
            )
    note(f"{delivered / (time.perf_counter() - began):,.0f} messages a second")
    demo.numbers[f"published by {name}"] = delivered
    demo.checks.append(("orders acknowledged to the producer", demo.orders, delivered))


def _produce_by_sdk(demo: Demo, bar: Progress) -> int:
    from headrace import NewMessage

    delivered = 0
    with demo.connect() as handle:
        batch: list[NewMessage] = []
        for order in orders_of(demo.orders):
            [(_, priority)] = order.headers
            batch.append(NewMessage(order.value, order.key, priority=priority.decode()))
            if len(batch) == 1_000:
                delivered += len(handle.publish_many("orders", batch))
                bar.advance(len(batch))
                batch = []
        delivered += len(handle.publish_many("orders", batch)) if batch else 0
    return delivered


def stream(demo: Demo) -> None:
    name = "the SDK" if demo.client is None else demo.client.name
    say(f"a consumer group of {name} reads all of them as a stream")
    with progress("reading", demo.orders) as bar:
        seen = Seen(demo.orders, bar.advance)
        if demo.client is None:
            with demo.connect() as handle, handle.stream("orders", group="audit") as records:
                while found := records.poll(max=1_000, wait=0):
                    seen.add([(each.partition, each.offset) for each in found])
        else:
            read_as_group(demo.client, demo.node.address, "orders", "audit", seen)
    demo.numbers[f"read by a group of {name}"] = len(seen)
    demo.checks.append(("orders read by the stream group", demo.orders, len(seen)))


# Workers.


def work(demo: Demo) -> None:
    say(f"{WORKERS} workers of a queue group work the same orders; some of them fail")
    poisoned = len(range(0, demo.orders, POISON_EVERY))
    _work(demo, demo.orders, is_fixed=False)
    with demo.connect() as handle:
        letters = handle.dead_letters("orders").count()
        note(f"{len(demo.worked):,} acked, {letters} given up after 3 attempts")
    demo.numbers["acked at first"] = len(demo.worked)
    demo.numbers["tried again after a failure"] = demo.retried
    demo.numbers["given up, as dead letters"] = letters
    demo.checks.append(("orders given up, in the dead letters", poisoned, letters))


def redrive(demo: Demo) -> None:
    say("the bug is fixed: the dead letters go back to the group in which they failed")
    with demo.connect() as handle:
        redriven = handle.dead_letters("orders").redrive().redriven
        _work(demo, redriven, is_fixed=True)
        left = handle.depth("orders", group="billing")
    demo.numbers["redriven"] = redriven
    demo.numbers["acked in the end"] = len(demo.worked)
    twice = sum(count > 1 for count in demo.worked.values())
    demo.checks.append(("orders acked", demo.orders, len(demo.worked)))
    demo.checks.append(("orders acked twice", 0, twice))
    demo.checks.append(("orders left in the queue", 0, left))


def _work(demo: Demo, expected: int, *, is_fixed: bool) -> None:
    lock = threading.Lock()
    failures: list[BaseException] = []
    with progress("working", expected) as bar:

        def settle(queue: Any, messages: Sequence[Message[Any]]) -> None:
            good: list[Message[Any]] = []
            bad: list[Message[Any]] = []
            for message in messages:
                (good if is_fixed or _can_be_worked(message) else bad).append(message)
            acked = queue.ack(good)
            queue.nack(bad, error="ZeroDivisionError: division by zero")
            with lock:
                demo.worked.update(
                    message.value["id"]
                    for message, error in zip(good, acked, strict=True)
                    if error is None
                )
                demo.retried += sum(message.attempt > 1 for message in messages)
                bar.advance(len(good))

        def run() -> None:
            # Each with a connection of its own, as on machines of their own.
            try:
                with (
                    demo.connect() as handle,
                    handle.queue("orders", "billing", type=dict[str, int], backoff_ms=20) as queue,
                ):
                    while handle.depth("orders", group="billing"):
                        settle(queue, queue.receive(max=200, wait=0.05))
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=run, daemon=True) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _can_be_worked(message: Message[Any]) -> bool:
    number = message.value["id"]
    if number % POISON_EVERY == 0:
        return False
    return bool(number % FLAKY_EVERY or message.attempt > 1)


# A crash.


def crash(demo: Demo) -> None:
    say("a producer publishes one by one while the node is killed with SIGKILL")
    from headrace.core.errors import Disconnected, Unreachable

    acknowledged: list[int] = []
    enough = threading.Event()

    def publish() -> None:
        import headrace

        with headrace.connect(demo.node.address, retry=0) as handle:
            handle.create_topic("pulses", partitions=1)
            try:
                while True:
                    handle.publish("pulses", b"%d" % len(acknowledged))
                    acknowledged.append(len(acknowledged))
                    if len(acknowledged) == PULSES_BEFORE_KILL:
                        enough.set()
            except (Disconnected, Unreachable):
                return
            finally:
                enough.set()

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    enough.wait()
    demo.node.kill()
    thread.join()
    demo.node.start()
    with demo.connect() as handle, handle.stream("pulses") as records:
        values: list[int] = []
        while found := records.poll(max=1_000, wait=0):
            values += [int(record.value) for record in found]
    kept = sum(number == value for number, value in zip(acknowledged, values, strict=False))
    note(
        f"killed after {counted(len(acknowledged), 'acknowledged message')}, ready again after "
        f"{demo.node.start_seconds:.2f} s; {kept} of them are there, in order"
    )
    demo.checks.append(("acknowledged messages there after kill -9", len(acknowledged), kept))


STEPS: tuple[Step, ...] = (
    begin_metrics, produce, stream, work, triage, redrive, roll_up, crash,
)  # fmt: skip
