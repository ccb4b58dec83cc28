"""What must hold of a directory after a crash, whatever the crash was.

    TopicsStand        topics that were promised are there, with their partitions
    NothingIsLost      each promised record is at its place, with its bytes
    NothingIsInvented  no record, and no dead letter, that nobody sent
    OrderStands        offsets ascend without a hole, each value once
    FatesStand         what was acked stays acked; what was not is still there
    AttemptsStand      delivery counts do not go back
    LettersStand       a dead message has one letter, until that is purged or redriven
    CursorsStand       a committed position is the last one that was answered

`check` looks at all of them, and closes what a crash had left open: afterwards the
ledger says what is, and the next crash starts from there.
"""

from __future__ import annotations

from typing import Any

from tests.crash.actor import GROUP, REDRIVES_HEADER
from tests.crash.ledger import ACKED, ALIVE, CANCELLED, DEAD, GONE, KEPT, Ledger, Message

from headrace import Headrace
from headrace.core.errors import UnknownMessage
from headrace.core.values import MessageId, StreamRecord

_FATES = {
    "pending": ALIVE,
    "leased": ALIVE,
    "retrying": ALIVE,
    "delayed": ALIVE,
    "acked": ACKED,
    "dead-lettered": DEAD,
    "cancelled": CANCELLED,
    "expired": CANCELLED,
}


def check(handle: Headrace, ledger: Ledger) -> None:
    ledger.on_crash()
    _check_topics(handle, ledger)
    for topic in [name for name, facts in ledger.topics.items() if facts.exists == {True}]:
        _check_records(handle, ledger, topic)
        _check_fates(handle, ledger, topic)
        _check_letters(handle, ledger, topic)
    _check_cursors(handle, ledger)


def _check_topics(handle: Headrace, ledger: Ledger) -> None:
    there = {info.name: len(info.partitions) for info in handle.topics()}
    for name, facts in ledger.topics.items():
        assert (name in there) in facts.exists, f"topic {name}: there is {sorted(there)}"
        if name not in there:
            ledger.forget_topic(name)
            continue
        assert there[name] in facts.partitions, f"topic {name} has {there[name]} partitions"
        facts.exists, facts.partitions = {True}, {there[name]}
    unknown = {
        name
        for name in there
        if name not in ledger.topics and name.removesuffix(".dlq") not in ledger.topics
    }
    assert not unknown, f"topics that nobody made: {unknown}"


def read_all(handle: Headrace, topic: str, partition: int, start: int) -> list[StreamRecord]:
    node = handle.connection.reach()
    found: list[StreamRecord] = []
    while True:
        records, following = node.read(topic, partition, start)
        if following == start:
            return found
        found += records
        start = following


def _check_records(handle: Headrace, ledger: Ledger, topic: str) -> None:
    facts = ledger.topics[topic]
    seen: set[tuple[str, int]] = set()
    starts: dict[int, int] = {}
    for info in handle.topic(topic).partitions:
        starts[info.partition] = info.start_offset
        records = read_all(handle, topic, info.partition, info.start_offset)
        offsets = [record.offset for record in records]
        if not facts.compacted:
            whole = list(range(info.start_offset, info.high_watermark))
            assert offsets == whole, f"{topic}:{info.partition} has holes: {offsets}"
        for record in records:
            value = (record.value or b"").decode()
            redrives = int(dict(record.headers).get(REDRIVES_HEADER) or b"0")
            assert (value, redrives) not in seen, f"{topic} has {value!r} twice"
            seen.add((value, redrives))
            message = ledger.messages.get((topic, value, redrives))
            place = (info.partition, record.offset)
            assert message is not None, f"nobody sent {value!r}, which is at {topic}:{place}"
            key = None if record.key is None else record.key.decode()
            assert redrives or message.key == key, f"{message} has key {key}"
            ledger.put(message, *place)
    if facts.compacted:
        _check_latest(ledger, topic, seen)
    for message in ledger.in_topic(topic):
        if (message.value, message.redrives) in seen:
            continue
        if message.place is not None and _may_be_gone(facts, message, starts):
            continue
        assert not message.promised, f"lost: {message}"
        if message.place is None:
            # It was tried, never answered, and is not there.
            del ledger.messages[topic, message.value, message.redrives]


