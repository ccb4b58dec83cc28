"""Columns of what is written: which are taken, left out, or refused."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from headrace.core.errors import InvalidOption
from headrace.spark import warnings_once
from headrace.spark.write_options import check_columns, is_slip, parse_write_options

OPTIONS = parse_write_options({"servers": "a:1", "topic": "orders"}, is_stream=False)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings_once, "_given", set())


def columns(*names: str) -> StructType:
    types: dict[str, DataType] = {"value": BinaryType(), "key": StringType()}
    return StructType([StructField(name, types.get(name, LongType())) for name in names])


def test_other_columns_are_left_out_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        check_columns(OPTIONS, columns("value", "id", "day"))
    [record] = caplog.records
    assert (
        "no place for columns day, id in a record, so they are not written" in record.getMessage()
    )


def test_columns_of_the_source_are_left_out_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check_columns(OPTIONS, columns("value", "key", "offset", "timestampType", "decodeError"))
    assert caplog.records == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [("keys", "key"), ("delay_ms", "delayMs"), ("prioriyt", "priority"), ("Header", "headers")],
)
def test_a_column_that_seems_misspelled_is_refused(name: str, meant: str) -> None:
    with pytest.raises(InvalidOption, match=f"column {name!r} in a record; did you mean {meant!r}"):
        check_columns(OPTIONS, columns("value", name))
    # Unless the right one is there too: then it is another one.
    if meant == "key":
        check_columns(OPTIONS, columns("value", "key", name))


@pytest.mark.parametrize(
    ("name", "other", "slipped"),
    [
        ("vlaue", "value", True), ("vale", "value", True), ("values", "value", True),
        ("valux", "value", True),
        ("kye", "key", True), ("eky", "key", True), ("id", "key", False), ("value", "value", False),
        ("timestamptype", "timestamp", False), ("laveu", "value", False), ("day", "key", False),
    ],
)  # fmt: skip
def test_a_slip_is_one_letter(name: str, other: str, slipped: bool) -> None:
    assert is_slip(name, other) is is_slip(other, name) is slipped
