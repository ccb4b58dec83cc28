"""The lead of a partition is lost and taken at every step of a call: nothing is answered as
done that is not, nothing waits for ever, and what is deleted is not what is led elsewhere."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from tests.unit.engine.second_node import CHANGES, Change, Part, Stage, at_every_step, named
from tests.unit.engine.transaction_bench import GROUP, TOPIC

from headrace.core.errors import FencedLeader, UnknownTopic
from headrace.core.settings import TopicSettings
from headrace.core.steps import run_to_end
from headrace.core.values import Delivery, MessageId, Outgoing
from headrace.engine.catalog import CURSOR_TOPIC, DEAD_LETTER_GROUP
from headrace.engine.commit import Commit
from headrace.engine.cursor import Commitment
from headrace.engine.leasing import Wishes
from headrace.record import NewRecord, attribute_headers, build_batch, read_header

WORKERS = "workers"
LETTERS = TOPIC + ".dlq"


def publish(stage: Stage, *values: bytes) -> Part:
    def part(commit: Commit) -> None:
        messages = [Outgoing(value, partition=0) for value in values]
        topic = stage.broker.topics.named(TOPIC)
        stage.broker.publisher.publish(topic, messages, stage.now_ms, commit)

    return part


def finish(stage: Stage, *parts: Part) -> None:
    for _ in stage.steps(*parts):
        pass


def lease(stage: Stage, count: int = 10) -> list[Delivery]:
    broker = stage.broker
    topics, group = [broker.topics.named(TOPIC)], broker.groups.named(WORKERS)
    return broker.leasing.lease(group, topics, "ann", count, Wishes(), stage.now_ms)


def make_queue(stage: Stage, **settings: Any) -> None:
    """With three messages."""

    def open_queue(commit: Commit) -> None:
        broker = stage.broker
        topic = broker.topics.create(TOPIC, 1, TopicSettings(), stage.now_ms)
        broker.groups.open(WORKERS, [topic], settings, stage.now_ms, commit)

    finish(stage, open_queue, publish(stage, b"a", b"b", b"c"))


def state_of(stage: Stage, offset: int) -> str:
    broker = stage.broker
    return broker.status(MessageId(TOPIC, 0, offset), broker.groups.named(WORKERS)).state


# One partition.


@pytest.mark.parametrize("change", CHANGES)
def test_a_publish_is_done_only_if_its_messages_are_there(change: Change) -> None:
    def try_at(at: int) -> bool:
        stage = Stage()
        stage.make_topic(1)
        partition = named(stage, TOPIC)
        take = partial(stage.take, partition, change)
        is_done, was_under_way = stage.play([publish(stage, b"ours", b"too")], at, take)
        if is_done:
            assert [each.value for each in partition.read([0, 2])] == [b"ours", b"too"]
        if was_under_way and at <= 3:
            assert not is_done
        finish(stage, publish(stage, b"later"))
        end = partition.high_watermark
        assert [each.value for each in partition.read([end - 1, end])] == [b"later"]
        return was_under_way

    at_every_step(try_at, least=5)


@pytest.mark.parametrize("change", CHANGES)
def test_an_ack_is_done_only_if_the_message_is_acked(change: Change) -> None:
    def try_at(at: int) -> bool:
        stage = Stage()
        make_queue(stage)
        [first, *_] = lease(stage, 1)
        stage.settle()

        def ack(commit: Commit) -> None:
            broker = stage.broker
            [outcome] = broker.settling.ack(
                broker.groups.named(WORKERS), [first.receipt], stage.now_ms, commit
            )
            if outcome is not None:
                raise outcome

        take = partial(stage.take, named(stage, TOPIC), change)
        is_done, was_under_way = stage.play([ack], at, take)
        assert state_of(stage, 0) == "acked" if is_done else True
        if was_under_way and at <= 3:
            assert not is_done
        if not is_done and state_of(stage, 0) != "acked":
            # The receipt is honoured, or the message comes again.
            stage.now_ms += 1_000_000
            finish(stage, lambda commit: None)
            assert 0 in [each.offset for each in lease(stage)]
        return was_under_way

    at_every_step(try_at, least=5)


@pytest.mark.parametrize("change", CHANGES)
def test_a_lease_is_of_messages_that_nobody_else_is_done_with(change: Change) -> None:
    def try_at(at: int) -> bool:
        stage = Stage()
        make_queue(stage)
        leased: list[Delivery] = []

        def take_some(commit: Commit) -> None:
            leased.extend(lease(stage, 1))

        take = partial(stage.take, named(stage, TOPIC), change)
        is_done, was_under_way = stage.play([take_some], at, take)
        assert is_done == bool(leased)
        # Whoever leases next has all that is not done, and no message twice.
        stage.now_ms += 1_000_000
        offsets = [each.offset for each in lease(stage)]
        is_replaced = change == "replaced and back"
        assert offsets == [0, 1, *([3, 4, 5, 6] if is_replaced else [2])]
        return was_under_way

    at_every_step(try_at, least=2)


def test_while_another_node_leads_nothing_is_leased_and_no_receipt_is_honoured() -> None:
    stage = Stage()
    make_queue(stage)
    [first, *_] = lease(stage, 1)
    partition = named(stage, TOPIC)
    stage.settle()
    stage.take(partition, "gone")
    ends = partition.log.end_offset, partition.state_high_watermark
    with pytest.raises(FencedLeader):
        lease(stage)
    broker, group = stage.broker, stage.broker.groups.named(WORKERS)
    commit = broker.commit()
    for outcome in (
        *broker.settling.ack(group, [first.receipt], stage.now_ms, commit),
        *broker.settling.nack(group, [first.receipt], None, None, stage.now_ms, commit),
        *broker.settling.reject(group, [first.receipt], None, stage.now_ms, commit),
        *broker.settling.extend(group, [first.receipt], None, stage.now_ms, commit),
        *broker.settling.release(group, [first.receipt], stage.now_ms),
    ):
        assert isinstance(outcome, FencedLeader)
    with pytest.raises(FencedLeader):
        finish(stage, publish(stage, b"x"))
    with pytest.raises(FencedLeader):
        broker.read(broker.topics.named(TOPIC), 0, 0, 10, 1000)
    stage.now_ms += 1_000_000
    broker.fates.tick([partition], stage.now_ms)
    broker.maintain(stage.now_ms)
    stage.settle()
    # Its logs are the other node's.
    assert partition.state is not None
    assert (partition.log.end_offset, partition.state.log.end_offset) == ends


def test_nothing_more_is_confirmed_or_applied_by_syncing_what_another_node_leads() -> None:
    stage = Stage()
    make_queue(stage)
    [first, *_] = lease(stage, 1)
    stage.settle()
    partition, group = named(stage, TOPIC), stage.broker.groups.named(WORKERS)
    end = partition.high_watermark
    commit = stage.broker.commit()
    publish(stage, b"x")(commit)
    stage.broker.settling.ack(group, [first.receipt], stage.now_ms, commit)
    commit.seal()
    stage.broker.leading.resign(partition)
    stage.settle()
    assert partition.log.synced_end > partition.high_watermark == end
    assert partition.views[group.id].totals["acked"] == 0
    assert not commit.is_done() and commit.failure() is not None


def test_what_was_written_and_cut_off_keeps_nothing_that_comes_later() -> None:
    stage = Stage()
    make_queue(stage)
    leased = lease(stage, 3)
    stage.settle()
    group, settling = stage.broker.groups.named(WORKERS), stage.broker.settling
    for delivery in leased:
        settling.ack(group, [delivery.receipt], stage.now_ms, stage.broker.commit())
    stage.take(named(stage, TOPIC), "cut and back")
    commit = stage.broker.commit()
    assert settling.ack(group, [leased[0].receipt], stage.now_ms, commit) == [None]
    stage.settle()
    assert commit.is_done() and state_of(stage, 0) == "acked"
    assert {state_of(stage, offset) for offset in (1, 2)} == {"leased"}


def test_what_takes_the_place_of_a_delayed_message_is_not_delayed() -> None:
    stage = Stage()
    make_queue(stage)
    partition = named(stage, TOPIC)
    later = [Outgoing(b"later", headers=attribute_headers(delay_ms=60_000))] * 4
    stage.broker.publisher.publish(partition.topic, later, stage.now_ms, stage.broker.commit())
    # On disk, but not confirmed.
    partition.log.sync_now()
    stage.take(partition, "replaced and back")
    assert [each.value for each in lease(stage)] == [b"a", b"b", *[b"theirs"] * 4]


def test_a_group_that_came_while_another_node_led_reads_what_is_led_again() -> None:
    stage = Stage()
    make_queue(stage)
    partition, broker = named(stage, TOPIC), stage.broker
    stage.take(partition, "gone")
    settings = {"start": "earliest"}

    def open_queue(commit: Commit) -> None:
        broker.groups.open("others", [partition.topic], settings, stage.now_ms, commit)

    finish(stage, open_queue)
    group = broker.groups.named("others")
    assert group.id not in partition.views
    stage.give_back()
    found = broker.leasing.lease(group, [partition.topic], "bob", 10, Wishes(), stage.now_ms)
    assert [each.value for each in found] == [b"a", b"b", b"c"]


def test_a_group_can_be_deleted_while_another_node_leads_what_it_reads() -> None:
    stage = Stage()
    make_queue(stage)
    partition, broker = named(stage, TOPIC), stage.broker
    group = broker.groups.named(WORKERS)
    stage.take(partition, "gone")
    finish(stage, lambda commit: broker.groups.delete(group, stage.now_ms, commit))
    stage.give_back()
    assert partition.views == {}


def test_an_id_that_was_cut_off_is_no_duplicate_and_one_that_is_there_is() -> None:
    stage = Stage()
    topic = stage.broker.topics.create(TOPIC, 1, TopicSettings(dedup=True), stage.now_ms)
    stage.settle()

    def send(dedup_id: bytes) -> bool:
        message = Outgoing(b"x", headers=attribute_headers(dedup_id=dedup_id))
        commit = stage.broker.commit()
        [there] = stage.broker.publisher.publish(topic, [message], stage.now_ms, commit)
        return there.duplicate

    assert not send(b"kept")
    stage.settle()
    assert not send(b"cut")
    stage.take(named(stage, TOPIC), "replaced and back")
    assert send(b"kept") and not send(b"cut") and send(b"cut")


def test_a_receipt_of_before_is_honoured_when_the_lead_comes_back() -> None:
    stage = Stage()
    make_queue(stage)
    [first, *_] = lease(stage, 1)
    stage.settle()
    stage.take(named(stage, TOPIC), "cut and back")
    broker = stage.broker
    commit = broker.commit()
    group = broker.groups.named(WORKERS)
    assert broker.settling.ack(group, [first.receipt], stage.now_ms, commit) == [None]
    stage.settle()
    assert commit.is_done() and state_of(stage, 0) == "acked"


@pytest.mark.parametrize("change", CHANGES)
def test_a_position_is_committed_only_if_it_is_known_afterwards(change: Change) -> None:
    def try_at(at: int) -> bool:
        stage = Stage()
        stage.make_topic(1)
        place = stage.topic_id, 0
        cursors = stage.broker.cursors
        finish(stage, lambda commit: _commit(stage, 0, commit))
        take = partial(stage.take, named(stage, CURSOR_TOPIC), change)
        is_done, was_under_way = stage.play([lambda commit: _commit(stage, 7, commit)], at, take)
        found = cursors.find(GROUP, place)
        assert found is not None and found.offset in ((7,) if is_done else (0, 7))
        if was_under_way and 1 <= at <= 3:
            assert not is_done
            assert change == "back" or found.offset == 0
        if change == "replaced and back":
            theirs = cursors.find("others", place)
            assert theirs is not None and theirs.offset == 1
        return was_under_way

    at_every_step(try_at, least=5)


def _commit(stage: Stage, offset: int, commit: Commit) -> None:
    positions = {(stage.topic_id, 0): Commitment(offset)}
    commit.data.append(stage.broker.cursors.commit(GROUP, positions, stage.now_ms))


def test_a_position_that_was_not_safe_is_not_shown_when_another_takes_its_offset() -> None:
    stage = Stage()
    stage.make_topic(1)
    _commit(stage, 7, stage.broker.commit())
    stage.take(named(stage, CURSOR_TOPIC), "replaced and back")
    stage.settle()
    assert stage.broker.cursors.find(GROUP, (stage.topic_id, 0)) is None


def test_members_of_a_group_are_not_taken_for_strangers_when_the_lead_comes_back() -> None:
    stage = Stage()
    stage.make_topic(1)
    partition = stage.broker.cursors.ensure_topic(stage.now_ms)
    member = NewRecord(msgspec.msgpack.encode((GROUP, "ann")), b"\x90", (), stage.now_ms)
    batch = build_batch([member])
    partition.append(batch, read_header(batch), stage.now_ms)
    stage.settle()
    stage.take(partition, "back")
    end = partition.log.end_offset
    finish(stage, lambda commit: _commit(stage, 7, commit))
    # The position, and nothing that takes the member back.
    assert partition.log.end_offset == end + 1


def test_an_idempotent_producer_goes_on_behind_what_another_node_took_of_it() -> None:
    stage = Stage()
    stage.make_topic(1)
    partition = named(stage, TOPIC)

    def send(sequence: int) -> bool:
        batch = build_batch(
            [NewRecord(None, b"x", (), stage.now_ms)],
            producer_id=5, producer_epoch=0, base_sequence=sequence,
        )  # fmt: skip
        return partition.append(batch, read_header(batch), stage.now_ms).duplicate

    assert not send(0)
    stage.settle()
    assert not send(1)
    stage.take(partition, "cut and back")
    # Its retry is not taken for a duplicate of what is gone.
    assert not send(1) and send(0)
    stage.take(partition, "back")
    assert send(1)


def test_a_note_of_producers_does_not_speak_of_what_was_cut_off() -> None:
    stage = Stage()
    stage.make_topic(1)
    partition = named(stage, TOPIC)
    batch = build_batch(
        [NewRecord(None, b"x", (), stage.now_ms)],
        producer_id=5, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    partition.append(bytearray(batch), read_header(batch), stage.now_ms)
    partition.log.sync_now()
    partition._producer_note.write(partition.producers)
    stage.take(partition, "replaced and back")
    assert not partition.append(batch, read_header(batch), stage.now_ms).duplicate


# Who leads.


def test_a_reign_that_is_over_does_not_begin_again() -> None:
    stage = Stage()
    stage.make_topic(1)
    partition = named(stage, TOPIC)
    epoch = partition.epoch
    stage.take(partition, "gone")
    for old in (epoch - 1, epoch):
        with pytest.raises(FencedLeader):
            stage.broker.leading.lead(partition, old, stage.now_ms)
    assert not partition.is_leader
    stage.give_back()
    assert partition.is_leader and partition.epoch > epoch


def test_what_waits_for_a_deleted_topic_fails_with_it_and_not_with_the_lead() -> None:
    stage = Stage()
    stage.make_topic(1)
    commit = stage.broker.commit()
    publish(stage, b"x")(commit)
    commit.seal()
    partition = named(stage, TOPIC)
    deletion = stage.broker.commit()
    stage.broker.delete_topic(partition.topic, stage.now_ms, deletion)
    stage.settle()
    assert partition.is_deleted and not partition.is_led_elsewhere
    assert not commit.is_done() and isinstance(commit.failure(), UnknownTopic)
    assert deletion.is_done()
    with pytest.raises(FencedLeader):
        partition.check_leading()


# Moves.


def test_a_letter_that_took_the_place_of_one_that_was_cut_off_is_found_again() -> None:
    stage = Stage()
    make_queue(stage)
    broker, topic = stage.broker, named(stage, TOPIC).topic
    broker.groups.dead_letters(topic, stage.now_ms)
    # Both partitions have the same dead letters now.
    commit = broker.commit()
    run_to_end(broker.topic_growth(topic, 2, stage.now_ms, commit, break_key_order=True))
    message, topic = Outgoing(b"z", partition=1), broker.topics.named(TOPIC)
    broker.publisher.publish(topic, [message], stage.now_ms, commit)
    stage.settle()
    group, letters = broker.groups.named(WORKERS), named(stage, LETTERS)
    by_partition = {each.partition: each for each in lease(stage, 4)}
    stage.settle()
    for index in (0, 1):
        receipts = [by_partition[index].receipt]
        broker.settling.reject(group, receipts, None, stage.now_ms, broker.commit())
        if index == 0:
            stage.sync()
    assert letters.log.end_offset == 1
    # The first copy goes, with the node that would make it again.
    stage.take(named(stage, TOPIC), "gone")
    letters.truncate_to(0, stage.now_ms)
    stage.broker.leading.resign(letters)
    stage.broker.leading.lead(letters, letters.epoch + 1, stage.now_ms)
    stage.sync()
    assert letters.log.end_offset == 1
    stage.take(letters, "back")
    stage.settle()
    values = [each.value for each in letters.read([0, letters.high_watermark])]
    assert values.count(b"z") == 1 and len(values) == 2


@pytest.mark.parametrize("of", [TOPIC, LETTERS])
@pytest.mark.parametrize("change", CHANGES)
def test_a_rejected_message_is_one_dead_letter_whoever_leads(change: Change, of: str) -> None:
    def try_at(at: int) -> bool:
        stage = Stage()
        make_queue(stage)
        first, second = lease(stage, 2)
        stage.settle()

        def reject(delivery: Delivery) -> Part:
            def part(commit: Commit) -> None:
                broker = stage.broker
                [outcome] = broker.settling.reject(
                    broker.groups.named(WORKERS), [delivery.receipt], "bad", stage.now_ms, commit
                )
                if outcome is not None:
                    raise outcome

            return part

        finish(stage, reject(first))
        take = partial(stage.take, named(stage, of), change)
        is_done, was_under_way = stage.play([reject(second)], at, take)
        letters = named(stage, LETTERS)
        values = [each.value for each in letters.read([0, letters.high_watermark])]
        assert values.count(b"a") == 1
        assert values.count(b"b") == (state_of(stage, 1) == "dead-lettered")
        assert state_of(stage, 1) == "dead-lettered" if is_done else True
        keeper = stage.broker.topics.catalog.groups[DEAD_LETTER_GROUP]
        assert keeper.id in letters.views
        return was_under_way

    at_every_step(try_at, least=5)
