"""Queues, at every door: leased, settled, delayed, in order of priority, given up."""

from __future__ import annotations

from tests.contract.doors.door import Act, Door, Leased, New
from tests.contract.doors.socket_door import BESIDE
from tests.contract.doors.test_messages import refused

from headrace.core import limits
from headrace.testing import ManualClock
from headrace.wire.http import frames


def values(leased: list[Leased]) -> list[bytes | None]:
    return [each.value for each in leased]


def receipts(leased: list[Leased]) -> list[str]:
    return [each.receipt for each in leased]


# Leasing and settling.


def test_a_leased_message_has_what_was_published(door: Door, topic: str, group: str) -> None:
    door.publish(topic, New(b"\x00x", b"k", {"h": b"1"}))
    [leased] = door.lease(topic, group, settings={"max_attempts": 4})
    assert (leased.seen.key, leased.value) == (b"k", b"\x00x")
    assert leased.seen.headers["h"] == b"1"
    assert (leased.attempt, leased.max_attempts, leased.error) == (1, 4, None)


def test_an_acked_message_is_done_for_its_group_alone(door: Door, topic: str, group: str) -> None:
    door.publish(topic, New(b"a"), New(b"b"))
    leased = door.lease(topic, group)
    assert door.settle("ack", receipts(leased)) == [None, None]
    assert door.lease(topic, group) == []
    assert door.settle("ack", receipts(leased)) == ["stale-receipt"] * 2
    assert values(door.lease(topic, f"{group}-2")) == [b"a", b"b"]


def test_a_lease_takes_no_more_than_it_was_asked_to(door: Door, topic: str, group: str) -> None:
    door.publish(topic, *(New(b"%d" % number) for number in range(5)))
    assert values(door.lease(topic, group, 2)) == [b"0", b"1"]
    assert values(door.lease(topic, group, 10)) == [b"2", b"3", b"4"]


def test_a_topic_that_is_named_twice_gives_each_message_once(
    door: Door, topic: str, group: str
) -> None:
    door.publish(topic, New(b"a"), New(b"b"), New(b"c"))
    leased = door.lease([topic, topic], group)
    assert values(leased) == [b"a", b"b", b"c"]
    assert door.settle("ack", receipts(leased)) == [None] * 3
    assert (door.counts(group).leased, door.counts(group).delivered) == (0, 3)


def test_more_topics_than_one_call_may_name_are_refused_before_a_group_is_made(
    door: Door, topic: str, group: str
) -> None:
    most = limits.TOPICS_PER_CALL_MAX
    names = [f"{topic}-{number}" for number in range(most)]
    with refused("limit-exceeded", f"{most + 1:,} topics", f"at most {most:,}"):
        door.lease([topic, *names], group)
    assert group not in door.groups()
    # As many as there may be are looked for.
    with refused("unknown-topic"):
        door.lease(names, group)


def test_a_nacked_message_comes_back_after_its_delay(
    door: Door, topic: str, group: str, clock: ManualClock
) -> None:
    door.publish(topic, New(b"x"))
    leased = door.lease(topic, group)
    assert door.settle("nack", receipts(leased), delay=20, error="no answer") == [None]
    clock.skip(19)
    assert door.lease(topic, group) == []
    clock.skip(2)
    [again] = door.lease(topic, group)
    assert (again.attempt, again.error) == (2, "no answer")


def test_a_released_message_is_ready_at_no_cost(door: Door, topic: str, group: str) -> None:
    door.publish(topic, New(b"x"))
    assert door.settle("release", receipts(door.lease(topic, group))) == [None]
    [again] = door.lease(topic, group)
    assert again.attempt == 1


def test_a_lease_that_is_over_gives_its_message_to_the_next(
    door: Door, topic: str, group: str, clock: ManualClock
) -> None:
    door.publish(topic, New(b"x"))
    [first] = door.lease(topic, group, visibility=10)
    clock.skip(9)
    assert door.lease(topic, group) == []
    clock.skip(2)
    [second] = door.lease(topic, group)
    assert second.attempt == 2
    assert door.settle("ack", [first.receipt]) == ["stale-receipt"]
    assert door.settle("ack", [second.receipt]) == [None]


def test_an_extended_lease_lasts_longer(
    door: Door, topic: str, group: str, clock: ManualClock
) -> None:
    door.publish(topic, New(b"x"))
    [leased] = door.lease(topic, group, visibility=10)
    assert door.settle("extend", [leased.receipt], visibility=60) == [None]
    clock.skip(50)
    assert door.lease(topic, group) == []
    assert door.settle("ack", [leased.receipt]) == [None]


def test_each_receipt_has_a_result_of_its_own(door: Door, topic: str, group: str) -> None:
    door.publish(topic, New(b"a"), New(b"b"))
    first, second = door.lease(topic, group)
    door.settle("ack", [first.receipt])
    outcomes = door.settle("ack", [first.receipt, "nonsense", second.receipt])
    assert outcomes == ["stale-receipt", "invalid-receipt", None]


