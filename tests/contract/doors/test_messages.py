"""Topics and messages, at every door: published, read by offset, all or nothing."""

from __future__ import annotations

import pytest
from tests.contract.doors.door import Door, New, Refused


def refused(code: str, *words: str) -> pytest.RaisesExc[Refused]:
    return pytest.raises(
        Refused,
        check=lambda error: error.code == code and all(word in error.detail for word in words),
    )


def test_a_topic_is_made_described_grown_and_deleted(door: Door, topic: str) -> None:
    assert topic in door.topics()
    assert door.bounds(topic) == [(0, 0)]
    door.grow(topic, 3)
    assert door.bounds(topic) == [(0, 0)] * 3
    door.delete_topic(topic)
    assert topic not in door.topics()
    with refused("unknown-topic", topic):
        door.bounds(topic)


def test_a_topic_that_exists_is_not_made_again(door: Door, topic: str) -> None:
    with refused("topic-exists", topic):
        door.create_topic(topic)


def test_what_is_published_is_read_back_as_it_was(door: Door, topic: str) -> None:
    given = [
        New(b"\x00\xff bytes", b"\xfe key", {"trace": b"1"}),
        New("text, ä".encode()),
        New(b""),
        New(None, b"k"),
    ]
    places = door.publish(topic, *given)
    assert [(each.partition, each.offset) for each in places] == [(0, n) for n in range(4)]
    found, next_offset = door.read(topic, 0, 0, 10)
    assert [(each.value, each.key) for each in found] == [(each.value, each.key) for each in given]
    assert [each.offset for each in found] == [0, 1, 2, 3]
    assert found[0].headers == {"trace": b"1"}
    assert next_offset == 4


def test_of_our_headers_those_that_say_something_are_left_out_and_no_others(
    door: Door, topic: str, group: str
) -> None:
    own = {"headrace-foo": b"1", "headrace-replayed-from": b"orders:0:7", "trace": b"2"}
    ours = {
        "headrace-priority": b"high", "headrace-ttl-ms": b"3600000", "headrace-max-attempts": b"1",
        "headrace-visibility-ms": b"5000", "headrace-delay-ms": b"0", "headrace-redrives": b"1",
    }  # fmt: skip
    door.publish_headers(topic, own | ours)
    [read], _ = door.read(topic, 0, 0, 10)
    [leased] = door.lease(topic, group, 1)
    assert dict(read.headers) == dict(leased.seen.headers) == own


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_what_a_topic_compresses_is_read_back_as_it_was(door: Door, topic: str, codec: str) -> None:
    name = f"{topic}-{codec}"
    door.create_topic(name, 1, compression=codec, timestamp_type="LogAppendTime")
    given = [New(b"%d" % number * 50, b"k", {"trace": b"1"}) for number in range(20)]
    door.publish(name, *given)
    door.transact([(name, New(b"last"))], [])
    found, _ = door.read(name, 0, 0, 30)
    assert [each.value for each in found] == [*[each.value for each in given], b"last"]
    assert found[0].headers == {"trace": b"1"}
    [leased] = door.lease(name, f"readers-{topic}", 1)
    assert leased.value == given[0].value


def test_reading_goes_on_from_the_next_offset(door: Door, topic: str) -> None:
    door.publish(topic, *(New(b"%d" % number) for number in range(5)))
    first, after = door.read(topic, 0, 1, 2)
    rest, end = door.read(topic, 0, after, 10)
    assert [each.value for each in first + rest] == [b"1", b"2", b"3", b"4"]
    assert door.read(topic, 0, end, 10) == ([], 5)


def test_messages_with_one_key_stay_in_one_partition(door: Door, topic: str) -> None:
    door.grow(topic, 4)
    keyed = door.publish(topic, *(New(b"x", b"customer") for _ in range(8)))
    assert len({each.partition for each in keyed}) == 1
    assert [each.offset for each in keyed] == list(range(8))
    [chosen] = door.publish(topic, New(b"x", b"customer", partition=2))
    assert chosen.partition == 2


