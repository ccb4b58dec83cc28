"""A classic group that comes back from what was written of it."""

from __future__ import annotations

from tests.unit.engine.coordinator.conftest import join_request

from headrace.engine.coordinator.classic import STABLE, ClassicGroup
from headrace.engine.coordinator.stored import ClassicRecord, ClassicSaid
from headrace.engine.coordinator.values import GroupError


def record(member_id: str, generation: int) -> ClassicRecord:
    said = ClassicSaid.of(join_request(member_id))
    return ClassicRecord(generation, member_id == "ann", "range", b"part", said)


def restored(**generations: int) -> ClassicGroup:
    group = ClassicGroup("g")
    records = {name: record(name, generation) for name, generation in generations.items()}
    group.restore(records, 1_000)
    return group


def test_all_of_one_generation_go_on() -> None:
    group = restored(ann=4, bob=4)
    assert (group.state, group.generation) == (STABLE, 4)
    for name in ("ann", "bob"):
        assert group.on_heartbeat(name, None, 4, 1_001) is GroupError.NONE


def test_a_generation_of_which_a_part_was_written_is_agreed_upon_anew() -> None:
    """Nobody was told of it; what was to be the part of the others would be read by nobody."""
    group = restored(ann=5, bob=4)
    assert group.on_heartbeat("ann", None, 5, 1_001) is GroupError.REBALANCE_IN_PROGRESS
    assert group.on_heartbeat("bob", None, 4, 1_001) is GroupError.UNKNOWN_MEMBER_ID
