"""Losing power before any operation of the disk: what was answered is there.

Any subset of the unsynced pages, sizes and names survives. The short form looks
at some of the operations; HEADRACE_LONG=1 looks at all of them, several times.
"""

from __future__ import annotations

import random

import pytest
from tests.crash.actor import GROUP, REDRIVES_HEADER, Actor
from tests.crash.invariants import check, read_all
from tests.crash.ledger import ALIVE, Ledger
from tests.crash.power import LONG, PowerCuts, make_rare_things_common, open_on, opened
from tests.crash.script import work

from headrace import Headrace
from headrace.testing import FaultDisk, ManualClock
from headrace.testing.fault_disk import keep_nothing

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
            if ledger.topics[topic].compacted or ledger.topics[topic].streamed:
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
        if facts.exists != {True} or facts.compacted or facts.streamed:
            continue
        while messages := actor.lease(topic, 100):
            actor.settle("ack", topic, messages)
        left = [m for m in ledger.in_topic(topic) if ALIVE in m.fates and not m.may_expire]
        assert not left, f"never delivered: {left}"
        assert handle.depth(topic, group=GROUP) == 0


def test_nothing_acknowledged_is_undone_by_a_loss_of_power() -> None:
    clock = ManualClock(autoskip=False)
    ledger = Ledger(grants_last=False)
    stride, subsets = (1, 4) if LONG else (30, 1)
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
    stride, subsets = (1, 3) if LONG else (8, 1)
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
        actor.settle("reject", "lazy", messages[6:8], error="bad")
        for partition in actor.handle.topic("lazy").partitions:
            actor.commit("readers", "lazy", partition.partition, partition.high_watermark)
        if step == 4:
            actor.purge("lazy", 1)
            actor.redrive("lazy", 1)
    print(f"{cuts.trials} losses of power over {cuts.operations} operations")
    assert cuts.trials
    actor.handle.close()


def _check_lazy(disk: FaultDisk, ledger: Ledger, clock: ManualClock, chance: random.Random) -> None:
    """A tail may be gone. What is there is what was sent, in its place; and what
    comes to lie where something was lost begins with a clean sheet, also after
    one more opening."""
    with opened(disk, clock) as handle:
        if "lazy" not in {info.name for info in handle.topics()}:
            return
        handle.queue("lazy", GROUP, backoff_ms=0)
        ends = _check_prefix(handle, ledger)
        _check_lazy_cursors(handle, ends)
        fresh = _publish_fresh(handle, ends)
        _check_lazy_cursors(handle, ends)
        drains_first = chance.random() < 0.5
        if drains_first:
            _drain_lazy(handle, ledger, ends, fresh)
        letters = _letters(handle)
        handle.close()
    with opened(disk.crash(keep_nothing), clock) as handle:
        for place, value in fresh.items():
            [record] = handle.connection.reach().read("lazy", *place, count_max=1)[0]
            assert record.value == value.encode()
        assert _letters(handle) == letters, "a dead letter came or went with an opening"
        if drains_first:
            assert not handle.queue("lazy", GROUP, backoff_ms=0).lease(100)
        else:
            _drain_lazy(handle, ledger, ends, fresh)
        assert not set(_letters(handle)) & set(fresh.values())
        _check_lazy_cursors(handle, ends)
        handle.close()


def _publish_fresh(handle: Headrace, ends: dict[int, int]) -> dict[tuple[int, int], str]:
    fresh = {}
    for step in range(40):
        dedup_id, key = f"id-{step}", f"key-{step % 5}"
        place = handle.publish(
            "lazy", f"fresh-{step}".encode(), dedup_id=dedup_id, partition=step % 2, key=key
        )
        if place.duplicate:
            node = handle.connection.reach()
            [record] = node.read("lazy", place.partition, place.offset, count_max=1)[0]
            assert dict(record.headers)["headrace-dedup-id"] == dedup_id.encode()
            continue
        assert place.offset >= ends[place.partition]
        fresh[place.partition, place.offset] = f"fresh-{step}"
    return fresh


def _check_lazy_cursors(handle: Headrace, ends: dict[int, int]) -> None:
    for partition, offset in handle.connection.reach().committed("readers", "lazy").items():
        assert offset <= ends[partition], f"the cursor at {offset} skips what is new"


def _letters(handle: Headrace) -> list[str]:
    return sorted((letter.raw or b"").decode() for letter in handle.dead_letters("lazy"))


def _drain_lazy(
    handle: Headrace, ledger: Ledger, ends: dict[int, int], fresh: dict[tuple[int, int], str]
) -> None:
    queue = handle.queue("lazy", GROUP, backoff_ms=0)
    delivered: dict[tuple[int, int], str] = {}
    while messages := queue.lease(100):
        for message in messages:
            place = (message.partition, message.offset)
            assert place not in delivered
            delivered[place] = (message.raw or b"").decode()
            if place in fresh:
                assert message.attempt == 1 and message.error is None, f"{message} is new"
        queue.ack(messages)
    assert {place: delivered.get(place) for place in fresh} == fresh
    for sent in ledger.in_topic("lazy"):
        # Late ones are not due, and nobody else was ever said to be done.
        place = sent.place or (0, ends[0])
        if sent.fates == {ALIVE} and place[1] < ends[place[0]]:
            assert place in delivered or sent.value.endswith("late")


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
