"""Pictures of every view of the dashboard, from a real node at work.

    python -m scripts.screenshots [folder]        docs/images unless given

It needs Debian's chromium and pngquant.

A node is started and given a shop's work: orders that are published, leased, acked,
nacked and rejected; payments with a delay; a stream group that lags; a producer that
has left a transaction open. Debian's Chromium then looks at it, in both themes. What is
on the pictures is what the node said.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, Producer
from tests.browser.chromium import Browser
from tests.doors.conftest import DoorsProcess

FOLDER = Path(__file__).parent.parent / "docs" / "images"
WARM_SECONDS = 75
BYTES_MAX = 150_000
PRIORITIES = ["critical", "high", "normal", "normal", "normal", "low", "background"]
ERRORS = ["card declined", "timeout calling the payment provider", "no such customer"]
CITIES = ["Porto", "Lyon", "Graz", "Leiden", "Tartu", "Cork"]


def order(number: int) -> dict[str, Any]:
    chance = random.Random(number)
    return {
        "order": 40_000 + number,
        "customer": f"c-{chance.randrange(900):03}",
        "items": [
            {"sku": f"sku-{chance.randrange(5000):04}", "quantity": chance.randrange(1, 5)}
            for _ in range(chance.randrange(1, 4))
        ],
        "total": round(chance.uniform(4, 380), 2),
        "city": chance.choice(CITIES),
    }


class Shop:
    """The work that goes on while pictures are taken."""

    def __init__(self, node: DoorsProcess) -> None:
        self._node = node
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.story = ""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        with httpx.Client(base_url=self._node.http, timeout=30) as client:
            answer = client.request(method, path, json=body)
            answer.raise_for_status()
            return answer.json() if answer.content else None

    def open(self) -> None:
        for name, partitions in (
            ("orders", 6), ("payments", 3), ("emails", 3), ("clicks", 12), ("inventory", 3),
            ("audit-log", 1), ("refunds", 3), ("shipments", 6),
        ):  # fmt: skip
            self.ask("POST", "/topics", {"name": name, "partitions": partitions})
        self.publish("emails", 1_800)
        self.publish("audit-log", 400)
        self.publish("inventory", 900)
        self.publish("payments", 240)
        self.story = self.live_through("refunds", "refund-workers")
        self.publish("refunds", 60)
        self.delay("payments", 34)
        self.fail("payments", "payment-workers", 26)
        self.fail("refunds", "refund-workers", 9)
        self.stream("inventory", "stock-report", 700)
        self.stream("emails", "email-archive", 1_799)
        self.pipeline()
        self.abandon("shipments")
        for work in (self._publish_on, self._work_on, self._slow_on, self._click_on, self._read_on):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(10)

    def publish(self, topic: str, count: int, **more: Any) -> None:
        for start in range(0, count, 200):
            messages = [
                {"key": f"c-{number % 900:03}", "value": order(number), **more}
                for number in range(start, min(count, start + 200))
            ]
            self.ask("POST", f"/topics/{topic}/messages", {"messages": messages})

    def delay(self, topic: str, count: int) -> None:
        for number in range(count):
            message = {"key": f"c-{number:03}", "value": order(number), "delay": 600 + 97 * number}
            self.ask("POST", f"/topics/{topic}/messages", message)

    def fail(self, topic: str, group: str, count: int) -> None:
        wanted = {"topics": [topic], "count": count, "settings": {"max_attempts": 3}}
        leased = self.ask("POST", f"/queues/{group}/lease", wanted)
        for number, each in enumerate(leased["messages"]):
            reason = ERRORS[0 if number % 3 else 1 + number % 2]
            self.ask("POST", "/messages/reject", {"receipt": each["receipt"], "reason": reason})

    def live_through(self, topic: str, group: str) -> str:
        """One message with a story: delayed, failed three times, given up, sent back
        and done. Its id."""
        value = {"refund": 7001, "order": 40_117, "amount": 61.5}
        message = {"key": "c-117", "value": value, "delay": 1, "priority": "high"}
        placed = self.ask("POST", f"/topics/{topic}/messages", message)
        errors = [*ERRORS[1:], ERRORS[1]]
        for number, error in enumerate(errors):
            wanted = {
                "topics": [topic], "count": 1, "wait": 10, "consumer": f"refund-{number % 2 + 1}",
            }  # fmt: skip
            [leased] = self.ask("POST", f"/queues/{group}/lease", wanted)["messages"]
            body = {"receipt": leased["receipt"], "delay": 1, "error": error}
            self.ask("POST", "/messages/nack", body)
        self.ask("POST", f"/topics/{topic}/dead-letters/redrive", {"all": True})
        wanted = {"topics": [topic], "count": 1, "wait": 10, "consumer": "refund-2"}
        [leased] = self.ask("POST", f"/queues/{group}/lease", wanted)["messages"]
        self.ask("POST", "/messages/ack", {"receipt": leased["receipt"]})
        return f"{topic}:{placed['partition']}:{placed['offset']}"

    def stream(self, topic: str, group: str, read: int) -> None:
        member = self.ask("POST", "/subscribe", {"group": group, "topics": [topic]})
        where = f"/groups/{group}/members/{member['member_id']}"
        generation = {"generation": member["generation"]}
        left = read
        while left > 0:
            polled = self.ask("POST", f"{where}/poll", {**generation, "count": min(left, 500)})
            left -= len(polled["messages"])
            if not polled["messages"]:
                break
        self.ask("POST", f"{where}/commit", generation)
        self.ask("DELETE", where)

    def pipeline(self) -> None:
        """Progress as the Spark connector commits it, by the connector's own code."""
        from headrace.client.kafka.cluster import KafkaCluster
        from headrace.client.kafka.offsets import commit_offsets
        from headrace.core.values import SPARK_PROGRESS

        with KafkaCluster((self._node.doors["kafka"],), timeout_ms=5_000) as cluster:
            for group, topic, reached in (
                ("orders-rollup", "emails", 520),
                ("inventory-archive", "inventory", 250),
            ):
                offsets = {(topic, partition): reached for partition in range(3)}
                commit_offsets(cluster, group, offsets, metadata=SPARK_PROGRESS)

    def abandon(self, topic: str) -> None:
        self._abandoned = Producer(
            {
                "bootstrap.servers": self._node.doors["kafka"],
                "transactional.id": "shipping-planner-1",
                "transaction.timeout.ms": 600_000,
            }
        )
        self._abandoned.init_transactions()
        self._abandoned.begin_transaction()
        for number in range(40):
            self._abandoned.produce(topic, json.dumps(order(number)), key=f"c-{number}")
        self._abandoned.flush()

    def _publish_on(self) -> None:
        number = 0
        with httpx.Client(base_url=self._node.http, timeout=30) as client:
            while not self._over.wait(0.1):
                wave = 1 + 0.5 * ((time.time() % 40) / 40)
                messages = []
                for _ in range(int(9 * wave * random.uniform(0.8, 1.2))):
                    number += 1
                    messages.append(
                        {
                            "key": f"c-{number % 900:03}",
                            "value": order(number),
                            "priority": random.choice(PRIORITIES),
                            "headers": {"source": "web", "region": "eu"},
                        }
                    )
                client.post("/topics/orders/messages", json={"messages": messages})

    def _work_on(self) -> None:
        with httpx.Client(base_url=self._node.http, timeout=30) as client:
            turn = 0
            while not self._over.wait(0.12):
                turn += 1
                wanted = {
                    "topics": ["orders"], "count": random.choice((8, 12, 16)), "visibility": 30,
                    "consumer": f"worker-{turn % 3 + 1}",
                }  # fmt: skip
                leased = client.post("/queues/fulfilment/lease", json=wanted).json()["messages"]
                bad = [each["receipt"] for each in leased if random.random() < 0.02]
                good = [each["receipt"] for each in leased if each["receipt"] not in bad]
                if good:
                    client.post("/messages/ack", json={"receipts": good})
                if bad:
                    why = {"receipts": bad, "error": random.choice(ERRORS)}
                    client.post("/messages/nack", json=why)

    def _slow_on(self) -> None:
        """Somebody who holds what it leased for a while, so that there is something
        to see in work."""
        with httpx.Client(base_url=self._node.http, timeout=30) as client:
            while not self._over.is_set():
                wanted = {
                    "topics": ["emails"], "count": 14, "visibility": 60,
                    "consumer": f"mailer-{random.choice('ab')}",
                }  # fmt: skip
                leased = client.post("/queues/mailers/lease", json=wanted).json()["messages"]
                self._over.wait(6)
                receipts = [each["receipt"] for each in leased[:9]]
                if receipts:
                    client.post("/messages/ack", json={"receipts": receipts})

    def _click_on(self) -> None:
        producer = Producer({"bootstrap.servers": self._node.doors["kafka"], "linger.ms": 20})
        while not self._over.wait(0.1):
            for _ in range(random.randrange(20, 50)):
                click = {"page": f"/p/{random.randrange(500)}", "ms": random.randrange(900)}
                producer.produce("clicks", json.dumps(click), key=f"v-{random.randrange(999)}")
            producer.poll(0)
        producer.flush()

    def _read_on(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._node.doors["kafka"],
                "group.id": "click-report",
                "client.id": "report-1",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1000,
            }
        )
        consumer.subscribe(["clicks"])
        while not self._over.is_set():
            consumer.consume(200, 0.2)
        consumer.close()


