"""Power loss before every single operation of the disk, in the life of transactions.

Each transaction writes to two partitions and commits an offset. Whatever was on disk
when the power went, all of it is there or none of it, once time has ended what was
left open; and what was answered as committed is there.
"""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from tests.unit.engine.transaction_bench import TIMEOUT_MS, TransactionBench

from headrace.core.errors import UnknownTopic
from headrace.testing.fault_disk import FaultDisk, PowerLoss, keep_everything, keep_nothing

# In this order, with the protocol that bumps epochs or the one before it.
ENDS = ((True, True), (False, True), (True, False), (True, True))


class Life:
    """What the producer knows at the moment the power goes."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        # The one whose end was asked for and not answered.
        self.unknown: int | None = None


def live(disk: FaultDisk, life: Life) -> None:
    bench = TransactionBench(disk)
    bench.make_topic()
    for number, (commit, bumps) in enumerate(ENDS):
        owner = bench.init()
        bench.settle()
        bench.add(owner, 0, 1, offsets=True)
        bench.settle()
        bench.write(owner, 0, b"%d" % number)
        bench.commit_offset(owner, number)
        bench.sync()
        bench.write(owner, 1, b"%d" % number)
        bench.settle()
        if commit:
            life.unknown = number
        # Its decision is not part of the round that is under way.
        bench.sync(partial(bench.end, owner, commit=commit, bumps=bumps))
        bench.settle()
        life.unknown = None
        if commit:
            life.committed.append(number)


def check(disk: FaultDisk, life: Life) -> None:
    bench = TransactionBench(disk)
    try:
        bench.partition(0)
    except UnknownTopic:
        assert not life.committed
        return
    bench.now_ms += TIMEOUT_MS
    bench.table.tick(bench.now_ms)
    bench.settle()
    seen = [[int(value) for value in bench.committed(index)] for index in (0, 1)]
    assert seen[0] == seen[1], "a transaction is torn"
    possible = [life.committed]
    if life.unknown is not None:
        possible.append([*life.committed, life.unknown])
    assert seen[0] in possible
    assert bench.offset() == (seen[0][-1] if seen[0] else None)
    assert bench.is_stable()
    for index in (0, 1):
        assert not bench.partition(index).open_transactions()


def operations() -> int:
    disk = FaultDisk()
    live(disk, Life())
    return disk.operations


@pytest.mark.parametrize("kept", ["nothing", "everything", "some"])
def test_power_loss_never_tears_a_transaction(kept: str) -> None:
    for stop_at in range(1, operations() + 1):
        disk, life = FaultDisk(), Life()
        disk.stop_at = stop_at
        with pytest.raises(PowerLoss):
            live(disk, life)
        some = Random(stop_at)
        choose = {"nothing": keep_nothing, "everything": keep_everything}.get(kept, some)
        check(disk.crash(choose), life)