def test_a_receipt_of_another_group_settles_nothing(door: Door, topic: str, group: str) -> None:
    door.publish(topic, New(b"a"))
    [leased] = door.lease(topic, group)
    acts: tuple[Act, ...] = ("ack", "nack", "reject", "extend", "release")
    for act in acts:
        assert door.settle(act, [leased.receipt], group=f"{group}-2") == ["invalid-receipt"]
    assert door.settle("ack", [leased.receipt], group=group) == [None]


def test_a_receipt_of_a_group_that_is_gone_is_refused(door: Door, topic: str, group: str) -> None:
    door.publish(topic, New(b"a"))
    [leased] = door.lease(topic, group)
    door.delete_group(group)
    door.lease(topic, group, 1)
    assert door.settle("ack", [leased.receipt]) == ["invalid-receipt"]


# The rules of the queue.


def test_a_delayed_message_comes_when_it_is_due(
    door: Door, topic: str, group: str, clock: ManualClock
) -> None:
    door.publish(topic, New(b"later", attributes={"delay": 60}), New(b"now"))
    ready = door.lease(topic, group)
    assert values(ready) == [b"now"]
    door.settle("ack", receipts(ready))
    assert door.delayed(topic) == [(b"later", clock.now_ms() + 60_000)]
    clock.skip(61)
    assert values(door.lease(topic, group)) == [b"later"]
    assert door.delayed(topic) == []


def test_delayed_messages_are_listed_as_they_come_due(door: Door, topic: str) -> None:
    for seconds in (30, 10, 40, 20):
        door.publish(topic, New(b"%d" % seconds, attributes={"delay": seconds}))
    assert [value for value, _ in door.delayed(topic)] == [b"10", b"20", b"30", b"40"]


def test_a_cancelled_message_never_comes(
    door: Door, topic: str, group: str, clock: ManualClock
) -> None:
    [place, _] = door.publish(topic, New(b"x", attributes={"delay": 10}), New(b"y"))
    assert door.cancel(topic, place) is True
    assert door.cancel(topic, place) is False
    clock.skip(11)
    assert values(door.lease(topic, group)) == [b"y"]


def test_a_critical_message_overtakes_others(door: Door, topic: str, group: str) -> None:
    door.publish(topic, *(New(b"normal") for _ in range(10)))
    door.publish(topic, New(b"urgent", attributes={"priority": "critical"}))
    assert values(door.lease(topic, group, 1)) == [b"urgent"]


def test_a_batch_comes_in_the_order_of_priority(door: Door, topic: str, group: str) -> None:
    for priority in ("low", "background", "normal", "critical", "high"):
        for n in (0, 1):
            value = b"%s-%d" % (priority.encode(), n)
            door.publish(topic, New(value, attributes={"priority": priority}))
    leased = door.lease(topic, group, 10)
    assert values(leased) == [
        b"%s-%d" % (priority, n)
        for priority in (b"critical", b"high", b"normal", b"low", b"background")
        for n in (0, 1)
    ]
    # Receipts are settled in any order; each answer stands in its receipt's place.
    assert door.settle("ack", [leased[6].receipt]) == [None]
    outcomes = door.settle("ack", receipts(leased))
    assert outcomes == [None if n != 6 else "stale-receipt" for n in range(10)]


def test_a_message_that_is_too_old_is_not_delivered(
    door: Door, topic: str, group: str, clock: ManualClock
) -> None:
    door.publish(topic, New(b"old", attributes={"ttl": 10}), New(b"new"))
    door.lease(topic, group, 1, visibility=1)
    clock.skip(11)
    assert values(door.lease(topic, group)) == [b"new"]
    assert door.status(topic, 0, group)[0] == "expired"
    assert door.counts(group).expired == 1


def test_a_message_sets_how_long_its_lease_lasts(
    door: Door, topic: str, group: str, clock: ManualClock
) -> None:
    door.publish(topic, New(b"x", attributes={"visibility": 5}))
    door.lease(topic, group)
    clock.skip(6)
    assert len(door.lease(topic, group)) == 1


def test_the_status_of_a_message_follows_it(
    door: Door, topic: str, group: str, clock: ManualClock
) -> None:
    door.lease(topic, group)
    door.publish(topic, New(b"x", attributes={"delay": 10}))
    states = [door.status(topic, 0, group)]
    clock.skip(11)
    leased = door.lease(topic, group)
    states.append(door.status(topic, 0, group))
    door.settle("nack", receipts(leased), delay=5)
    states.append(door.status(topic, 0, group))
    clock.skip(6)
    door.settle("ack", receipts(door.lease(topic, group)))
    states.append(door.status(topic, 0, group))
    assert states == [("delayed", 0), ("leased", 1), ("retrying", 1), ("acked", 2)]


def test_statistics_tell_every_state_apart(door: Door, topic: str, group: str) -> None:
    door.publish(topic, *(New(b"x") for _ in range(5)))
    door.publish(topic, New(b"x", attributes={"delay": 60}))
    _, retrying, acked, rejected = door.lease(topic, group, 4)
    door.settle("nack", [retrying.receipt], delay=60)
    door.settle("ack", [acked.receipt])
    door.settle("reject", [rejected.receipt])
    counts = door.counts(group)
    assert (counts.depth, counts.ready, counts.leased) == (4, 1, 1)
    assert (counts.retrying, counts.delayed, counts.delivered) == (1, 1, 4)
    assert (counts.acked, counts.nacked, counts.dead_lettered) == (1, 1, 1)


