"""How far a stream came, partition by partition."""

from __future__ import annotations

from headrace.client.progress import Progress
from headrace.core.values import StreamRecord

HERE = ("t", 0)
THERE = ("t", 1)


def records(place: tuple[str, int], *offsets: int) -> list[StreamRecord]:
    return [StreamRecord(*place, offset, 0, None, b"x", ()) for offset in offsets]


def progress_at(**offsets: int) -> Progress:
    progress = Progress()
    progress.place_at_cursors({HERE: offsets.get("here", 0), THERE: offsets.get("there", 0)})
    return progress


def test_what_is_read_ahead_is_not_given_yet() -> None:
    progress = progress_at()
    progress.on_read(HERE, records(HERE, 0, 1, 2), 3)
    assert [record.offset for record in progress.take(2)] == [0, 1]
    assert progress.given == {HERE: 2, THERE: 0}
    assert progress.next == {HERE: 3, THERE: 0}
    assert progress.has_ahead


def test_what_is_given_is_handled_when_the_caller_comes_back() -> None:
    progress = progress_at()
    progress.on_read(HERE, records(HERE, 0), 1)
    progress.take(1)
    assert progress.handled == {HERE: 0, THERE: 0}
    progress.on_handled()
    assert progress.handled == {HERE: 1, THERE: 0}


def test_a_position_passes_offsets_that_hold_no_record() -> None:
    progress = progress_at()
    progress.on_read(HERE, records(HERE, 0), 5)
    progress.take(1)
    progress.on_nothing_left()
    assert progress.given[HERE] == 5


def test_placing_forgets_what_was_read_ahead_there_alone() -> None:
    progress = progress_at()
    progress.on_read(HERE, records(HERE, 0, 1), 2)
    progress.on_read(THERE, records(THERE, 0), 1)
    progress.place({HERE: 1})
    assert progress.take(10) == records(THERE, 0)
    assert progress.next == {HERE: 1, THERE: 1}


def test_partitions_that_went_to_others_are_dropped_and_the_rest_goes_on() -> None:
    progress = progress_at()
    progress.on_read(HERE, records(HERE, 0), 1)
    progress.on_read(THERE, records(THERE, 0), 1)
    # The cursor of what stays is older than where we are, and does not count.
    progress.place_at_cursors({THERE: 0, ("u", 0): 7})
    assert progress.take(10) == records(THERE, 0)
    assert progress.next == {THERE: 1, ("u", 0): 7}


def test_only_what_changed_is_left_to_commit() -> None:
    progress = progress_at(here=4)
    assert progress.uncommitted({HERE: 4, THERE: 2}) == {THERE: 2}
    progress.on_committed({THERE: 2})
    assert progress.uncommitted({HERE: 4, THERE: 2}) == {}
