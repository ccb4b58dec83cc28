"""The queue against its naive twin.

The node runs on a memory disk with a clock that the test moves; chunks and
snapshots are made small, so that short histories meet their borders.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.queue_twin import HELD, OPEN, SETTINGS, Message, Place, Twin

from headrace.core.errors import StaleReceipt
from headrace.core.values import Delivery, MessageId, Outgoing, Receipt
from headrace.engine import state_log
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import attribute_headers

CHUNK_BITS = 4
TOPIC = "orders"
GROUPS = ("early", "late")
CONSUMERS = ("ann", "bob")
LEASES_MAX = SETTINGS["leases_per_consumer_max"]
REDRIVES_MAX = 3

# Messages that are all alike lie in long runs, which is where runs are split.
PLAIN = (2, 0, 0, 0, 0, b"k1")
ATTRIBUTES = st.tuples(
    st.sampled_from([0, 1, 2, 2, 2, 3, 4]),
    st.sampled_from([0, 0, 0, 150, 5_000]),
    st.sampled_from([0, 0, 0, 100, 3_000]),
    st.sampled_from([0, 0, 0, 1, 5]),
    st.sampled_from([0, 0, 200, 4_000]),
    st.sampled_from([None, b"k1", b"k2"]),
)


class HandClock:
    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


@pytest.fixture(autouse=True, scope="module")
def small_borders() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("headrace.engine.") and hasattr(module, "CHUNK_BITS"):
                patch.setattr(module, "CHUNK_BITS", CHUNK_BITS)
                patch.setattr(module, "CHUNK", 1 << CHUNK_BITS)
        patch.setattr(state_log, "SNAPSHOT_BYTES_MIN", 300)
        patch.setattr(state_log, "SNAPSHOT_FACTOR", 1)
        yield


class QueueAgainstTwin(RuleBasedStateMachine):
    @initialize(buries_expired=st.booleans(), partitions=st.integers(1, 2))
    def begin(self, buries_expired: bool, partitions: int) -> None:
        self.disk, self.clock = MemoryDisk(), HandClock()
        self.buries_expired = buries_expired
        self.node = Node.open(":memory:", disk=self.disk, clock=self.clock)
        self.partitions = partitions
        self.node.create_topic(
            TOPIC, partitions=partitions, settings={"dead_letter_expired": buries_expired}
        )
        self.letter_partitions: int | None = None
        # What every group sees, and what one alone was sent back.
        self.published: dict[Place, Message] = {}
        self.ends: Counter[int] = Counter()
        self.twins: dict[str, Twin] = {}
        self.receipts: dict[tuple[str, Place], Receipt] = {}
        self.stale: list[tuple[str, Receipt]] = []
        self.letters: dict[MessageId, Message] = {}
        self.number = 0
        self.open_group("early")

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self.node.close()

    def open_group(self, name: str) -> None:
        self.node.open_queue(name, [TOPIC], "ann", SETTINGS)
        if name not in self.twins:
            twin = self.twins[name] = Twin(name, self.buries_expired)
            for place, message in self.published.items():
                if message["only"] in (None, name):
                    twin.add(place, message, self.clock.time_ms)
        self.tick()

    def tick(self) -> None:
        """Time passes for the twins; whatever they gave up becomes a letter."""
        for twin in self.twins.values():
            twin.tick(self.clock.time_ms)
        # The node looks at the time when it is asked, and finishes what that
        # began when it is asked to write.
        for twin in self.twins.values():
            self.node.queue_statistics(twin.name)
            self.node.release(twin.name, [])
        self.collect_letters()

    def collect_letters(self) -> None:
        for twin in self.twins.values():
            buried, twin.buried = twin.buried, []
            if buried and self.letter_partitions is None:
                self.letter_partitions = self.partitions
            for place, reason in buried:
                message = twin.messages[place]
                story = dict(message, reason=reason, group=twin.name, source=place)
                index = place[0] % (self.letter_partitions or 1)
                # The order of letters is the engine's own: they are matched by content.
                self.letters[MessageId("?", index, len(self.letters) + self.number * 1000)] = story
                self.number += 1

    def forget_receipt(self, group: str, place: Place) -> None:
        self.stale.append((group, self.receipts.pop((group, place))))

    def drop_lost_receipts(self) -> None:
        for group, place in list(self.receipts):
            if self.twins[group].messages[place]["state"] != HELD:
                self.forget_receipt(group, place)

    # What users do.

    @rule(data=st.data(), count=st.integers(1, 8), plain=st.booleans())
    def publish(self, data: st.DataObject, count: int, plain: bool) -> None:
        now_ms = self.clock.time_ms
        outgoing, messages = [], []
        for _ in range(count):
            chosen = PLAIN if plain else data.draw(ATTRIBUTES)
            lane, delay, ttl, most, visibility, key = chosen
            value = b"value %d" % self.number
            self.number += 1
            headers = attribute_headers(
                priority=lane if lane != 2 else None,
                delay_ms=delay or None,
                ttl_ms=ttl or None,
                max_attempts=most or None,
                visibility_ms=visibility or None,
            )
            outgoing.append(Outgoing(value, key, headers))
            messages.append(
                {
                    "value": value,
                    "key": key,
                    "lane": lane,
                    "deliver_at": now_ms + delay if delay else 0,
                    "expires": now_ms + ttl if ttl else 0,
                    "ttl": ttl,
                    "max_attempts": most,
                    "visibility": visibility,
                    "cancelled": False,
                    "only": None,
                    "redrives": 0,
                }
            )
        for place, message in zip(self.node.publish(TOPIC, outgoing), messages, strict=True):
            self.see((place.partition, place.offset), message)

    def see(self, place: Place, message: Message) -> None:
        assert place[1] == self.ends[place[0]]
        self.ends[place[0]] += 1
        self.published[place] = message
        for twin in self.twins.values():
            if message["only"] in (None, twin.name):
                twin.add(place, message, self.clock.time_ms)

    @rule(
        group=st.sampled_from(GROUPS),
        consumer=st.sampled_from(CONSUMERS),
        count=st.sampled_from([1, 3, 20]),
        visibility_ms=st.sampled_from([None, None, 300]),
    )
    def lease(self, group: str, consumer: str, count: int, visibility_ms: int | None) -> None:
        if group not in self.twins:
            return
        self.tick()
        self.drop_lost_receipts()
        twin = self.twins[group]
        room = LEASES_MAX - len(twin.held_by(consumer))
        if room <= 0:
            return
        pending = twin.pending()
        leased = self.node.lease(group, [TOPIC], consumer, count, visibility_ms=visibility_ms)
        places = {(d.partition, d.offset) for d in leased}
        assert len(places) == len(leased) == min(count, room, len(pending))
        assert places <= set(pending)
        assert places == twin.first_of_each_lane(places, pending)
        for delivery in leased:
            self.check_delivery(twin, delivery, consumer, visibility_ms)

    def check_delivery(
        self, twin: Twin, delivery: Delivery, consumer: str, visibility_ms: int | None
    ) -> None:
        place = (delivery.partition, delivery.offset)
        message = twin.messages[place]
        message["attempts"] += 1
        own_ms = visibility_ms or message["visibility"] or SETTINGS["visibility_ms"]
        message.update(state=HELD, owner=consumer, until=self.clock.time_ms + own_ms)
        twin.totals["delivered"] += 1
        assert delivery.attempt == message["attempts"]
        assert delivery.max_attempts == twin.most(message)
        assert delivery.deadline_ms == message["until"]
        assert (delivery.value, delivery.key) == (message["value"], message["key"])
        assert delivery.lane == message["lane"]
        assert (delivery.error is None) == (message["error"] is None)
        self.receipts[twin.name, place] = delivery.receipt

    def some_receipts(self, data: st.DataObject) -> tuple[str, list[Place]] | None:
        self.tick()
        self.drop_lost_receipts()
        groups = sorted({group for group, _ in self.receipts})
        if not groups:
            return None
        group = data.draw(st.sampled_from(groups))
        places = sorted(place for name, place in self.receipts if name == group)
        count = data.draw(st.integers(1, len(places)))
        first = data.draw(st.integers(0, len(places) - count))
        return group, places[first : first + count]

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        chosen = self.some_receipts(data)
        if chosen is None:
            return
        group, places = chosen
        assert not any(self.node.ack(group, [self.receipts[group, p] for p in places]))
        for place in places:
            self.twins[group].messages[place].update(state="acked", owner=None)
            self.twins[group].totals["acked"] += 1
            self.forget_receipt(group, place)

    @rule(data=st.data(), delay_ms=st.sampled_from([None, 0, 700]))
    def nack(self, data: st.DataObject, delay_ms: int | None) -> None:
        chosen = self.some_receipts(data)
        if chosen is None:
            return
        group, places = chosen
        receipts = [self.receipts[group, p] for p in places]
        assert not any(self.node.nack(group, receipts, delay_ms=delay_ms, error="no"))
        twin = self.twins[group]
        for place in places:
            message = twin.messages[place]
            if message["attempts"] >= twin.most(message):
                twin.bury(place, message, "max-attempts")
            else:
                rest_ms = delay_ms
                if rest_ms is None:
                    rest_ms = twin.settings.backoff_after_ms(message["attempts"])
                message.update(state="retrying", owner=None, error="no")
                message["due"] = self.clock.time_ms + rest_ms
                twin.totals["nacked"] += 1
            self.forget_receipt(group, place)

    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        chosen = self.some_receipts(data)
        if chosen is None:
            return
        group, places = chosen
        receipts = [self.receipts[group, p] for p in places]
        assert not any(self.node.reject(group, receipts, reason="poison"))
        for place in places:
            self.twins[group].bury(place, self.twins[group].messages[place], "rejected")
            self.forget_receipt(group, place)

    @rule(data=st.data(), visibility_ms=st.sampled_from([None, 9_000]))
    def extend(self, data: st.DataObject, visibility_ms: int | None) -> None:
        chosen = self.some_receipts(data)
        if chosen is None:
            return
        group, places = chosen
        receipts = [self.receipts[group, p] for p in places]
        assert not any(self.node.extend(group, receipts, visibility_ms=visibility_ms))
        until = self.clock.time_ms + (visibility_ms or 1_000)
        for place in places:
            self.twins[group].messages[place]["until"] = until

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        chosen = self.some_receipts(data)
        if chosen is None:
            return
        group, places = chosen
        assert not any(self.node.release(group, [self.receipts[group, p] for p in places]))
        self.give_back(group, places)

    def give_back(self, group: str, places: list[Place]) -> None:
        for place in places:
            message = self.twins[group].messages[place]
            message.update(state="pending", owner=None, attempts=message["attempts"] - 1)
            self.forget_receipt(group, place)

    @rule(group=st.sampled_from(GROUPS), consumer=st.sampled_from(CONSUMERS))
    def leave(self, group: str, consumer: str) -> None:
        if group in self.twins:
            self.tick()
            self.drop_lost_receipts()
            self.node.leave(group, consumer)
            self.give_back(group, self.twins[group].held_by(consumer))

    @rule(passed_ms=st.sampled_from([1, 99, 100, 200, 1_000, 5_000]))
    def let_time_pass(self, passed_ms: int) -> None:
        self.clock.time_ms += passed_ms

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if not self.published:
            return
        self.tick()
        now_ms = self.clock.time_ms
        place = data.draw(st.sampled_from(sorted(self.published)))
        message = self.published[place]
        is_delayed = (
            message["deliver_at"] > now_ms
            and not message["cancelled"]
            and not 0 < message["expires"] <= now_ms
        )
        assert self.node.cancel(MessageId(TOPIC, *place)) == is_delayed
        if is_delayed:
            message["cancelled"] = True
            for twin in self.twins.values():
                twin.messages[place]["state"] = "cancelled"
                twin.totals["cancelled"] += 1

    @rule(data=st.data(), force=st.booleans())
    def redrive(self, data: st.DataObject, force: bool) -> None:
        found = self.choose_letters(data)
        if not found:
            return
        ids = [letter_id for letter_id, _ in found]
        dry = self.node.redrive(TOPIC, ids, dry_run=True, force=force)
        assert dry == (done := self.node.redrive(TOPIC, ids, force=force))
        back = [(i, s) for i, s in found if force or s["redrives"] < REDRIVES_MAX]
        now_ms = self.clock.time_ms
        in_place = [i for i, s in back if self.twins[s["group"]].has_dead(s["source"], now_ms)]
        stay, copied = len(found) - len(back), len(back) - len(in_place)
        assert done == (len(found), len(back), stay, None, 0, len(in_place), copied, 0)
        for letter_id, story in sorted(back, key=lambda pair: pair[0]):
            del self.letters[letter_id]
            if letter_id in in_place:
                self.twins[story["group"]].revive(story["source"], story["redrives"] + 1)
                continue
            partition = story["source"][0]
            expires = now_ms + story["ttl"] if story["ttl"] else 0
            changes = {
                "deliver_at": 0, "expires": expires, "only": story["group"],
                "redrives": story["redrives"] + 1, "cancelled": False,
            }  # fmt: skip
            self.see((partition, self.ends[partition]), {**story, **changes})

    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        found = self.choose_letters(data)
        if found:
            assert self.node.purge(TOPIC, [letter_id for letter_id, _ in found]) == len(found)
            for letter_id, _ in found:
                del self.letters[letter_id]

    def choose_letters(self, data: st.DataObject) -> list[tuple[MessageId, Message]]:
        self.tick()
        self.check_letters()
        if not self.letters:
            return []
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.letters)), min_size=1))
        return [(letter_id, self.letters[letter_id]) for letter_id in sorted(chosen)]

    # What the operator does.

    @precondition(lambda self: "late" not in self.twins)
    @rule()
    def open_the_late_group(self) -> None:
        self.open_group("late")

    @precondition(lambda self: self.partitions < 3)
    @rule()
    def grow(self) -> None:
        self.partitions += 1
        self.node.grow_topic(TOPIC, self.partitions)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.tick()
        partition = data.draw(st.integers(0, self.partitions - 1))
        before = data.draw(st.integers(0, self.ends[partition]))
        self.node.delete_records(TOPIC, partition, before)
        self.drop_lost_receipts()
        for place in [p for p in self.published if p[0] == partition and p[1] < before]:
            del self.published[place]
            for twin in self.twins.values():
                if (twin.name, place) in self.receipts:
                    self.forget_receipt(twin.name, place)
                twin.messages.pop(place, None)

    @rule()
    def reopen(self) -> None:
        self.tick()
        self.drop_lost_receipts()
        self.node.close()
        self.node = Node.open(":memory:", disk=self.disk, clock=self.clock)
        for twin in self.twins.values():
            for place in sorted(twin.messages):
                if twin.messages[place]["state"] == HELD:
                    twin.end_lease(place, twin.messages[place])
                    self.forget_receipt(twin.name, place)
        self.tick()

    # What must hold.

    @invariant()
    def every_message_is_where_the_twin_says(self) -> None:
        if not hasattr(self, "node"):
            return
        self.tick()
        self.drop_lost_receipts()
        for twin in self.twins.values():
            for place, message in twin.messages.items():
                status = self.node.status(MessageId(TOPIC, *place), twin.name)
                assert status.state == message["state"], (twin.name, place, message)
                if message["state"] in (*OPEN, HELD):
                    assert status.attempts == message["attempts"]
                    assert status.consumer == message["owner"]
                due = {"retrying": "due", "delayed": "deliver_at", HELD: "until"}
                if message["state"] in due:
                    assert status.due_ms == message[due[message["state"]]]

    @invariant()
    def the_numbers_are_the_twins(self) -> None:
        if not hasattr(self, "node"):
            return
        for twin in self.twins.values():
            numbers = self.node.queue_statistics(twin.name)
            states = Counter(message["state"] for message in twin.messages.values())
            assert numbers.ready == states["pending"]
            assert numbers.leased == states[HELD]
            assert (numbers.retrying, numbers.delayed) == (states["retrying"], states["delayed"])
            assert (numbers.waiting, numbers.moving) == (0, 0)
            assert [lane.ready for lane in numbers.lanes] == [
                sum(1 for p in twin.pending() if twin.messages[p]["lane"] == lane)
                for lane in range(5)
            ]
            for name in (
                "delivered", "acked", "nacked", "lease_expired", "dead_lettered", "expired",
                "cancelled",
            ):  # fmt: skip
                assert getattr(numbers, name) == twin.totals[name], name
            for consumer in CONSUMERS:
                assert self.node.held(twin.name, consumer) == {
                    (TOPIC, *place): self.receipts[twin.name, place]
                    for place in twin.held_by(consumer)
                }

    @invariant()
    def the_dead_letters_are_the_twins(self) -> None:
        if hasattr(self, "node"):
            self.check_letters()

    def check_letters(self) -> None:
        """Each letter of the node's is one of the twin's, and the other way round."""
        known: dict[tuple[str, Place], Message] = {
            (story["group"], story["source"]): story for story in self.letters.values()
        }
        self.letters = {}
        for letter in self.node.dead_letters(TOPIC, limit=1_000):
            source = (letter.source.partition, letter.source.offset)
            story = known.pop((letter.group, source))
            assert (letter.value, letter.key) == (story["value"], story["key"])
            assert (letter.reason, letter.attempts) == (story["reason"], story["attempts"])
            assert letter.redrives == story["redrives"]
            letter_id = MessageId(letter.topic, letter.partition, letter.offset)
            assert self.node.dead_letter(letter_id) == letter
            self.letters[letter_id] = story
        assert not known

    @rule(data=st.data())
    def a_receipt_works_once(self, data: st.DataObject) -> None:
        if not self.stale:
            return
        group, receipt = data.draw(st.sampled_from(self.stale))
        for outcome in (
            *self.node.ack(group, [receipt]),
            *self.node.nack(group, [receipt]),
            *self.node.reject(group, [receipt]),
            *self.node.extend(group, [receipt]),
            *self.node.release(group, [receipt]),
        ):
            assert isinstance(outcome, StaleReceipt)


TestQueue = pytest.mark.timeout(3_600)(QueueAgainstTwin.TestCase)
# A step looks at every message, so short histories find more in the same time.
TestQueue.settings = settings(stateful_step_count=25)
