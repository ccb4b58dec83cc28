"""Moves of very many or very large messages: in pieces, with bounded memory, and whole."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core import limits
from headrace.core.errors import CorruptLog, DiskFull
from headrace.core.values import DeadLetter, MessageId, Outgoing
from headrace.engine import copies
from headrace.engine.move import Moves
from headrace.engine.piece import Piece
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, attribute_headers, build_batch, read_header
from headrace.record.attribute_headers import ORIGIN
from headrace.record.batch import HEADER_BYTES, seal_batch
from headrace.record.compression import Codec

TOPIC, GROUP = "orders", "workers"
LETTERS = f"{TOPIC}.dlq"
MEBIBYTE = 1024 * 1024

CopyDisk = Callable[[MemoryDisk], MemoryDisk]


@contextlib.contextmanager
def small_pieces(messages: int = 3, size_bytes: int = 64) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MOVE_MESSAGES_MAX", messages)
        patch.setattr(limits, "MOVE_BYTES_MAX", size_bytes)
        yield


@contextlib.contextmanager
def at_most(mebibytes: int) -> Iterator[None]:
    """What is done in here takes no more memory than this."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < mebibytes * MEBIBYTE


def huge(value_bytes: int) -> bytearray:
    """A batch as a topic takes it that no queue reads: few bytes, one large record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "RECORD_BYTES_MAX", 2 * value_bytes)
        return build_batch([NewRecord(b"k", bytes(value_bytes))], codec=Codec.ZSTD)


def letters_of(node: Node) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    while page := node.dead_letters(TOPIC, after=_id_of(found[-1]) if found else None, limit=1000):
        found += page
    return found


def _id_of(letter: DeadLetter) -> MessageId:
    return MessageId(letter.topic, letter.partition, letter.offset)


class Heavy:
    """A node on a real disk with 48 messages of a mebibyte, all of which failed."""

    count = 48

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = Node.open(str(folder))
        self.node.create_topic(TOPIC, partitions=1)
        self.node.open_queue(GROUP, [TOPIC], "ann", {"max_attempts": 1})
        for number in range(self.count):
            record = NewRecord(None, b"%d" % number + bytes(MEBIBYTE))
            self.node.publish_batch(TOPIC, 0, build_batch([record], codec=Codec.ZSTD))

    def reject(self) -> None:
        while leased := self.node.lease(GROUP, [TOPIC], "ann", 4):
            receipts = [each.receipt for each in leased]
            del leased
            self.node.nack(GROUP, receipts)

    def give_up_at_once(self) -> None:
        """All of them in one call, as when they expire together."""
        with self.node._writing() as (now_ms, commit):
            partition = self.node._broker.topics.partition(self.node._broker.topics.named(TOPIC), 0)
            (view,) = partition.views.values()
            self.node._broker.fates.give_up(
                partition, view, list(range(self.count)), "expired", now_ms, commit=commit
            )

    def ids(self) -> list[MessageId]:
        return [MessageId(LETTERS, 0, offset) for offset in range(self.count)]


@pytest.fixture
def heavy(tmp_path: Path) -> Iterator[Heavy]:
    made = Heavy(tmp_path / "data")
    yield made
    made.node.close()


def test_many_large_messages_that_are_given_up_at_once_take_little_memory(heavy: Heavy) -> None:
    with at_most(24):
        heavy.give_up_at_once()
    assert heavy.node.queue_statistics(GROUP).dead_lettered == heavy.count
    assert heavy.node.topic(LETTERS).partitions[0].end_offset == heavy.count


@pytest.mark.parametrize("is_there", [True, False], ids=["in place", "as copies"])
def test_a_redrive_of_many_large_letters_takes_little_memory(heavy: Heavy, is_there: bool) -> None:
    heavy.give_up_at_once()
    if not is_there:
        heavy.node.delete_records(TOPIC, 0, heavy.count)
    with at_most(32):
        dry = heavy.node.redrive(TOPIC, heavy.ids(), dry_run=True)
        done = heavy.node.redrive(TOPIC, heavy.ids())
    assert dry == done
    assert (done.in_place, done.copied) == ((heavy.count, 0) if is_there else (0, heavy.count))
    assert heavy.node.queue_statistics(GROUP).depth == heavy.count
    assert heavy.node.dead_letters(TOPIC) == []


def test_an_intent_that_a_crash_left_is_taken_up_with_little_memory(
    heavy: Heavy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Moves, "advance", lambda self, now_ms: set())
        patch.setattr(heavy.node, "_wait_for_moves", lambda commit: None)
        with heavy.node._writing() as (now_ms, _):
            topics = heavy.node._broker.topics
            partition = topics.partition(topics.named(TOPIC), 0)
            (view,) = partition.views.values()
            offsets = list(range(heavy.count))
            heavy.node._broker.fates.give_up(partition, view, offsets, "expired", now_ms)
        heavy.node.close()
    with at_most(24):
        heavy.node = Node.open(str(heavy.folder))
    assert heavy.node.topic(LETTERS).partitions[0].end_offset == heavy.count


# Small ones, whose pieces are smaller.


def make(bench: Any, count: int = 10, **topic: Any) -> None:
    bench.make(topic=topic)
    bench.publish(*[b"%d" % number for number in range(count)])


def values_of(bench: Any) -> list[bytes | None]:
    return [letter.value for letter in letters_of(bench.node)]


def read_in_one_piece(bench: Any, act: Callable[[], object]) -> list[int]:
    """How many messages each piece was that `act` read."""
    sizes: list[int] = []
    read = Piece.read

    def noted(self: Piece, *arguments: Any) -> Any:
        records, gone = read(self, *arguments)
        sizes.append(len(records))
        return records, gone

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Piece, "read", noted)
        act()
    return sizes


@pytest.mark.parametrize("durability", ["synced", "os"])
def test_what_expires_together_is_moved_in_pieces_and_in_order(bench: Any, durability: str) -> None:
    bench.make(topic={"dead_letter_expired": True, "durability": durability})
    wanted = [b"%d" % number for number in range(2_500)]
    bench.publish(*wanted, ttl_ms=1_000)
    bench.skip(1_000)
    sizes = read_in_one_piece(bench, lambda: bench.values())
    assert max(sizes) <= limits.MOVE_MESSAGES_MAX
    assert values_of(bench) == wanted
    assert bench.node.queue_statistics(GROUP).expired == 2_500
    bench.reopen()
    assert values_of(bench) == wanted


@pytest.mark.parametrize("size_bytes", [5, 100_000])
def test_a_letter_of_each_message_is_there_once_wherever_the_process_dies(
    bench: Any, copy_disk: CopyDisk, size_bytes: int
) -> None:
    make(bench)
    held = bench.receipts(10)
    disks: list[MemoryDisk] = []
    advance = Moves.advance

    def noted(self: Moves, now_ms: int) -> Any:
        disks.append(copy_disk(bench.disk))
        dirty = advance(self, now_ms)
        disks.append(copy_disk(bench.disk))
        return dirty

    with small_pieces(3, size_bytes):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Moves, "advance", noted)
            bench.node.reject(GROUP, held)
        assert len(disks) > 8
        for disk in disks[1:]:
            bench.crash(disk)
            for _ in range(2):
                assert set(values_of(bench)) == {b"%d" % number for number in range(10)}
                assert len(values_of(bench)) == 10
                assert bench.node.queue_statistics(GROUP).dead_lettered == 10
                assert not bench.node._broker.moves
                bench.reopen()


def test_a_crash_of_the_node_that_takes_a_move_up_again_doubles_nothing(
    bench: Any, copy_disk: CopyDisk
) -> None:
    """As a version writes it that makes one intent of all."""
    make(bench)
    held = bench.receipts(10)
    copy = Moves._copy
    disk = bench.disk
    with small_pieces(100, 5):
        for number in range(1, 9):
            disks: list[MemoryDisk] = []

            def noted(self: Moves, *arguments: Any, taken: list[MemoryDisk] = disks) -> bool:
                went_on = copy(self, *arguments)
                taken.append(copy_disk(bench.disk))
                return went_on

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Moves, "_copy", noted)
                if number == 1:
                    bench.node.reject(GROUP, held)
                else:
                    bench.crash(disk)
            disk = disks[min(1, len(disks) - 1)]
    bench.crash(disk)
    assert values_of(bench) == [b"%d" % number for number in range(10)]


def test_the_target_is_gone_through_once_for_all_that_was_intended_together(
    bench: Any, copy_disk: CopyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(bench, 100)
    held = bench.receipts(100)
    disks: list[MemoryDisk] = []
    complete = Moves._complete

    def noted(*arguments: Any) -> None:
        disks.append(copy_disk(bench.disk))
        complete(*arguments)

    begun = []
    run = copies.Copies._run

    def counted(self: copies.Copies) -> Iterator[int]:
        begun.append(self)
        return run(self)

    with small_pieces(2, 10_000):
        with monkeypatch.context() as patch:
            patch.setattr(Moves, "_complete", staticmethod(noted))
            bench.node.reject(GROUP, held)
        assert len(disks) == 50
        monkeypatch.setattr(copies.Copies, "_run", counted)
        bench.crash(disks[20])
    assert len(begun) == 1
    assert len(values_of(bench)) == len(set(values_of(bench))) == 100


def test_nonsense_that_a_producer_wrote_among_the_letters_does_not_stop_the_search(
    bench: Any, copy_disk: CopyDisk
) -> None:
    make(bench)
    bench.node.reject(GROUP, bench.receipts(1))
    letters = bench.partition(topic=LETTERS)
    # Behind a good checksum, as where nobody looks into what is published.
    nonsense = build_batch([NewRecord(None, b"v", ((ORIGIN, b"x"),))] * 3)
    nonsense[HEADER_BYTES] = 0x7E
    seal_batch(nonsense, 0, len(nonsense))
    held = bench.receipts(9)
    copy = Moves._copy
    disks: list[MemoryDisk] = []

    def noted(self: Moves, *arguments: Any) -> bool:
        letters.append(nonsense, read_header(nonsense), bench.clock.time_ms)
        went_on = copy(self, *arguments)
        disks.append(copy_disk(bench.disk))
        return went_on

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Moves, "_copy", noted)
        bench.node.reject(GROUP, held)
    bench.crash(disks[0])
    assert values_of(bench) == [b"%d" % number for number in range(10)]


def test_a_copy_that_the_disk_had_no_room_for_goes_on_where_it_was(bench: Any) -> None:
    make(bench)
    bench.node.reject(GROUP, bench.receipts(1))
    letters = bench.partition(topic=LETTERS)
    append = letters.append
    calls: list[int] = []

    def full(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise DiskFull("no room")
        return append(*arguments)

    with small_pieces(100, 100_000), pytest.MonkeyPatch.context() as patch:
        patch.setattr(letters, "append", full)
        patch.setattr("headrace.engine.move.COPY_BYTES_MAX", 2)
        bench.node.reject(GROUP, bench.receipts(9))
        (move,) = bench.node._broker.moves.pending()
        assert move.is_blocked and move.left == [3, 10]
        bench.publish(b"there is room")
    assert values_of(bench) == [b"%d" % number for number in range(10)]
    assert not bench.node._broker.moves


def test_a_full_disk_keeps_nobody_waiting_for_the_moves_behind(bench: Any) -> None:
    make(bench, 100)
    bench.node.reject(GROUP, bench.receipts(1))
    letters = bench.partition(topic=LETTERS)

    def full(*arguments: Any) -> Any:
        raise DiskFull("no room")

    with small_pieces(10, 100_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(letters, "append", full)
            assert bench.node.reject(GROUP, bench.receipts(99)) == [None] * 99
        assert len(letters_of(bench.node)) == 1
        bench.publish(b"there is room")
    assert values_of(bench) == [b"%d" % number for number in range(100)]


def test_moves_that_cannot_go_on_do_not_keep_others_back(bench: Any) -> None:
    make(bench)
    bench.node.create_topic("others", partitions=1)
    bench.node.open_queue("mine", ["others"], "ann")
    bench.node.publish("others", [Outgoing(b"theirs")])
    bench.node.reject(GROUP, bench.receipts(1))
    letters = bench.partition(topic=LETTERS)
    with small_pieces(1, 10):
        letters.stop(CorruptLog("rot"))
        bench.node.reject(GROUP, bench.receipts(9))
        held = [each.receipt for each in bench.node.lease("mine", ["others"], "ann", 1)]
        bench.node.reject("mine", held)
    assert [letter.value for letter in bench.node.dead_letters("others")] == [b"theirs"]
    assert len(bench.node._broker.moves) == 9


def test_letters_are_redriven_in_pieces_and_counted_as_a_dry_run_says(bench: Any) -> None:
    make(bench)
    bench.node.reject(GROUP, bench.receipts(10))
    bench.node.delete_records(TOPIC, 0, 4)
    # The second letter of one message, in another piece than the first.
    letters = bench.partition(topic=LETTERS)
    (twin,) = letters.read([4, 5])
    batch = build_batch([NewRecord(twin.key, twin.value, twin.headers, twin.timestamp_ms)])
    with bench.node._writing() as (now_ms, commit):
        place = letters.append(batch, read_header(batch), now_ms)
        commit.data.append((letters, place.next_offset))
    ids = [_id_of(letter) for letter in letters_of(bench.node)]
    with small_pieces():
        dry = bench.node.redrive(TOPIC, ids, dry_run=True)
        done = bench.node.redrive(TOPIC, ids)
    assert dry == done
    assert (done.matched, done.redriven, done.in_place, done.copied) == (11, 11, 6, 5)
    assert bench.node.dead_letters(TOPIC) == []
    came = sorted(bench.values(20))
    assert came == sorted([*[b"%d" % number for number in range(10)], b"4"])


@pytest.mark.parametrize("gone", [1, 4, 10])
def test_what_goes_away_behind_the_intent_of_a_large_redrive_is_copied(
    bench: Any, copy_disk: CopyDisk, gone: int
) -> None:
    """Of one intent, some pieces of which are done when the records go."""
    make(bench)
    bench.node.reject(GROUP, bench.receipts(10))
    ids = [_id_of(letter) for letter in letters_of(bench.node)]
    copy = Moves._copy
    disks: list[MemoryDisk] = []

    def noted(self: Moves, *arguments: Any) -> bool:
        went_on = copy(self, *arguments)
        disks.append(copy_disk(bench.disk))
        if len(disks) == 1:
            topic = bench.node._broker.topics.named(TOPIC)
            bench.node._broker.delete_records(topic, 0, gone, arguments[-1])
        return went_on

    advance = Moves.advance

    def in_small_pieces(self: Moves, now_ms: int) -> Any:
        with small_pieces(3, 1_000):
            return advance(self, now_ms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Moves, "_copy", noted)
        patch.setattr(Moves, "advance", in_small_pieces)
        bench.node.redrive(TOPIC, ids)
    for again in (lambda: None, bench.crash):
        again()
        bench.node.release(GROUP, [])
        assert bench.node.dead_letters(TOPIC) == []
        came = bench.lease(20)
        # The first piece was ready again when its messages were deleted.
        wanted = {b"%d" % number for number in range(min(3, gone), 10)}
        assert sorted(each.value for each in came) == sorted(wanted)
        bench.node.release(GROUP, [each.receipt for each in came])


# Letters that are longer than a message may be.


@pytest.mark.parametrize("mebibytes", [17, 31])
def test_a_record_that_came_before_any_queue_and_is_too_long_gets_a_whole_letter(
    bench: Any, mebibytes: int
) -> None:
    bench.node.create_topic(TOPIC, partitions=1)
    bench.node.publish_batch(TOPIC, 0, huge(mebibytes * MEBIBYTE))
    bench.node.open_queue(GROUP, [TOPIC], "ann", {"start": "earliest"})
    bench.publish(b"small")
    bench.node.reject(GROUP, bench.receipts(), reason="no")
    for again in (lambda: None, bench.reopen, bench.crash):
        again()
        letter, small = letters_of(bench.node)
        assert (letter.reason, letter.error, letter.key) == ("rejected", "no", b"k")
        assert letter.value == bytes(mebibytes * MEBIBYTE)
        assert small.value == b"small"
    # As a copy, which is longer as well.
    bench.node.delete_records(TOPIC, 0, 1)
    assert bench.node.redrive(TOPIC, [_id_of(letter)]).copied == 1
    (delivery,) = bench.lease()
    assert delivery.value == letter.value


def test_a_message_at_the_limit_that_grows_by_its_story_gets_a_whole_letter(bench: Any) -> None:
    bench.make(topic={"record_bytes_max": limits.RECORD_BYTES_MAX})
    value = bytes(limits.RECORD_BYTES_MAX - 40)
    bench.node.publish(TOPIC, [Outgoing(value, None, attribute_headers(ttl_ms=3_600_000))])
    bench.node.reject(GROUP, bench.receipts(), reason="x" * limits.ERROR_CHARACTERS_MAX)
    (letter,) = letters_of(bench.node)
    assert letter.value == value and letter.error == "x" * limits.ERROR_CHARACTERS_MAX


def test_messages_that_are_headers_alone_are_not_put_into_one_batch(bench: Any) -> None:
    bench.make()
    headers = (("name", bytes(60 * 1024)),)
    bench.node.publish(TOPIC, [Outgoing(None, b"k", headers)] * 40)
    bench.node.reject(GROUP, bench.receipts(40))
    letters = bench.partition(topic=LETTERS)
    data = letters.log.read(0, 100, letters.log.end_offset)
    assert read_header(data).size_bytes < 1.1 * MEBIBYTE
    assert len(letters_of(bench.node)) == 40
