"""The zone of times that do not name one, as Spark's from_json takes them.

    option 'timeZone'   what the user said
    the session's       spark.sql.session.timeZone, which Spark hands to its tasks where
                        it was set
    the driver's        what Java, and so Spark, takes where nothing was set: that of the
                        machine, found when the query is planned

An hour that there are two of, in autumn, is the first; one that there is none of, in
spring, is moved on by the hour that is missing. Java does the same.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import InvalidOption

SESSION_ZONE: Final = "spark.sql.session.timeZone"
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?")
# Behind a time of day; a date alone ends like an offset.
_NAMES_ITS_ZONE: Final = r"[T ]\d\d.*(?:Z|[+-]\d\d(?::?\d\d)?)$"
_EPOCH: Final = datetime(1970, 1, 1)
# Java's short names of zones, of which Python's own are others or none.
_SHORT: Final = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "MST": "-07:00",
    "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip


def zone_named(name: str) -> tzinfo:
    """The zone of this name, in Java's spellings. InvalidOption for one that is not known."""
    name = _SHORT.get(name, name)
    if name in ("Z", "UTC", "GMT", "UT", "Etc/UTC"):
        return UTC
    found = _OFFSET.fullmatch(name)
    if found:
        sign, hours, minutes, seconds = found.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        if offset <= timedelta(hours=18):
            return timezone(-offset if sign == "-" else offset)
    else:
        try:
            return ZoneInfo(name)
        except (OSError, ValueError, LookupError):
            pass
    raise InvalidOption(
        f"the time zone {name!r} is not known here; set option 'timeZone', or "
        f"{SESSION_ZONE}, to one such as Europe/Berlin or +01:00"
    )


def zone_of_task(given: str | None, driver_zone: str) -> str:
    """For a task that reads; outside of Spark, as if nothing was set there."""
    if given is not None:
        return given
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context and context.getLocalProperty(SESSION_ZONE)) or driver_zone


def zone_of_machine() -> str:
    """The name of this machine's zone, where Java looks for it."""
    given = os.environ.get("TZ", "").removeprefix(":")
    place = Path("/etc/localtime")
    linked = os.path.realpath(place).partition("/zoneinfo/")[2] if place.is_symlink() else ""
    for name in (given, linked.removeprefix("posix/"), _first_line(Path("/etc/timezone"))):
        if name:
            try:
                zone_named(name)
            except InvalidOption:
                continue
            return name
    offset = datetime.now().astimezone().strftime("%z")
    return f"{offset[:3]}:{offset[3:5]}"


def _first_line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip().partition("\n")[0]
    except (OSError, ValueError):
        return ""


# Times.


def as_text(type: pa.DataType) -> pa.DataType:
    """The type with text in place of its times, to be read before `with_times`."""
    if pa.types.is_timestamp(type) and type.tz is not None:
        return pa.string()
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(as_text(field.type)) for field in type])
    if pa.types.is_list(type):
        return pa.list_(type.value_field.with_type(as_text(type.value_type)))
    return type


def with_times(array: pa.Array, type: pa.DataType, zone: tzinfo) -> pa.Array:
    """The array, whose type is `as_text(type)`, as one of that type. ArrowInvalid for
    what is no time."""
    if array.type.equals(type):
        return array
    if pa.types.is_struct(type):
        children = [
            with_times(array.field(number), field.type, zone) for number, field in enumerate(type)
        ]
        missing = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(type), mask=missing)
    if pa.types.is_list(type):
        validity, starts = array.buffers()[:2]
        values = with_times(array.values, type.value_type, zone)
        return pa.Array.from_buffers(
            type, len(array), [validity, starts], offset=array.offset, children=[values]
        )
    return _times(array, type, zone)


def _times(texts: pa.Array, type: pa.TimestampType, zone: tzinfo) -> pa.Array:
    named = pc.match_substring_regex(texts, _NAMES_ITS_ZONE)
    nothing = pa.scalar(None, pa.string())
    fixed = pc.if_else(named, texts, nothing).cast(type)
    bare = pc.if_else(named, nothing, texts).cast(pa.timestamp(type.unit))
    return pc.coalesce(fixed, _in_zone(bare, type, zone))


def _in_zone(bare: pa.Array, type: pa.TimestampType, zone: tzinfo) -> pa.Array:
    if bare.null_count == len(bare):
        return pa.nulls(len(bare), type)
    if isinstance(zone, ZoneInfo) and type.tz == "UTC":
        try:
            return pc.assume_timezone(bare, zone.key, ambiguous="earliest").cast(type)
        except pa.ArrowInvalid:
            # Among them is a time that there is none of, for which Arrow has another rule.
            pass
    moments = [None if each is None else _micros(each, zone) for each in bare.to_pylist()]
    return pa.array(moments, pa.int64()).cast(type)


def _micros(bare: datetime, zone: tzinfo) -> int:
    offset = bare.replace(tzinfo=zone).utcoffset()
    return (bare - _EPOCH - (offset or timedelta(0))) // timedelta(microseconds=1)