# Debian's own face for system-ui is far from what a Mac or Windows shows; Inter, where it
# is installed (fonts-inter), is close.
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<include>/etc/fonts/fonts.conf</include>
<match target="pattern"><test name="family"><string>system-ui</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
<match target="pattern"><test name="family"><string>sans-serif</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
</fontconfig>"""

VIEWS = {
    "overview": ("", "document.querySelectorAll('.chart .line').length > 3"),
    "topics": ("/topics", "document.querySelectorAll('tbody tr').length > 6"),
    "topic-messages": ("/topics/orders?value=Lyon", "document.querySelectorAll('details').length"),
    "topic-partitions": ("/topics/orders?tab=partitions", "document.querySelector('tbody tr')"),
    "groups": ("/groups", "document.querySelectorAll('tbody tr').length > 5"),
    "group": ("/groups/click-report", "document.querySelectorAll('tbody tr').length > 10"),
    "queues": ("/queues", "document.querySelectorAll('.card').length > 3"),
    "queue": ("/queues/mailers", "document.querySelectorAll('tbody tr').length > 8"),
    "delayed": ("/delayed?topic=payments", "document.querySelectorAll('tbody tr').length > 8"),
    "letters": ("/letters/payments", "document.querySelectorAll('tbody tr').length > 6"),
    "trace": ("/trace?id=ID", "document.querySelector('.timeline li')"),
    "transactions": ("/transactions", "document.querySelector('tbody tr')"),
    "pipelines": ("/pipelines", "document.querySelectorAll('tbody tr').length > 1"),
    "node": ("/node", "document.querySelectorAll('.facts').length > 4"),
}
DARK = ("overview", "queue")


def shrink(path: Path) -> None:
    """A palette is enough for flat colours, and a third of the bytes."""
    command = ["pngquant", "--force", "--skip-if-larger", "--speed", "1", "--output", path, path]
    subprocess.run(command, check=True)
    assert path.stat().st_size < BYTES_MAX, (path, path.stat().st_size)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    only = sys.argv[2:] or list(VIEWS)
    folder.mkdir(parents=True, exist_ok=True)
    random.seed(7)
    with tempfile.TemporaryDirectory() as scratch:
        fonts = Path(scratch) / "fonts.conf"
        fonts.write_text(FONTS)
        os.environ["FONTCONFIG_FILE"] = str(fonts)
        node = DoorsProcess(Path(scratch) / "data", "--dashboard", "full")
        shop = Shop(node)
        try:
            shop.open()
            time.sleep(WARM_SECONDS if len(only) > 3 else 20)
            with Browser(Path(scratch)) as browser:
                for name in only:
                    where, until = VIEWS[name]
                    page = browser.open(f"{node.http}/dashboard{where.replace('ID', shop.story)}")
                    page.wait(until)
                    page.run("new Promise((done) => setTimeout(done, 4500))")
                    if name == "topic-messages":
                        page.run("document.querySelector('details').open = true")
                    for dark in (False, True)[: 1 + (name in DARK)]:
                        path = folder / f"{name}{'-dark' if dark else ''}.png"
                        page.screenshot(path, dark=dark)
                        shrink(path)
                    print(name, page.errors or "")
                    page.close()
        finally:
            shop.close()
            node.stop()


if __name__ == "__main__":
    main()
