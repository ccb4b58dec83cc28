"""A process that works on a directory until it is killed.

    python -m tests.crash.worker <directory> <facts> <seed> <number>

Two threads: one publishes, one leases and settles. Each line of the file of facts
is written with one call to a file opened for appending, so lines of two threads
never mix and a killed process leaves no half of one that was answered. Then a byte
goes to the standard output, so that whoever started this knows how far it is.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from typing import Any

from tests.crash.actor import Actor
from tests.crash.ledger import Fact

import headrace
from headrace.core.errors import TooManyLeases

TOPICS = ("plain", "keyed", "once")
# Numbers of the second thread's calls begin here.
SECOND_THREAD = 1_000_000


class Worker:
    def __init__(self, directory: str, facts: str, seed: int, number: int) -> None:
        self._facts = os.open(facts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._seed = seed
        self._first = number
        self._handle = headrace.open(directory)

    def note(self, fact: Fact) -> None:
        line = json.dumps(fact).encode() + b"\n"
        assert os.write(self._facts, line) == len(line)
        os.write(sys.stdout.fileno(), b".")

    def run(self) -> None:
        actor = Actor(self._handle, self.note, self._first)
        actor.create_topic("plain", 2, segment_bytes=16_384)
        actor.create_topic("keyed", 2, ordering="key")
        actor.create_topic("once", 2, dedup=True)
        second = Actor(self._handle, self.note, self._first + SECOND_THREAD)
        threading.Thread(target=self._consume, args=(second,), daemon=True).start()
        self._publish(actor)

    def _publish(self, actor: Actor) -> None:
        chance = random.Random(self._seed)
        step = 0
        while True:
            step += 1
            name = f"{self._first}-{step}"
            kind = chance.random()
            size = "." * chance.choice((0, 10, 500, 5_000))
            if kind < 0.3:
                actor.publish("plain", [name + size], **_options(chance))
            elif kind < 0.5:
                count = chance.randrange(2, 40)
                values = [f"{name}-{each}{size[:500]}" for each in range(count)]
                actor.publish("plain", values, **_options(chance))
            elif kind < 0.7:
                actor.publish("keyed", [name + size], key=f"key-{chance.randrange(5)}")
            else:
                dedup_id = f"id-{chance.randrange(2_000)}"
                actor.publish("once", [name], dedup_ids=[dedup_id])

    def _consume(self, actor: Actor) -> None:
        chance = random.Random(self._seed + 1)
        while True:
            topic = chance.choice(TOPICS)
            try:
                messages = actor.lease(topic, chance.randrange(1, 30))
            except TooManyLeases:
                # What was leased and left lying has used up the allowance; only
                # the next life can go on.
                threading.Event().wait()
            # Some messages are poison: nobody ever finishes them.
            poison = [m for m in messages if m.offset % 13 == 5]
            actor.settle("nack", topic, poison[::2], error="poison")
            actor.settle("extend", topic, poison[1::2])
            rest = [m for m in messages if m.offset % 13 != 5]
            kind = chance.random()
            if kind < 0.6:
                actor.settle("ack", topic, rest)
            elif kind < 0.7:
                actor.settle("nack", topic, rest, error="not now")
            elif kind < 0.76:
                actor.settle("reject", topic, rest[:2], error="no")
                actor.settle("ack", topic, rest[2:])
            elif kind < 0.82:
                actor.settle("release", topic, rest)
            elif kind < 0.86:
                actor.redrive(topic, 3)
            elif kind < 0.9:
                actor.purge(topic, 2)


def _options(chance: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if chance.random() < 0.3:
        options["priority"] = chance.choice(("critical", "high", "low", "background"))
    if chance.random() < 0.2:
        options["delay"] = chance.choice((0.02, 3_600))
    return options


if __name__ == "__main__":
    Worker(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])).run()
