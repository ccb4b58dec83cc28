"""Tables that follow keys: tombstones, change events of Debezium, and every batch once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from tests.pipelines.conftest import NOON_MS, record, records

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive.changes import (
    Emptied,
    changes_of,
    decode_events,
    emptied,
    last_by_key,
    survives,
    with_row_keys,
)
from headrace.pipelines.archive.job import ArchiveJob, ArchiveSettings
from headrace.pipelines.archive.reading import read_latest, read_typed
from headrace.pipelines.archive.rebuild import rebuild
from headrace.pipelines.archive.transform import decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id BIGINT, name STRING"


def event(op: str, row: dict[str, Any] | None, before: dict[str, Any] | None = None) -> Any:
    """As Debezium has it: of a delete, the row is `before`."""
    if op == "d":
        row, before = None, row
    return {"before": before, "after": row, "op": op, "ts_ms": NOON_MS, "source": {"lsn": 7}}


def wrapped(payload: Any) -> Any:
    return {"schema": {"type": "struct", "name": "Envelope"}, "payload": payload}


def row(n: int, name: str | None = "a") -> dict[str, Any]:
    return {"id": n, "name": name}


def as_bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


# Key, value, and the change that it is: deleted, name; or the beginning of what is wrong.
EVENTS: list[tuple[Any, Any, Any]] = [
    ({"id": 1}, event("c", row(1)), (False, "a")),
    ({"id": 1}, event("u", row(1, "b"), row(1)), (False, "b")),
    ({"id": 2}, event("r", row(2)), (False, "a")),
    ({"id": 2}, event("d", row(2)), (True, "a")),
    ({"id": 2}, None, (True, None)),
    (wrapped({"id": 1}), wrapped(event("u", row(1, "c"))), (False, "c")),
    (wrapped({"id": 3}), wrapped(event("d", row(3))), (True, "a")),
    (wrapped({"id": 3}), None, (True, None)),
    ({"id": 4}, event("d", None), (True, None)),
    (None, event("t", None), "emptied"),
    ({"id": 5}, {"id": 5, "name": "a"}, "value is not a change event"),
    ({"id": 5}, event("x", row(5)), "value is not a change event"),
    ({"id": 5}, event("c", None), "change event has no row"),
    ({"id": 5}, event("c", {"id": "x"}), "value is not JSON of the given columns"),
    ({"id": 5}, b"broken", "value is not a JSON object"),
    (None, None, "record has no"),
]


@pytest.mark.parametrize("key_columns", [(), ("id",)])
def test_change_events_become_changes_of_rows(
    spark: SparkSession, key_columns: tuple[str, ...]
) -> None:
    rows = [
        record(as_bytes(value), key=as_bytes(key), offset=offset)
        for offset, (key, value, _) in enumerate(EVENTS)
    ]
    found = with_row_keys(decode_events(records(spark, rows), COLUMNS, None), key_columns)
    found = found.persist()
    changes = {each["_offset"]: each for each in changes_of(found).collect()}
    bad = {
        each.offset: each.decode_error for each in found.where("decode_error IS NOT NULL").collect()
    }
    for offset, (key, _, expected) in enumerate(EVENTS):
        if expected == "emptied":
            assert offset not in changes and offset not in bad
        elif isinstance(expected, str):
            assert offset not in changes and bad[offset].startswith(expected), bad[offset]
        else:
            change = changes[offset]
            assert (change["_deleted"], change["name"]) == expected
            plain = key.get("payload", key)
            if key_columns:
                assert change["id"] == plain["id"]
            else:
                assert json.loads(bytes(change["_key"])) == plain
    assert {change["_op"] for change in changes.values()} == {"c", "u", "r", "d", None}
    [cut] = emptied(found)
    assert (cut.topic, cut.partition, cut.offset) == ("metrics", 0, 9)
    # The last ones, of four keys: the first is there, with what came before the emptying.
    last = {
        each["_offset"]: each["_deleted"]
        for each in last_by_key(changes_of(found), key_columns or ("_key",)).collect()
    }
    assert last == {5: False, 4: True, 7: True, 8: True}
    found.unpersist()


def test_the_last_of_a_key_is_the_one_with_the_greatest_offset(spark: SparkSession) -> None:
    """Whatever the records' timestamps say, except between partitions."""
    rows = [
        record(as_bytes(row(1, "newer")), offset=9, at_ms=NOON_MS, key=b"k"),
        record(as_bytes(row(1, "older")), offset=8, at_ms=NOON_MS + 1000, key=b"k"),
        record(as_bytes(row(1, "first")), offset=99, at_ms=NOON_MS, key=b"moved"),
        record(as_bytes(row(1, "then")), offset=1, at_ms=NOON_MS + 5, key=b"moved", partition=1),
        record(as_bytes(row(1, "gone")), offset=3, at_ms=NOON_MS - 1, key=b"n", partition=1),
    ]
    found = with_row_keys(decode(records(spark, rows), COLUMNS, None), ())
    last = last_by_key(changes_of(found), ["_key"]).persist()
    assert sorted(each.name for each in last.collect()) == ["gone", "newer", "then"]
    cuts = [Emptied("metrics", 0, 9, NOON_MS * 1000), Emptied("others", 1, 50, 2**60)]
    assert sorted(each.name for each in survives(last, cuts).collect()) == ["newer", "then"]
    last.unpersist()


