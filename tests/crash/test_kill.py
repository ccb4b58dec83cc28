"""Kill -9, again and again, on one directory: nothing that was answered is undone.

A child works through the public SDK and writes down what it was told; at a moment
that chance picks it is killed, and the directory is opened and compared. The seed
is printed; HEADRACE_SEED repeats it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.crash.actor import GROUP, Actor
from tests.crash.invariants import check
from tests.crash.ledger import ALIVE, DEAD, Ledger
from tests.crash.worker import TOPICS

import headrace
from headrace import Headrace

pytestmark = pytest.mark.crash

PROJECT = Path(__file__).parent.parent.parent
# Numbers of calls of one life; two threads share it.
CALLS_PER_LIFE = 2_000_000


def _kill_worker(directory: Path, facts: Path, chance: random.Random, life: int) -> None:
    """One life, which ends somewhere behind a random number of facts: the worker
    goes on while the signal is on its way."""
    child = subprocess.Popen(
        [
            sys.executable, "-m", "tests.crash.worker", str(directory), str(facts),
            str(chance.randrange(1 << 30)), str(life * CALLS_PER_LIFE),
        ],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}{os.pathsep}{PROJECT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None and child.stderr is not None
    wanted = 1 + int(chance.choice((1, 10, 100, 1_000)) * chance.random())
    try:
        # The worker writes a byte for each fact.
        seen = child.stdout.read(wanted)
        assert len(seen) == wanted, f"it ended by itself: {child.stderr.read().decode()}"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        child.stderr.close()


def _drain(handle: Headrace, ledger: Ledger) -> None:
    """Everything that is owed is delivered, and poison ends among the dead."""
    actor = Actor(handle, ledger.note, 1 << 60)
    for topic in TOPICS:
        for _ in range(10_000):
            messages = actor.lease(topic, 500)
            if not messages:
                break
            poison = [m for m in messages if m.offset % 13 == 5]
            actor.settle("nack", topic, poison, error="poison")
            actor.settle("ack", topic, [m for m in messages if m.offset % 13 != 5])
        delayed = {record.id for record in handle.delayed(topic)}
        for message in ledger.in_topic(topic):
            if ALIVE in message.fates and message.place is not None:
                place = (topic, *message.place)
                assert place in delayed, f"never delivered: {message}"


def test_nothing_acknowledged_is_undone_by_kill_9(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"repeat with: HEADRACE_SEED={seed} HEADRACE_KILLS={kills} make crash")
    chance = random.Random(seed)
    directory, facts = tmp_path / "data", tmp_path / "facts"
    ledger = Ledger(grants_last=True)
    read = 0
    for life in range(kills):
        _kill_worker(directory, facts, chance, life)
        with facts.open("rb") as file:
            file.seek(read)
            lines = file.read()
        read += len(lines)
        for line in lines.splitlines():
            ledger.note(json.loads(line))
        with headrace.open(directory) as handle:
            check(handle, ledger)
    with headrace.open(directory) as handle:
        _drain(handle, ledger)
        check(handle, ledger)
        letters = sum(DEAD in message.fates for message in ledger.messages.values())
        print(f"{kills} kills: {len(ledger.messages)} messages, {letters} of them dead")
        assert handle.depth(group=GROUP) == sum(
            ALIVE in message.fates for message in ledger.messages.values()
        )
    # Once more, now that nothing was in flight.
    with headrace.open(directory) as handle:
        check(handle, ledger)
