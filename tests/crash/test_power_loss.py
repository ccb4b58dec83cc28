"""Losing power before any operation of the disk: what was answered is there.

Any subset of the unsynced pages, sizes and names survives. The short form looks
at some of the operations; HEADRACE_LONG=1 looks at all of them, several times.
"""

from __future__ import annotations

import random

import pytest

from headrace import Headrace
from headrace.testing import FaultDisk, ManualClock
from headrace.testing.fault_disk import keep_nothing
from tests.crash.actor import GROUP, REDRIVES_HEADER, Actor
from tests.crash.invariants import check, read_all
from tests.crash.ledger import ALIVE, Ledger
from tests.crash.power import LONG, PowerCuts, make_rare_things_common, open_on, opened
from tests.crash.script import work

pytestmark = pytest.mark.power_loss

@pytest.fixture(autouse=True)
def rare_things_are_common(monkeypatch: pytest.MonkeyPatch) -> None:
    make_rare_things_common(monkeypatch)


def _check_and_use(
    disk: FaultDisk, ledger: Ledger, clock: ManualClock, chance: random.Random
) -> None:
    with opened(disk, clock) as handle:
        check(handle, ledger)
        actor = Actor(handle, ledger.note, 1 << 40)
        for topic in [name for name, facts in ledger.topics.items() if facts.exists == {True}]:
            actor.publish(topic, ["after the crash"], key="key-after")
            if ledger.topics[topic].compacted:
                continue
            for _ in range(2):
                messages = actor.lease(topic, 50)
                actor.settle("ack", topic, messages[::2])
                actor.settle("nack", topic, messages[1::2], error="again")
    # And once more: only what was synced is left.
    with opened(disk.crash(keep_nothing), clock) as handle:
        check(handle, ledger)
        _drain(handle, ledger, clock)
        check(handle, ledger)


def _drain(handle: Headrace, ledger: Ledger, clock: ManualClock) -> None:
    """What is alive is delivered, whatever it waited for."""
    actor = Actor(handle, ledger.note, 1 << 50)
    clock.skip(7_200)
    for topic, facts in ledger.topics.items():
        if facts.exists != {True} or facts.compacted:
            continue
        while messages := actor.lease(topic, 100):
            actor.settle("ack", topic, messages)
        left = [m for m in ledger.in_topic(topic) if ALIVE in m.fates]
        assert not left, f"never delivered: {left}"
        assert handle.depth(topic, group=GROUP) == 0


def test_nothing_acknowledged_is_undone_by_a_loss_of_power() -> None:
    clock = ManualClock(autoskip=False)
    ledger = Ledger(grants_last=False)
    stride, subsets = (1, 4) if LONG else (40, 1)
    cuts = PowerCuts(ledger, clock, _check_and_use, stride=stride, subsets=subsets)
    disk = FaultDisk()
    cuts.watch(disk)
    actor = Actor(open_on(disk, clock), ledger.note)
    work(actor, clock, lambda: open_on(disk, clock))
    check(actor.handle, ledger)
    print(f"{cuts.trials} losses of power over {cuts.operations} operations")
    assert cuts.trials


# Durability that does not wait for the disk.


@pytest.mark.parametrize(
    ("durability", "ordering"), [("os", "none"), ("os", "key"), ("interval", "partition")]
)
def test_what_is_lost_without_syncing_is_lost_whole_and_haunts_nobody(
    durability: str, ordering: str
) -> None:
    clock = ManualClock(autoskip=False)
    ledger = Ledger(grants_last=False)
    stride, subsets = (1, 3) if LONG else (12, 1)
    cuts = PowerCuts(ledger, clock, _check_lazy, stride=stride, subsets=subsets)
    disk = FaultDisk()
    cuts.watch(disk)
    actor = Actor(open_on(disk, clock), ledger.note)
    actor.create_topic(
        "lazy", 2, durability=durability, sync_interval_ms=3_600_000, dedup=True,
        segment_bytes=1_024, ordering=ordering,
    )  # fmt: skip
    actor.queue("lazy")
    for step in range(8):
        actor.publish("lazy", [f"{step}-{n}" + "." * 60 for n in range(8)])
        actor.publish("lazy", [f"{step}-id"], dedup_ids=[f"id-{step}"])
        for n in range(3):
            actor.publish("lazy", [f"{step}-key-{n}"], key=f"key-{(step + n) % 4}")
        [late] = actor.publish("lazy", [f"{step}-late"], delay=3_600)
        actor.cancel("lazy", late)
        messages = actor.lease("lazy", 9)
        actor.settle("ack", "lazy", messages[:4])
        actor.settle("nack", "lazy", messages[4:6], error="no")
        actor.settle("reject", "lazy", messages[6:8], reason="bad")
        for partition in actor.handle.topic("lazy").partitions:
            actor.commit("readers", "lazy", partition.partition, partition.high_watermark)
        if step == 4:
            actor.purge("lazy", 1)
            actor.redrive("lazy", 1)
    print(f"{cuts.trials} losses of power over {cuts.operations} operations")
    assert cuts.trials
    actor.handle.close()