@pytest.mark.parametrize("special", [None, 0, 50, 99])
def test_a_large_batch_keeps_its_order_whatever_is_in_it(
    door: Door, topic: str, special: int | None
) -> None:
    given = [New(b"%d" % number) for number in range(100)]
    if special is not None:
        given[special] = New(None, b"key", {"h": b"1"})
    places = door.publish(topic, *given)
    assert [each.offset for each in places] == list(range(100))
    found, _ = door.read(topic, 0, 0, 200)
    assert [(each.value, each.key) for each in found] == [(each.value, each.key) for each in given]


def test_the_same_message_is_published_once(door: Door, topic: str) -> None:
    once = f"once-{topic}"
    door.create_topic(once, dedup=True)
    [first] = door.publish(once, New(b"x", attributes={"dedup_id": "7"}))
    [second] = door.publish(once, New(b"x", attributes={"dedup_id": "7"}))
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.offset == second.offset
    assert door.bounds(once) == [(0, 1)]


def test_several_topics_are_published_to_as_one(door: Door, topic: str) -> None:
    other = f"other-{topic}"
    door.create_topic(other)
    places = door.transact([(topic, New(b"1")), (other, New(b"2")), (topic, New(b"3"))], [])
    assert [each.offset for each in places] == [0, 0, 1]
    assert [each.value for each in door.read(topic, 0, 0, 10)[0]] == [b"1", b"3"]
    assert [each.value for each in door.read(other, 0, 0, 10)[0]] == [b"2"]


def test_a_transaction_acks_with_what_it_publishes(door: Door, topic: str, group: str) -> None:
    other = f"other-{topic}"
    door.create_topic(other)
    door.publish(topic, New(b"order"))
    [leased] = door.lease(topic, group)
    door.transact([(other, New(b"invoice"))], [leased.receipt])
    assert door.status(topic, 0, group) == ("acked", 1)
    assert [each.value for each in door.read(other, 0, 0, 10)[0]] == [b"invoice"]


def test_a_transaction_with_a_lease_that_is_over_does_nothing(
    door: Door, topic: str, group: str
) -> None:
    other = f"other-{topic}"
    door.create_topic(other)
    door.publish(topic, New(b"order"))
    [leased] = door.lease(topic, group)
    door.settle("release", [leased.receipt])
    with refused("stale-receipt"):
        door.transact([(other, New(b"invoice"))], [leased.receipt])
    assert door.read(other, 0, 0, 10)[0] == []
    assert [each.value for each in door.lease(topic, group)] == [b"order"]


def test_a_transaction_to_a_topic_that_is_not_there_does_nothing(door: Door, topic: str) -> None:
    with refused("unknown-topic", f"absent-{topic}"):
        door.transact([(topic, New(b"1")), (f"absent-{topic}", New(b"2"))], [])
    assert door.bounds(topic) == [(0, 0)]


def test_what_is_not_there_is_refused_by_name(door: Door, topic: str) -> None:
    absent = f"absent-{topic}"
    with refused("unknown-topic", absent):
        door.publish(absent, New(b"x"))
    with refused("unknown-topic", absent):
        door.read(absent, 0, 0, 1)
    with refused("unknown-topic", absent):
        door.delete_topic(absent)
    with refused("offset-out-of-range"):
        door.read(topic, 0, 5, 1)


def test_names_and_sizes_that_are_not_allowed_are_refused(door: Door, topic: str) -> None:
    with refused("invalid-name"):
        door.create_topic("no spaces")
    with refused("record-too-large"):
        door.publish(topic, New(b"x", bytes(70_000)))
    with refused("invalid-argument"):
        door.publish(topic, New(b"x", attributes={"max_attempts": 0}))
    assert door.bounds(topic) == [(0, 0)]


# What must be said.


def test_a_dedup_id_is_refused_where_it_would_mean_nothing(door: Door, topic: str) -> None:
    new = New(b"x", attributes={"dedup_id": "7"})
    with refused("invalid-argument", "dedup"):
        door.publish(topic, new)
    with refused("invalid-argument", "dedup"):
        door.publish(topic, *[new] * 20)
    with refused("invalid-argument", "dedup"):
        door.transact([(topic, new)], [])
    assert door.bounds(topic) == [(0, 0)]