def _check_latest(ledger: Ledger, topic: str, seen: set[tuple[str, int]]) -> None:
    """Compaction may take any record of a key but the last."""
    latest: dict[str | None, Message] = {}
    for message in ledger.in_topic(topic):
        if message.place is not None:
            before = latest.get(message.key)
            if before is None or (before.place or (0, 0)) < message.place:
                latest[message.key] = message
    for message in latest.values():
        assert (message.value, 0) in seen, f"the last of its key is lost: {message}"


def _may_be_gone(facts: Any, message: Message, starts: dict[int, int]) -> bool:
    assert message.place is not None
    partition, offset = message.place
    if facts.compacted:
        return True
    if offset >= starts[partition]:
        return False
    if facts.streamed:
        return True
    return offset < facts.floor.get(partition, 0) or (
        facts.may_lose_old and (ALIVE not in message.fates or len(message.fates) > 1)
    )


def _check_fates(handle: Headrace, ledger: Ledger, topic: str) -> None:
    facts = ledger.topics[topic]
    if facts.compacted or facts.streamed:
        return
    handle.queue(topic, GROUP, backoff_ms=0)
    for message in ledger.in_topic(topic):
        if message.place is None:
            continue
        try:
            status = handle.status(MessageId(topic, *message.place), GROUP)
        except UnknownMessage:
            assert message.fates & {ACKED, CANCELLED, DEAD}, f"unknown: {message}"
            continue
        fate = _FATES[status.state]
        if message.may_expire and status.state == "expired":
            message.fates.add(CANCELLED)
        if fate == DEAD and message.attempts_most >= ledger.attempts_max:
            # The last delivery was out when the crash came: that one counted.
            message.fates.add(DEAD)
        if message.place[1] < ledger.topics[topic].floor.get(message.place[0], 0):
            message.fates.add(ACKED)
        assert fate in message.fates, f"{message} is {status}"
        message.fates = {fate}
        if message.may_be_revived:
            if fate != DEAD:
                ledger.on_revived(message)
            message.may_be_revived = False
        if fate == ALIVE:
            assert message.attempts_least <= status.attempts <= message.attempts_most, (
                f"{message} has been delivered {status.attempts} times"
            )
            message.attempts_least = message.attempts_most = status.attempts
            message.attempts_now = status.attempts


def _check_letters(handle: Headrace, ledger: Ledger, topic: str) -> None:
    found: dict[tuple[str, int], MessageId] = {}
    for letter in handle.dead_letters(topic):
        key = ((letter.raw or b"").decode(), letter.redrives)
        assert key not in found, f"two dead letters of {key}: {found[key]} and {letter.id}"
        found[key] = letter.id
        message = ledger.at(topic, (letter.source.partition, letter.source.offset))
        assert key == (message.value, message.redrives + message.revived), f"of {message}: {key}"
        assert message.fates == {DEAD}, f"{message} has a dead letter, {letter.id}"
    for message in ledger.in_topic(topic):
        if message.fates == {DEAD}:
            now = KEPT if (message.value, message.redrives + message.revived) in found else GONE
            assert now in message.letter, f"the dead letter of {message} is {now}"
            message.letter = {now}
            again = ledger.messages.get(message.copy_key)
            if now == KEPT:
                assert again is None, f"redriven and still a dead letter: {message}"
            elif message.redriven:
                assert again is not None, f"no dead letter and not redriven: {message}"


def _check_cursors(handle: Headrace, ledger: Ledger) -> None:
    node = handle.connection.reach()
    for (group, topic, partition), allowed in ledger.cursors.items():
        if ledger.topics[topic].exists != {True}:
            continue
        now = node.committed(group, topic).get(partition)
        assert now in allowed, f"group {group} is at {now} of {topic}:{partition}, not {allowed}"
        ledger.cursors[group, topic, partition] = {now}
