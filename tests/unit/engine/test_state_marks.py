"""From where on a state log speaks of a message."""

from __future__ import annotations

from headrace.engine.state_marks import Marks


def test_a_message_is_looked_for_from_the_last_mark_at_which_it_was_not_there() -> None:
    marks = Marks()
    marks.add(100, 10)
    marks.add(200, 30)
    assert [marks.floor(offset) for offset in (0, 9, 10, 29, 30, 99)] == [0, 0, 100, 100, 200, 200]


def test_a_mark_at_which_nothing_was_published_since_takes_the_place_of_the_one_before() -> None:
    marks = Marks()
    marks.add(100, 10)
    marks.add(200, 10)
    assert marks.floor(10) == 200


def test_a_log_that_was_cut_makes_no_mark_say_too_much() -> None:
    marks = Marks()
    marks.add(100, 10)
    marks.add(200, 5)
    assert marks.floor(7) == 0
    assert marks.floor(10) == 200


def test_marks_below_a_cut_are_forgotten() -> None:
    marks = Marks()
    marks.add(100, 10)
    marks.add(200, 20)
    marks.forget_below(150)
    assert marks.floor(15) == 0
    assert marks.floor(20) == 200