# Dead letters.


def test_a_message_that_fails_too_often_is_given_up(
    door: Door, topic: str, group: str, clock: ManualClock
) -> None:
    door.publish(topic, New(b"x", attributes={"max_attempts": 2}))
    for _ in range(2):
        door.settle("nack", receipts(door.lease(topic, group)), delay=1, error="no bank")
        clock.skip(2)
    assert door.lease(topic, group) == []
    [letter] = door.letters(topic)
    assert (letter.source, letter.value, letter.attempts) == (f"{topic}:0:0", b"x", 2)
    assert (letter.group, letter.error, letter.redrives) == (group, "no bank", 0)


def test_rejected_messages_are_listed_by_group_and_purged(
    door: Door, topic: str, group: str
) -> None:
    door.publish(topic, *(New(b"%d" % number) for number in range(7)))
    rejected = door.settle("reject", receipts(door.lease(topic, group)), reason="bad order")
    assert rejected == [None] * 7
    letters = door.letters(topic)
    assert [each.value for each in letters] == [b"%d" % number for number in range(7)]
    assert {each.error for each in letters} == {"bad order"}
    assert door.letters(topic, group) == letters
    assert door.letters(topic, "another") == []
    assert door.purge(topic, letters[:5]) == 5
    assert door.letters(topic) == letters[5:]


def test_a_redriven_message_comes_back_to_its_group(door: Door, topic: str, group: str) -> None:
    door.publish(topic, New(b"x"), New(b"y"))
    door.settle("reject", receipts(door.lease(topic, group)))
    door.lease(topic, f"{group}-2", 1)
    [first, second] = door.letters(topic)
    assert door.redrive(topic, [first], dry_run=True) == (1, 1, 0)
    assert door.lease(topic, group) == []
    assert door.redrive(topic, [first]) == (1, 1, 0)
    [again] = door.lease(topic, group)
    assert (again.seen.offset, again.value, again.attempt) == (0, b"x", 1)
    assert door.letters(topic) == [second]


def test_a_redrive_that_cannot_be_in_place_publishes_copies(
    door: Door, topic: str, group: str
) -> None:
    """The group was made again, and has its own view of the messages."""
    door.publish(topic, New(b"x"), New(b"y"))
    door.settle("reject", receipts(door.lease(topic, group)))
    door.delete_group(group)
    door.settle("ack", receipts(door.lease(topic, group)))
    letters = door.letters(topic)
    assert door.redrive(topic, letters, dry_run=True) == (2, 0, 2)
    assert door.redrive(topic, letters) == (2, 0, 2)
    again = sorted((each.seen.offset, each.value) for each in door.lease(topic, group))
    assert again == [(2, b"x"), (3, b"y")]


# Groups.


def test_groups_of_both_kinds_are_listed_and_deleted(door: Door, topic: str, group: str) -> None:
    stream = f"s-{topic}"
    door.lease(topic, group)
    door.seek(stream, topic, 0)
    assert {name: kind for name, kind in door.groups().items() if topic in name} == {
        group: "queue",
        stream: "stream",
    }
    for name in (group, stream):
        door.delete_group(name)
        with refused("unknown-group", name):
            door.delete_group(name)
    assert not [name for name in door.groups() if topic in name]


def test_a_stream_group_is_moved(door: Door, topic: str) -> None:
    stream = f"s-{topic}"
    door.publish(topic, *(New(b"x") for _ in range(5)))
    door.seek(stream, topic, 3)
    assert door.cursor(stream, topic) == 3
    door.seek(stream, topic, 1)
    assert door.cursor(stream, topic) == 1
    with refused("offset-out-of-range"):
        door.seek(stream, topic, 99)


def test_a_group_is_of_one_kind(door: Door, topic: str, group: str) -> None:
    door.lease(topic, group)
    with refused("group-kind-mismatch", group):
        door.seek(group, topic, 0)


def test_what_a_lease_cannot_have_is_refused(door: Door, topic: str, group: str) -> None:
    with refused("unknown-topic", f"absent-{topic}"):
        door.lease(f"absent-{topic}", group)
    with refused("invalid-argument", "max_attemps"):
        door.lease(topic, group, settings={"max_attemps": 1})
    with refused("invalid-argument"):
        door.lease(topic, group, visibility=1_000_000)
    with refused("invalid-name"):
        door.lease(topic, "no spaces")


def test_a_websocket_offers_what_the_table_does_not_leave_to_http() -> None:
    offered = {each.__struct_config__.tag for each in frames.Request.__args__}
    assert offered == {
        "enqueue", "dequeue", "ack", "nack", "reject", "extend", "release", "tail", "commit",
        "credit", "stop",
    }  # fmt: skip
    operations = {name for name in vars(Door) if not name.startswith("_")}
    assert operations - set(BESIDE) == {"publish", "publish_headers", "lease", "settle", "close"}
