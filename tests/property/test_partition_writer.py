"""What a producer does about lost requests and lost answers, against the rules by which
a partition knows its producers: nothing is stored twice, and nothing out of order.

    writer -> requests in flight -> the real producer state and a list as the log
              lost with their connection, before or after they were carried out
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.parcel import BatchParcel, Parcel
from headrace.client.partition_writer import AWAY_MAX, EPOCH_MAX, PartitionWriter
from headrace.core.errors import (
    Disconnected,
    HeadraceError,
    OutOfOrderSequence,
    RecordTooLarge,
)
from headrace.engine.producer import ProducerState
from headrace.record import Codec, read_header


class Partition:
    """A log that holds parcels, by the real rules for their numbers."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self._producers = ProducerState()
        self._offset = 0

    def append(self, batch: bytearray, number: int, is_refused: bool) -> HeadraceError | None:
        if is_refused:
            return RecordTooLarge("by its topic")
        header = read_header(batch)
        try:
            if self._producers.check(header, 0) is None:
                self._producers.on_append(header, self._offset, 0)
                self._offset += header.count
                self.stored.append(number)
        except OutOfOrderSequence as error:
            return error
        return None


class World:
    """One writer, one partition and the connection between them."""

    def __init__(self) -> None:
        self.writer = PartitionWriter("orders", 0)
        self.partition = Partition()
        # Parcels that were sent and not arrived; those that arrived, and their answer.
        self.sent: list[Parcel] = []
        self.answers: list[tuple[Parcel, HeadraceError | None]] = []
        # Those of connections that broke, of which the producer has not heard yet.
        self.lost: list[Parcel] = []
        self.refused: set[int] = set()
        self.published: list[int] = []
        self.failed: list[int] = []
        self._ids = 0
        self.numbers = 0

    def publish(self, count: int, *, is_refused: bool = False) -> None:
        self.numbers += 1
        parcel = BatchParcel(0, 0.0, 0.0)
        for _ in range(count):
            parcel.add(None, b"x", b"\0", 0, 1)
        self.writer.begin(parcel)
        self.writer.close_open()
        if is_refused:
            self.refused.add(parcel.number)

    def send(self) -> None:
        if self.writer.closed and self.writer.may_send:
            parcel = self.writer.take()
            if self.writer.producer_id is None:
                self._ids += 1
                self.writer.identify(self._ids, parcel)
            self.sent.append(parcel)
            assert len(self.sent) + len(self.answers) + len(self.lost) <= AWAY_MAX

    def arrive(self) -> None:
        if self.sent:
            parcel = self.sent.pop(0)
            assert isinstance(parcel, BatchParcel)
            batch = parcel.encode(Codec.NONE)
            is_refused = parcel.number in self.refused
            self.answers.append((parcel, self.partition.append(batch, parcel.number, is_refused)))

    def answer(self) -> None:
        if self.answers:
            self._end(*self.answers.pop(0))

    def cut(self) -> None:
        """The connection breaks: what had not arrived never will, and the answers that
        were on their way are lost. The next parcel goes over another connection, also
        when the producer has not heard of this yet."""
        self.lost += [parcel for parcel, _ in self.answers] + self.sent
        self.sent, self.answers = [], []

    def hear(self) -> None:
        if self.lost:
            self._end(self.lost.pop(0), Disconnected("cut"))

    def expire(self) -> None:
        if self.writer.closed:
            self.failed += [parcel.number for parcel in self.writer.expire(0.0)]

    def _end(self, parcel: Parcel, error: HeadraceError | None) -> None:
        if error is None:
            self.writer.on_stored(parcel)
            self.published.append(parcel.number)
        elif self.writer.on_failed(parcel, error):
            self.failed.append(parcel.number)

    def settle(self) -> None:
        """A connection that holds, for as long as it takes."""
        for _ in range(20 * (self.numbers + 1)):
            self.send()
            self.arrive()
            self.answer()
            self.hear()
        assert not self.writer.closed and not (self.sent or self.answers or self.lost)


STEPS = ["publish"] * 4 + ["send"] * 6 + ["arrive"] * 5 + ["answer"] * 3 + ["cut"] + ["hear"] * 2
steps = st.lists(st.sampled_from([*STEPS, "refused"]), min_size=50, max_size=200)


@given(steps, st.booleans())
def test_what_is_published_is_stored_once_and_in_order(taken: list[str], expires: bool) -> None:
    world = World()
    for number, step in enumerate(taken):
        if step == "publish":
            world.publish(1 + number % 3)
        elif step == "refused":
            world.publish(1, is_refused=True)
        else:
            getattr(world, step)()
        if step == "cut" and expires:
            world.expire()
    world.settle()
    stored = world.partition.stored
    assert stored == sorted(set(stored))
    # What failed because its time was over may have been stored.
    assert set(world.published) <= set(stored) <= set(world.published) | set(world.failed)
    assert sorted(world.published + world.failed) == list(range(1, world.numbers + 1))
    if not expires:
        assert set(world.failed) == world.refused


def test_a_producer_that_runs_out_of_epochs_becomes_another_one() -> None:
    world = World()
    world.publish(1)
    world.settle()
    writer = world.writer
    writer._epoch = EPOCH_MAX
    world.publish(2)
    world.send()
    world.arrive()
    world.answers = [(world.answers[0][0], OutOfOrderSequence("lost"))]
    world.answer()
    before = writer.producer_id
    world.settle()
    assert (before, writer.producer_id, world.published) == (None, 2, [1, 2])
