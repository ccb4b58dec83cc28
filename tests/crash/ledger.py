"""The ledger: what was promised to a caller, and so must be found after a crash.

Every call is written down twice, as a line each:

    try    before it: from now on its effect may be there
    done   after it returned: from now on its effect must be there

A crash comes between any two lines, also in the middle of a call. For each message
the ledger keeps the set of fates that it may have met; a call that was tried and
not answered leaves two of them open, and `invariants.check` closes them again by
looking.

    message   (topic, value, redrives)     values are never used twice
    fate      alive, acked, dead, cancelled
    letter    a dead message's copy: kept, or gone by redrive or purge
    redrive   the message is alive again where it is, or there is a copy: whoever
              sees the one or the other knows which it was

Rejected: comparing with a second queue in memory. It would have to be as clever as
the first one; a ledger only knows what it was told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Fact = dict[str, Any]
Place = tuple[int, int]
Key = tuple[str, str, int]

ALIVE, ACKED, DEAD, CANCELLED = "alive", "acked", "dead", "cancelled"
KEPT, GONE = "kept", "gone"


@dataclass
class Message:
    topic: str
    value: str
    redrives: int
    # Partition and offset; None while nobody has seen where it is.
    place: Place | None = None
    # Whether the publish, or the redrive, was answered.
    promised: bool = False
    fates: set[str] = field(default_factory=lambda: {ALIVE})
    letter: set[str] = field(default_factory=lambda: {KEPT})
    # Whether the letter goes, if it goes, by becoming a message again.
    redriven: bool = False
    # How often it was redriven in place, and whether that may just have happened.
    revived: int = 0
    may_be_revived: bool = False
    # Bounds of the delivery count, as long as it is alive.
    attempts_least: int = 0
    attempts_most: int = 0
    # As the last answers say it.
    attempts_now: int = 0
    dedup_id: str | None = None
    # Whether it has a TTL, and so may end by itself.
    may_expire: bool = False
    key: str | None = None

    @property
    def copy_key(self) -> Key:
        """Under which the next redrive, if it makes a copy, puts that."""
        return self.topic, self.value, self.redrives + self.revived + 1


@dataclass
class TopicFacts:
    exists: set[bool] = field(default_factory=lambda: {False})
    partitions: set[int] = field(default_factory=set)
    # Below this a partition's records may be gone, by delete_records.
    floor: dict[int, int] = field(default_factory=dict)
    may_lose_old: bool = False
    compacted: bool = False
    # No queue group reads it, so retention alone decides what stays.
    streamed: bool = False


class Ledger:
    """`grants_last` says whether a grant survives the crash: it does when only
    the process dies, and does not have to when the power goes."""

    def __init__(self, *, grants_last: bool, attempts_max: int = 3) -> None:
        self.grants_last = grants_last
        self.attempts_max = attempts_max
        self.topics: dict[str, TopicFacts] = {}
        self.messages: dict[Key, Message] = {}
        self.cursors: dict[tuple[str, str, int], set[int | None]] = {}
        self._tried: dict[int, Fact] = {}
        self._places: dict[tuple[str, int, int], Message] = {}

    # Facts.

    def note(self, fact: Fact) -> None:
        act = getattr(self, f"_{fact['kind']}_{fact['op']}", None)
        if fact["kind"] == "try":
            self._tried[fact["number"]] = fact
        else:
            del self._tried[fact["number"]]
        if act is not None:
            act(fact)

    def on_crash(self) -> None:
        """No call that is still open will ever be answered."""
        for fact in self._tried.values():
            if fact["op"] == "lease":
                self._loosen_attempts(fact["topic"])
        self._tried.clear()

    def in_topic(self, topic: str) -> list[Message]:
        return [message for message in self.messages.values() if message.topic == topic]

    def at(self, topic: str, place: Iterable[int]) -> Message:
        partition, offset = place
        return self._places[topic, partition, offset]

    def put(self, message: Message, partition: int, offset: int) -> None:
        """Somebody has seen where it is, so its publish has taken effect."""
        assert message.place in (None, (partition, offset)), f"{message} moved to {offset}"
        message.place, message.promised = (partition, offset), True
        self._places[message.topic, partition, offset] = message

    # Topics.

    def _try_create_topic(self, fact: Fact) -> None:
        found = self.topics.setdefault(fact["topic"], TopicFacts())
        found.exists.add(True)
        found.partitions.add(fact["partitions"])
        found.may_lose_old = fact.get("may_lose_old", False)
        found.compacted = fact.get("compacted", False)
        found.streamed = fact.get("streamed", False)

    def _done_create_topic(self, fact: Fact) -> None:
        self.topics[fact["topic"]].exists = {True}

    def _try_delete_topic(self, fact: Fact) -> None:
        self.topics[fact["topic"]].exists.add(False)

    def _done_delete_topic(self, fact: Fact) -> None:
        self.forget_topic(fact["topic"])

    def forget_topic(self, topic: str) -> None:
        self.topics[topic] = TopicFacts()
        self.messages = {key: m for key, m in self.messages.items() if m.topic != topic}
        self._places = {key: m for key, m in self._places.items() if m.topic != topic}
        self.cursors = {key: v for key, v in self.cursors.items() if key[1] != topic}

    def _try_grow_topic(self, fact: Fact) -> None:
        self.topics[fact["topic"]].partitions.add(fact["partitions"])

    def _done_grow_topic(self, fact: Fact) -> None:
        self.topics[fact["topic"]].partitions = {fact["partitions"]}

    def _try_delete_records(self, fact: Fact) -> None:
        floor = self.topics[fact["topic"]].floor
        floor[fact["partition"]] = max(fact["before"], floor.get(fact["partition"], 0))
        for message in self._below(fact):
            message.fates.add(CANCELLED)

    def _done_delete_records(self, fact: Fact) -> None:
        for message in self._below(fact):
            message.fates = {CANCELLED} | (message.fates & {DEAD})

    def _below(self, fact: Fact) -> list[Message]:
        return [
            message
            for message in self.in_topic(fact["topic"])
            if message.place is not None
            and message.place[0] == fact["partition"]
            and message.place[1] < fact["before"]
            and message.fates & {ALIVE, CANCELLED}
        ]

    # Publishing.

    def _try_publish(self, fact: Fact) -> None:
        for value, dedup_id in zip(fact["values"], fact["dedup_ids"], strict=True):
            message = Message(fact["topic"], value, 0, dedup_id=dedup_id, key=fact["key"])
            message.may_expire = fact["may_expire"]
            self.messages[fact["topic"], value, 0] = message

    def _done_publish(self, fact: Fact) -> None:
        for value, (partition, offset, duplicate) in zip(
            fact["values"], fact["places"], strict=True
        ):
            message = self.messages[fact["topic"], value, 0]
            if duplicate:
                first = self.at(fact["topic"], (partition, offset))
                assert first.dedup_id == message.dedup_id is not None, (
                    f"{value} was taken for a duplicate of {first}"
                )
                del self.messages[fact["topic"], value, 0]
                continue
            self.put(message, partition, offset)

    def _try_cancel(self, fact: Fact) -> None:
        self.at(fact["topic"], fact["place"]).fates.add(CANCELLED)

    def _done_cancel(self, fact: Fact) -> None:
        fates = {CANCELLED} if fact["cancelled"] else {ALIVE}
        self.at(fact["topic"], fact["place"]).fates = fates

    # Leases.

    def _done_lease(self, fact: Fact) -> None:
        for partition, offset, attempt, value, redrives in fact["leased"]:
            message = self.messages[fact["topic"], value, redrives]
            # Another thread's publish may not have been answered yet.
            self.put(message, partition, offset)
            if message.may_be_revived:
                self.on_revived(message)
            assert ALIVE in message.fates, f"{message} was delivered again"
            assert message.attempts_least < attempt <= message.attempts_most + 1, (
                f"{message} was delivered for the {attempt}. time"
            )
            message.fates = {ALIVE}
            message.attempts_most = message.attempts_now = attempt
            if self.grants_last:
                message.attempts_least = attempt

    def _loosen_attempts(self, topic: str) -> None:
        for message in self.in_topic(topic):
            message.attempts_most += 1

    def _on_state_synced(self, topic: str, places: Iterable[Iterable[int]]) -> None:
        """Everything that was said of these partitions lasts now."""
        partitions = {partition for partition, _ in places}
        for message in self.in_topic(topic):
            if message.place is not None and message.place[0] in partitions:
                # What was released counts one less, and its release lasts as well.
                message.attempts_least = message.attempts_now

    def _settled(self, fact: Fact) -> list[Message]:
        done = [
            self.at(fact["topic"], place)
            for place, settled in zip(fact["places"], fact["settled"], strict=True)
            if settled
        ]
        self._on_state_synced(fact["topic"], fact["places"])
        return done

    def _try_ack(self, fact: Fact) -> None:
        for place in fact["places"]:
            self.at(fact["topic"], place).fates.add(ACKED)

    def _done_ack(self, fact: Fact) -> None:
        for message in self._settled(fact):
            message.fates = {ACKED}

    def _try_reject(self, fact: Fact) -> None:
        for place in fact["places"]:
            self.at(fact["topic"], place).fates.add(DEAD)

    def _done_reject(self, fact: Fact) -> None:
        for message in self._settled(fact):
            message.fates = {DEAD}

    def _try_nack(self, fact: Fact) -> None:
        for place in fact["places"]:
            message = self.at(fact["topic"], place)
            if message.attempts_most >= self.attempts_max:
                message.fates.add(DEAD)

    def _done_nack(self, fact: Fact) -> None:
        for message in self._settled(fact):
            spent = message.attempts_most >= self.attempts_max
            message.fates = {DEAD} if spent else {ALIVE}

    def _done_extend(self, fact: Fact) -> None:
        self._settled(fact)

    def _try_release(self, fact: Fact) -> None:
        for place in fact["places"]:
            message = self.at(fact["topic"], place)
            message.attempts_least -= 1
            message.attempts_now -= 1

    def _done_release(self, fact: Fact) -> None:
        if self.grants_last:
            for place in fact["places"]:
                message = self.at(fact["topic"], place)
                message.attempts_most = message.attempts_least

    def _try_close(self, fact: Fact) -> None:
        for message in self.messages.values():
            message.attempts_least = max(0, message.attempts_least - 1)
            message.attempts_now = max(0, message.attempts_now - 1)

    # Dead letters.

    def _try_purge(self, fact: Fact) -> None:
        for message in self._letters(fact):
            message.letter.add(GONE)
            message.redriven = False

    def _done_purge(self, fact: Fact) -> None:
        for message in self._letters(fact):
            message.letter = {GONE}

    def _try_redrive(self, fact: Fact) -> None:
        for message in self._letters(fact):
            message.letter.add(GONE)
            message.redriven = message.may_be_revived = True
            message.fates.add(ALIVE)
            message.attempts_least = message.attempts_most = message.attempts_now = 0
            # The copy has the id of the first, and outlives it in the dedup window.
            topic, value, redrives = message.copy_key
            again = Message(topic, value, redrives, dedup_id=message.dedup_id)
            self.messages[message.copy_key] = again

    def _done_redrive(self, fact: Fact) -> None:
        """Of some in place and some copies nobody said which was which."""
        for message in self._letters(fact):
            message.letter = {GONE}
            if fact["copied"] == len(fact["letters"]):
                message.fates -= {ALIVE}
                message.may_be_revived = False
                self.messages[message.copy_key].promised = True
            elif fact["in_place"] == len(fact["letters"]) and message.may_be_revived:
                self.on_revived(message)
                message.fates = {ALIVE}

    def on_revived(self, message: Message) -> None:
        """Somebody has seen it alive again in its place."""
        copy = self.messages.pop(message.copy_key, None)
        assert copy is None or copy.place is None, f"{message} came back twice, also as {copy}"
        message.revived += 1
        message.may_be_revived = message.redriven = False
        message.letter = {KEPT}

    def _letters(self, fact: Fact) -> list[Message]:
        return [self.at(fact["topic"], source) for source in fact["letters"]]

    # Cursors.

    def _try_commit(self, fact: Fact) -> None:
        key = (fact["group"], fact["topic"], fact["partition"])
        self.cursors.setdefault(key, {None}).add(fact["offset"])

    def _done_commit(self, fact: Fact) -> None:
        self.cursors[fact["group"], fact["topic"], fact["partition"]] = {fact["offset"]}
