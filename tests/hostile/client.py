"""The hostile client: every attack of the table at once, until it is told to stop.

    python -m tests.hostile.client KAFKA HTTP GRPC [NAME ...]

It says "attacking" when all attacks have begun, and stops when its input ends. Then it
prints a line of JSON: for each attack how many rounds ended by themselves, and how many
the node cut short. With names, only those attacks run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
from collections import Counter

from tests.hostile.kafka_attacks import BOMBED, NOW_MS, produce
from tests.hostile.table import ATTACKS, Attack
from tests.hostile.target import EXPECTED, Target

from headrace.record import NewRecord, build_batch

FILLING_MEGABYTES = 40


async def drive(attack: Attack, target: Target, outcomes: Counter[str]) -> None:
    """One round after the other. An error that no node can cause is a mistake of the
    attack's, and ends the client."""
    while not target.ending.is_set():
        try:
            async with asyncio.timeout(attack.round_seconds):
                await attack.run(target)
            outcomes["ended"] += 1
        except TimeoutError:
            outcomes["given up"] += 1
        except EXPECTED:
            outcomes["cut"] += 1
        await target.pause(attack.pause_seconds)


async def prepare(target: Target) -> None:
    for name in (BOMBED, "quiet", "held", "late"):
        await target.ask("POST", "/topics", {"name": name, "partitions": 1})
    # A queue group makes the node look into every batch.
    for name in (BOMBED, "late"):
        await target.ask("POST", "/queues/opener/lease", {"topics": [name]})
    # Something to ask for that nobody wants to have.
    async with target.connect(target.kafka) as peer:
        for _ in range(FILLING_MEGABYTES):
            value = random.randbytes(1000 * 1000)
            await peer.send(produce(bytes(build_batch([NewRecord(None, value, (), NOW_MS)]))))
            await peer.take_frame()


async def attack_all(target: Target, names: list[str]) -> dict[str, Counter[str]]:
    await prepare(target)
    chosen = [each for each in ATTACKS if not names or each.name in names]
    outcomes: dict[str, Counter[str]] = {each.name: Counter() for each in chosen}
    print("attacking", flush=True)
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, target.ending.set)
    tasks = [asyncio.create_task(drive(each, target, outcomes[each.name])) for each in chosen]
    ended = asyncio.create_task(target.ending.wait())
    await asyncio.wait((ended, *tasks), return_when=asyncio.FIRST_COMPLETED)
    for task in (ended, *tasks):
        if task.done():
            task.result()
        task.cancel()
    await asyncio.wait((ended, *tasks))
    loop.remove_reader(sys.stdin)
    return outcomes


def main() -> None:
    kafka, http, grpc, *names = sys.argv[1:]
    # It complains of every connection that was cut.
    logging.disable()

    async def run() -> dict[str, Counter[str]]:
        return await attack_all(Target(kafka, http, grpc), names)

    print(json.dumps(asyncio.run(run())))


if __name__ == "__main__":
    main()