def test_a_change_whose_time_is_none_is_taken_without_it(spark: SparkSession) -> None:
    """As of a connector that counts nanoseconds: an error would end the archive."""
    year_1, year_10000 = -62_135_596_800_000, 253_402_300_800_000
    known = [NOON_MS, year_1, year_10000 - 1]
    absurd = [NOON_MS * 1_000_000, 2**63 - 1, -(2**63), year_1 - 1, year_10000]
    rows = [
        record(as_bytes(event("u", row(n)) | {"ts_ms": ts_ms}), key=b"k", offset=n)
        for n, ts_ms in enumerate([*known, *absurd])
    ]
    found = with_row_keys(decode_events(records(spark, rows), COLUMNS, None), ())
    changes = changes_of(found).select("id", F.unix_millis("_changed_at").alias("at")).collect()
    assert {each["id"]: each["at"] for each in changes} == dict(
        enumerate([*known, *(None for _ in absurd)])
    )


def job_of(tmp_path: Path, format: str, **changes: Any) -> ArchiveJob:
    values = {
        "pipeline": "archive", "servers": "127.0.0.1:1", "topic": "metrics", "format": format,
        "lake": str(tmp_path / "lake"), "value_format": "json", "value_schema": COLUMNS,
        "upsert": True,
    }  # fmt: skip
    return ArchiveJob(ArchiveSettings.from_mapping(values | changes))


class Archive:
    """Takes batches as the topic would give them: offsets go on from batch to batch."""

    def __init__(self, spark: SparkSession, job: ArchiveJob) -> None:
        self.spark = spark
        self.job = job
        self.batch = -1
        self.offset = 0

    def rows(self, *pairs: tuple[Any, Any]) -> list[Any]:
        self.batch += 1
        start, self.offset = self.offset, self.offset + len(pairs)
        return [
            record(as_bytes(value), key=as_bytes(key), offset=start + number)
            for number, (key, value) in enumerate(pairs)
        ]

    def take(self, *pairs: tuple[Any, Any], job: ArchiveJob | None = None) -> None:
        self.take_rows(self.rows(*pairs), job or self.job)

    def take_rows(self, rows: list[Any], job: ArchiveJob) -> None:
        job.ledger.write(job.take(records(self.spark, rows), self.batch, "query"))

    def latest(self, *names: str) -> list[tuple[Any, ...]]:
        rows = read_latest(self.spark, self.job.settings).collect()
        return sorted(tuple(each[name] for name in names) for each in rows)


def test_the_table_has_the_last_value_of_each_key_once_whatever_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(spark, job_of(tmp_path, "delta"))
    archive.take((b"a", row(1)), (b"b", row(2)), (b"a", row(1, "z")), (b"c", row(3)), (None, {}))
    archive.take((b"d", row(4)))
    files = archive.job._latest and archive.job._latest.files()
    rows = archive.rows((b"a", row(1, "y")), (b"b", None), (b"gone", None), (b"e", row(5)))

    # It dies after the commit of `latest` and before the ledger, and comes again.
    def killed(*_: Any) -> None:
        raise ConnectionAbortedError

    dying = job_of(tmp_path, "delta")
    dying.prepare(spark)
    assert dying._bad is not None
    monkeypatch.setattr(dying.ledger, "write", killed)
    with pytest.raises(ConnectionAbortedError):
        archive.take_rows(rows, dying)
    expected = [(1, "y"), (3, "a"), (4, "a"), (5, "a")]
    assert archive.latest("id", "name") == expected
    archive.take_rows(rows, job_of(tmp_path, "delta"))
    assert archive.latest("id", "name") == expected
    # The file of a key that did not change is still the same one.
    assert files and archive.job._latest
    kept = {file.path for file in files} & {file.path for file in archive.job._latest.files()}
    assert kept
    # An older record that comes late, as after a repair, does not overwrite a newer one.
    archive.offset = 0
    archive.take((b"a", row(1, "old")), (b"d", row(4, "old")))
    assert archive.latest("id", "name") == expected
    # A column more, and the ones of before are kept; then the files are merged.
    archive.offset = 20
    more = job_of(tmp_path, "delta", value_schema="id BIGINT, n INT")
    archive.take((b"c", {"id": 3, "n": 9}), job=more)
    wanted = [(1, "y", None), (3, None, 9), (4, "a", None), (5, "a", None)]
    assert archive.latest("id", "name", "n") == wanted
    more.compact(spark)
    assert archive.latest("id", "name", "n") == wanted
    assert more._latest is not None and len(more._latest.files()) == 1
    # Each record of a row is in the history, and the one without a key is bad.
    assert read_typed(spark, more.settings).count() == 10
    assert more._bad is not None and more._bad.read(spark).count() == 1
    with pytest.raises(InvalidArgument, match="follows the record's key and the settings say id"):
        job_of(tmp_path, "delta", key_columns=["id"]).prepare(spark)
    # A rebuild follows other keys; a tombstone whose key has not the column is bad.
    done = rebuild(spark, job_of(tmp_path, "delta", key_columns=["id"]).settings)
    assert (done.rows_bad, done.batch) == (3, 4)
    assert archive.latest("id", "name") == [(1, "y"), (2, "a"), (3, None), (4, "a"), (5, "a")]


