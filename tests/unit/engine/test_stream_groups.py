"""Stream groups: how many there may be, and how long their names are kept."""

from __future__ import annotations

import pytest
from tests.unit.engine.conftest import GROUP, TOPIC, Bench

from headrace.core import limits
from headrace.core.errors import LimitExceeded
from headrace.core.values import CursorMove
from headrace.engine.cursor_expiry import CursorExpiry

WEEK_MS = 7 * 24 * 3_600_000


def join(bench: Bench, group: str, member: str = "ann") -> None:
    bench.node.join_stream(group, [TOPIC], member, "earliest")


def groups(bench: Bench) -> set[str]:
    return bench.node._broker.cursors.groups()


def expire(bench: Bench) -> None:
    """Positions that nobody reads from any more go, as they do after a week."""
    expiry = CursorExpiry(bench.node._broker.cursors, WEEK_MS)
    for _ in range(2):
        with bench.node._writing() as (now_ms, commit):
            written = expiry.tick(now_ms, set())
            if written is not None:
                commit.data.append(written)
        bench.skip(WEEK_MS)


def test_a_group_is_forgotten_with_its_last_position_if_its_members_left(bench: Bench) -> None:
    bench.make(partitions=2)
    join(bench, "audit")
    bench.node.leave_stream("audit", "ann")
    assert groups(bench) == {"audit"}
    expire(bench)
    assert groups(bench) == set()


def test_a_group_is_forgotten_with_its_last_member_if_it_has_no_positions(bench: Bench) -> None:
    bench.make()
    join(bench, "audit")
    with bench.node._writing() as (now_ms, commit):
        cursors = bench.node._broker.cursors
        commit.data.append(cursors.commit("audit", dict.fromkeys(cursors.of("audit")), now_ms))
    assert groups(bench) == {"audit"}
    bench.node.leave_stream("audit", "ann")
    assert groups(bench) == set()


def test_a_group_without_members_goes_with_its_topic(bench: Bench) -> None:
    bench.make()
    join(bench, "audit")
    bench.node.leave_stream("audit", "ann")
    bench.node.delete_group(GROUP)
    bench.node.delete_topic(TOPIC)
    assert groups(bench) == set()


def test_one_group_more_than_there_may_be_is_refused_and_writes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GROUPS_MAX", 2)
    bench.make(partitions=2)
    for group in ("one", "two", "one"):
        join(bench, group)
    cursors = bench.node._broker.cursors
    written = cursors.ensure_topic(bench.clock.now_ms()).log.end_offset
    with pytest.raises(LimitExceeded, match="2 groups, the most allowed"):
        join(bench, "three")
    with pytest.raises(LimitExceeded, match="2 groups, the most allowed"):
        bench.node.commit("three", {(TOPIC, 0): 0})
    assert groups(bench) == {"one", "two"}
    assert cursors.ensure_topic(bench.clock.now_ms()).log.end_offset == written
    bench.node.commit("one", {(TOPIC, 0): 0})
    join(bench, "two", "bob")


def test_a_transaction_makes_no_group_beyond_the_most(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GROUPS_MAX", 1)
    bench.make()
    join(bench, "one")
    move = CursorMove("two", [(TOPIC, 0, 0)])
    begun = bench.node.begin_transaction([], [move], [])
    with pytest.raises(LimitExceeded):
        bench.node.write_transaction(begun, [move], [])
    bench.node.end_transaction(begun, commits=False)
    assert groups(bench) == {"one"}
