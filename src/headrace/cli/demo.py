"""`headrace demo`: the product at work on real data, in a few seconds.

One topic of orders is read by a stream group that adds them up and by a queue
group of workers that fail on some. A second process is killed with SIGKILL while
it publishes. Whatever was promised is counted at the end; a promise that was not
kept makes the exit code 1.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import click

from headrace.cli.command import command
from headrace.cli.output import print_table, progress

if TYPE_CHECKING:
    from headrace.client.handle import Headrace

ORDERS = 20_000
WORKERS = 4
# Every so many orders one cannot be worked, until the "bug" is fixed.
POISON_EVERY = 1_000
PRIORITIES = ("critical", "high", "normal", "low", "background")

_CHILD = """
import sys, headrace
with headrace.open(sys.argv[1]) as handle:
    for number in range(1_000_000):
        handle.publish("pulses", b"%d" % number)
        print(number, flush=True)
"""


@command(None, "demo", on_files=True, examples="headrace demo")
@click.option("--orders", default=ORDERS, show_default=True, help="How many to publish.")
def demo(orders: int, directory: str) -> int:
    """See a stream, a work queue, dead letters and a crash, on real files."""
    import headrace

    place = os.path.abspath(os.path.join(".demo", "data"))
    shutil.rmtree(place, ignore_errors=True)
    started = time.perf_counter()
    checks: list[tuple[str, int, int]] = []
    with headrace.open(place) as handle:
        handle.create_topic("orders", partitions=3)
        _publish(handle, orders)
        total = _add_up(handle)
        checks.append(("orders added up by the stream group", orders, total))
        worked = _work(handle, orders, fixed=False)
        letters = handle.dead_letters("orders").count()
        checks.append(("orders given up, in the dead letters", _poison(orders), letters))
        _say("redriving the dead letters, now that the bug is fixed")
        result = handle.dead_letters("orders").redrive()
        worked += _work(handle, result.redriven, fixed=True)
        checks.append(("orders worked, each exactly once", orders, len(worked)))
        checks.append(("orders worked twice", 0, sum(count > 1 for count in worked.values())))
        checks.append(("orders left in the queue", 0, handle.depth("orders", group="billing")))
        lanes = handle.stats("billing").lanes
    checks.append(_kill(place))
    _say(f"done in {time.perf_counter() - started:.1f} s; the files are in {place}\n")
    print_table(("lane", "delivered"), [(lane.lane, lane.delivered) for lane in lanes])
    click.echo()
    print_table(
        ("promise", "expected", "found", ""),
        [(*check, "ok" if check[1] == check[2] else "BROKEN") for check in checks],
    )
    click.echo(
        "\nLook around:\n"
        f"  .venv/bin/headrace --data {os.path.relpath(place)} queue stats\n"
        f"  .venv/bin/headrace --data {os.path.relpath(place)} consume orders --count 3\n"
        f"  .venv/bin/headrace --data {os.path.relpath(place)} log verify"
    )
    return 0 if all(expected == found for _, expected, found in checks) else 1


def _say(text: str) -> None:
    click.echo(f"==> {text}")


def _poison(orders: int) -> int:
    return len(range(0, orders, POISON_EVERY))


def _publish(handle: Headrace, orders: int) -> None:
    from headrace import NewMessage

    _say(f"publishing {orders} orders, durably, in batches of 1,000")
    started = time.perf_counter()
    with progress("publishing", orders) as bar:
        for start in range(0, orders, 1_000):
            batch = [
                NewMessage(
                    {"id": number, "total": number % 90 + 10},
                    key=f"customer-{number % 500}",
                    priority=PRIORITIES[number % 5],
                )
                for number in range(start, min(start + 1_000, orders))
            ]
            handle.publish_many("orders", batch)
            bar.advance(len(batch))
    click.echo(f"    {orders / (time.perf_counter() - started):,.0f} messages a second, on disk")


def _add_up(handle: Headrace) -> int:
    _say("a stream group reads them all and adds them up")
    seen = amount = 0
    with handle.stream("orders", group="audit") as stream:
        while records := stream.poll(max=1_000, wait=0):
            seen += len(records)
            amount += sum(record.value["total"] for record in records)
        stream.commit()
    click.echo(f"    {seen} orders, {amount} in all")
    return seen


def _work(handle: Headrace, expected: int, *, fixed: bool) -> Counter[int]:
    """Workers in threads; an order that fails three times is given up."""
    _say(f"{WORKERS} workers of a queue group work {expected} orders")
    worked: Counter[int] = Counter()
    lock = threading.Lock()
    with progress("working", expected) as bar:

        def work() -> None:
            with handle.queue("orders", group="billing", backoff_ms=20) as queue:
                while handle.depth("orders", group="billing"):
                    messages = queue.receive(max=100, wait=0.05)
                    good = [m for m in messages if fixed or m.value["id"] % POISON_EVERY]
                    bad = [m for m in messages if m not in good]
                    queue.ack(good)
                    queue.nack(bad, error="ZeroDivisionError: division by zero")
                    with lock:
                        worked.update(message.value["id"] for message in good)
                        bar.advance(len(good))

        threads = [threading.Thread(target=work) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    click.echo(f"    {len(worked)} acked, {handle.dead_letters('orders').count()} dead letters")
    return worked


def _kill(place: str) -> tuple[str, int, int]:
    """Publish in another process, kill it in the middle, and count."""
    import headrace

    _say("another process publishes one by one and is killed with SIGKILL")
    with headrace.open(place) as handle:
        handle.create_topic("pulses", partitions=1)
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, place], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    acknowledged = -1
    for line in child.stdout:
        acknowledged = int(line)
        if acknowledged == 500:
            child.kill()
            break
    # What the pipe still holds was acknowledged as well.
    acknowledged = max([acknowledged, *(int(line) for line in child.stdout if line.endswith("\n"))])
    child.wait()
    with headrace.open(place) as handle, handle.stream("pulses") as stream:
        values = []
        while records := stream.poll(max=1_000, wait=0):
            values += [int(record.value) for record in records]
    kept = sum(number == value for number, value in enumerate(values[: acknowledged + 1]))
    click.echo(
        f"    killed by signal {signal.Signals(-child.returncode).name} after "
        f"{acknowledged + 1} acknowledged messages; {kept} of them are there, in order"
    )
    return "acknowledged messages there after kill -9", acknowledged + 1, kept