def test_change_events_keep_a_table_as_the_database_has_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = job_of(tmp_path, "parquet", changes="debezium", key_columns=["id"])
    archive = Archive(spark, job)
    key = [{"id": n} for n in range(5)]
    # At first without `latest`, which therefore has to be made from the raw table.
    plain = job_of(tmp_path, "parquet", changes="debezium", upsert=False)
    archive.take((key[1], event("r", row(1))), (key[2], event("c", row(2))), job=plain)
    with pytest.raises(InvalidArgument, match="what was archived without upsert"):
        job.prepare(spark)
    assert rebuild(spark, job.settings) == (2, 0, 0)
    archive.take(
        (key[1], wrapped(event("u", row(1, "b"), row(1)))),
        (key[2], event("d", row(2))),
        (key[2], None),
        (key[3], event("c", row(3))),
        (key[3], b"broken"),
    )
    assert archive.latest("id", "name", "_op") == [(1, "b", "u"), (3, "a", "c")]
    assert len(archive.latest("_changed_at")) == 2
    archive.take((key[3], event("u", row(3, "lost"))), (None, event("t", None)))
    assert archive.latest("id") == []
    archive.take((None, event("t", None)), (key[4], event("c", row(4))))
    assert archive.latest("id", "name") == [(4, "a")]
    typed = read_typed(spark, job.settings).orderBy("_offset").collect()
    assert [each["_op"] for each in typed] == ["r", "c", "u", "d", "c", "u", "t", "t", "c"]


def test_settings_of_keys_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for changes, message in (
        ({"value_format": "raw", "value_schema": ""}, "upsert is given but value_format is"),
        ({"upsert": False, "key_columns": ["id"]}, "key_columns is given but upsert is false"),
        ({"changes": "maxwell"}, "changes must be one of"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            job_of(tmp_path, "delta", **changes)


def test_batches_that_were_taken_without_the_table_are_missed(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive = Archive(spark, job_of(tmp_path, "delta"))
    # Also a batch that changes nothing is in: the first one makes the table.
    archive.take((None, {}))
    job_of(tmp_path, "delta").prepare(spark)
    archive.take((b"a", row(1)), (b"b", row(2)))
    archive.take((None, {}))
    again = job_of(tmp_path, "delta")
    again.prepare(spark)
    plain = job_of(tmp_path, "delta", upsert=False)
    archive.take((b"a", None), (b"c", row(3)), job=plain)
    # `again` began before and would go on; the next one is told.
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="without upsert .*latest; .* pipeline rebuild"):
            job_of(tmp_path, "delta").prepare(spark)
    assert rebuild(spark, again.settings).batch == 3
    archive.take((b"d", row(4)), job=job_of(tmp_path, "delta"))
    assert archive.latest("id") == [(2,), (3,), (4,)]


def test_a_key_of_two_archives_is_not_taken_for_one_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They may share a lake, but not a table in which rows are named by their keys alone."""
    first = Archive(spark, job_of(tmp_path, "delta"))
    first.take((b"a", row(1)))
    other = job_of(tmp_path, "delta", topic="others")
    with pytest.raises(InvalidArgument, match="latest is kept by 'archive-metrics', and rows"):
        other.prepare(spark)
    assert other.raw.last_batch("archive-others") is None
    Archive(spark, job_of(tmp_path, "delta", topic="others", upsert=False)).take((b"a", row(2)))
    first.take((b"a", row(1, "z")), job=job_of(tmp_path, "delta"))
    assert first.latest("id", "name") == [(1, "z")]