def _check_lazy(
    disk: FaultDisk, ledger: Ledger, clock: ManualClock, chance: random.Random
) -> None:
    """A tail may be gone. What is there is what was sent, in its place; and what
    comes to lie where something was lost begins with a clean sheet."""
    with opened(disk, clock) as handle:
        if "lazy" not in {info.name for info in handle.topics()}:
            return
        ends = _check_prefix(handle, ledger)
        node = handle.connection.reach()
        for partition, offset in node.committed("readers", "lazy").items():
            assert offset <= ends[partition], f"a cursor at {offset} is beyond {ends[partition]}"
        queue = handle.queue("lazy", GROUP, backoff_ms=0, max_attempts=3)
        fresh = {}
        for step in range(40):
            value = f"fresh-{step}"
            place = handle.publish(
                "lazy", value.encode(), dedup_id=f"id-{step}", partition=step % 2,
                key=f"key-{step % 5}",
            )  # fmt: skip
            if place.duplicate:
                [record] = node.read("lazy", place.partition, place.offset, count_max=1)[0]
                assert dict(record.headers)["headrace-dedup-id"] == f"id-{step}".encode()
                continue
            assert place.offset >= ends[place.partition]
            fresh[place.partition, place.offset] = value
        for partition, offset in node.committed("readers", "lazy").items():
            assert offset <= ends[partition], "a cursor of lost records skips new ones"
        delivered: dict[tuple[int, int], str] = {}
        while messages := queue.lease(100):
            for message in messages:
                place_of = (message.partition, message.offset)
                value = (message.raw or b"").decode()
                if place_of in fresh:
                    assert message.attempt == 1, f"{message} was never delivered before"
                    assert message.error is None
                assert place_of not in delivered
                delivered[place_of] = value
            queue.ack(messages)
        assert {place: delivered.get(place) for place in fresh} == fresh
        letters = {(letter.raw or b"").decode() for letter in handle.dead_letters("lazy")}
        assert not letters & set(fresh.values()), "a new message shares a lost one's fate"
        handle.close()
    with opened(disk.crash(keep_nothing), clock) as handle:
        assert not handle.queue("lazy", GROUP, backoff_ms=0).lease(100)
        again = {(letter.raw or b"").decode() for letter in handle.dead_letters("lazy")}
        assert again == letters, "a dead letter came or went with the second opening"
        for place_of, value in fresh.items():
            [record] = handle.connection.reach().read("lazy", *place_of, count_max=1)[0]
            assert record.value == value.encode()
        handle.close()


def _check_prefix(handle: Headrace, ledger: Ledger) -> dict[int, int]:
    """Each record is one that was sent; of those that were answered, each is at
    its place, up to where the partition ends."""
    ends = {}
    for info in handle.topic("lazy").partitions:
        ends[info.partition] = info.high_watermark
        records = read_all(handle, "lazy", info.partition, info.start_offset)
        found = {record.offset: (record.value or b"").decode() for record in records}
        assert list(found) == list(range(info.start_offset, info.high_watermark))
        messages = ledger.in_topic("lazy")
        assert set(found.values()) <= {message.value for message in messages}
        # A redrive that recovery took up again may lie where something was lost.
        redriven = {r.offset for r in records if REDRIVES_HEADER in dict(r.headers)}
        for message in messages:
            if message.place is not None and message.place[0] == info.partition:
                offset = message.place[1]
                if offset < info.high_watermark and offset not in redriven:
                    assert found[offset] == message.value
    return ends
