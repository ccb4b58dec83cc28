"""Times that name no zone. `tests/spark/test_batch_read.py` compares with from_json."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.core.errors import InvalidOption
from headrace.spark import zones
from headrace.spark.decoding import decoder_of
from headrace.spark.decoding_options import Decoding
from headrace.spark.zones import zone_named, zone_of_machine, zone_of_task

AT = pa.timestamp("us", "UTC")


def times(zone: str, *texts: str | None) -> list[str | None]:
    """What JSON's times are in UTC; "bad" for a record that is."""
    values = [f'{{"at": "{text}"}}'.encode() if text else b"{}" for text in texts]
    decoding = Decoding("json", "", None, "none", False, zone)
    decoded = decoder_of(decoding, pa.struct([("at", AT)])).decode(values)
    return [
        "bad" if reason else row["at"] and row["at"].strftime("%m-%d %H:%M:%S.%f")[:-3]
        for row, reason in zip(decoded.column.to_pylist(), decoded.reasons, strict=True)
    ]


def test_a_time_without_a_zone_is_of_the_zone_that_is_given() -> None:
    texts = ("2024-07-01T12:00:00.123", "2024-01-01 12:00:00", "2024-07-01", None)
    assert times("Europe/Berlin", *texts) == [
        "07-01 10:00:00.123",
        "01-01 11:00:00.000",
        "06-30 22:00:00.000",
        None,
    ]
    assert times("UTC", *texts)[:2] == ["07-01 12:00:00.123", "01-01 12:00:00.000"]
    assert times("+05:30", *texts)[:2] == ["07-01 06:30:00.123", "01-01 06:30:00.000"]


def test_a_time_with_a_zone_is_of_that_one() -> None:
    texts = ("2024-07-01T12:00:00Z", "2024-07-01T12:00:00+02:00", "2024-07-01T12:00:00-0500")
    wanted = ["07-01 12:00:00.000", "07-01 10:00:00.000", "07-01 17:00:00.000"]
    for zone in ("UTC", "Europe/Berlin", "America/New_York"):
        assert times(zone, *texts) == wanted
    assert times("Europe/Berlin", "soon", "2024-07-01T12:00:00", "2024-13-01") == [
        "bad",
        "07-01 10:00:00.000",
        "bad",
    ]


def test_hours_that_are_missing_or_twice_are_as_in_java() -> None:
    # In Berlin clocks are set forward on March 31 at 2, and back on October 27 at 3.
    assert times("Europe/Berlin", "2024-03-31T02:30:00", "2024-10-27T02:30:00", "2024-03-31") == [
        "03-31 01:30:00.000",
        "10-27 00:30:00.000",
        "03-30 23:00:00.000",
    ]


def test_times_are_found_wherever_they_stand() -> None:
    type = pa.struct(
        [
            ("id", pa.int64()),
            ("seen", pa.list_(AT)),
            ("in", pa.struct([("at", AT), ("steps", pa.list_(pa.struct([("at", AT)])))])),
        ]
    )
    decoding = Decoding("json", "", None, "none", False, "Asia/Tokyo")
    noon = "2024-07-01T12:00:00"
    values = [
        b'{"id": 1}',
        f'{{"seen": ["{noon}", null, "{noon}Z"], "in": {{"at": "{noon}"}}}}'.encode(),
        b"nonsense",
        f'{{"seen": [], "in": {{"steps": [{{"at": "{noon}"}}, {{}}, null]}}}}'.encode(),
        None,
    ]
    decoded = decoder_of(decoding, type).decode(values)
    decoded.column.validate(full=True)
    assert [bool(reason) for reason in decoded.reasons] == [False, False, True, False, False]
    utc = datetime(2024, 7, 1, 12, tzinfo=UTC)
    at = utc - timedelta(hours=9)
    assert decoded.column.to_pylist() == [
        {"id": 1, "seen": None, "in": None},
        {"id": None, "seen": [at, None, utc], "in": {"at": at, "steps": None}},
        None,
        {"id": None, "seen": [], "in": {"at": None, "steps": [{"at": at}, {"at": None}, None]}},
        None,
    ]


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("UTC", 0), ("Z", 0), ("GMT", 0), ("+01:00", 1), ("-3", -3), ("GMT+2", 2),
        ("UTC-05:00", -5), ("Asia/Tokyo", 9), ("JST", 9), ("EST", -5), ("+0530", 5.5),
    ],
)  # fmt: skip
def test_zones_are_named_as_in_java(name: str, hours: float) -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=zone_named(name))
    assert noon.utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize("name", ["Mars/Base", "+19:00", "../etc/passwd", "later"])
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="is not known here; set option 'timeZone'"):
        zone_named(name)


def test_what_has_no_times_needs_no_zone() -> None:
    decoding = Decoding("json", "", None, "none", False, "Mars/Base")
    decoded = decoder_of(decoding, pa.struct([("id", pa.int64())])).decode([b'{"id": 1}'])
    assert decoded.column.to_pylist() == [{"id": 1}]


def test_the_machine_has_a_zone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    assert zone_of_machine() == "America/New_York"
    monkeypatch.setenv("TZ", "nonsense")
    zone_named(zone_of_machine())
    monkeypatch.delenv("TZ")
    zone_named(zone_of_machine())
    assert zone_of_task(None, "Asia/Tokyo") == "Asia/Tokyo"
    assert zone_of_task("+01:00", "Asia/Tokyo") == "+01:00"
    assert zones.SESSION_ZONE == "spark.sql.session.timeZone"
