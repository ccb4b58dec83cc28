"""Splits, limits and positions: arithmetic on offsets."""

from __future__ import annotations

import json

import pytest

from headrace.spark.limits import limit_rows
from headrace.spark.offsets import Position, TopicPosition, decode_position, encode_position
from headrace.spark.splits import OffsetRange, cut


def range_of(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("orders", "", partition, start, end)


def test_every_partition_is_one_split() -> None:
    ranges = [range_of(0, 10), range_of(5, 9, 1)]
    assert cut(ranges) == ranges


def test_empty_ranges_are_left_out() -> None:
    assert cut([range_of(4, 4), range_of(6, 5, 1)], min_partitions=3) == []


def test_the_largest_partitions_are_cut_first() -> None:
    pieces = cut([range_of(0, 1_000), range_of(0, 10, 1)], min_partitions=5)
    assert len(pieces) == 5
    assert [piece.partition for piece in pieces] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_pieces_follow_each_other_without_a_gap(count: int) -> None:
    pieces = cut([range_of(3, 100)], min_partitions=count)
    assert len(pieces) == count
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
    assert (pieces[0].start, pieces[-1].end) == (3, 100)


def test_one_offset_is_never_cut() -> None:
    assert cut([range_of(0, 2)], min_partitions=10) == [range_of(0, 1), range_of(1, 2)]


def test_no_piece_is_larger_than_asked_for() -> None:
    pieces = cut([range_of(0, 1_000), range_of(0, 30, 1)], max_records=100)
    assert max(piece.size for piece in pieces) <= 100
    assert sum(piece.size for piece in pieces) == 1_030


def positions(*offsets: int) -> Position:
    return {"orders": TopicPosition("id", dict(enumerate(offsets)))}


def test_a_limit_is_shared_in_proportion_to_what_waits() -> None:
    limited = limit_rows(positions(0, 100, 0), positions(900, 200, 0), 100)
    assert limited == positions(90, 110, 0)


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    assert limit_rows(positions(0, 0), positions(5, 6), 11) == positions(5, 6)


def test_every_partition_with_something_moves() -> None:
    limited = limit_rows(positions(0, 0, 0), positions(1_000_000, 1, 1), 10)
    assert limited["orders"].partitions == {0: 9, 1: 1, 2: 1}


def test_what_rounding_leaves_is_not_lost() -> None:
    limited = limit_rows(positions(0, 0, 0), positions(10, 10, 10), 11)
    assert sum(limited["orders"].partitions.values()) == 11


def test_a_position_is_the_same_text_whatever_the_order() -> None:
    one = {"b": TopicPosition("2", {10: 1, 9: 2}), "a": TopicPosition("1", {0: 5})}
    two = {"a": TopicPosition("1", {0: 5}), "b": TopicPosition("2", {9: 2, 10: 1})}
    text = json.dumps(encode_position(one))
    assert text == json.dumps(encode_position(two))
    assert decode_position(json.loads(text)) == two
    assert json.dumps(encode_position(decode_position(json.loads(text)))) == text
