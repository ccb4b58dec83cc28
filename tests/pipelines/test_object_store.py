"""Lakes in S3, without Spark: each row once, whatever is lost or comes at once."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.object_store import ObjectStore

from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.pipelines.datafiles import TaskFiles, file_prefix
from headrace.pipelines.schema import arrow_schema, schema_of
from headrace.pipelines.store import Store
from headrace.pipelines.table import LakeTable, open_log, open_table

MORNING = datetime(2026, 11, 15, 8, tzinfo=UTC)
SECRET = "do-not-print-this"


@pytest.fixture
def lake(s3: ObjectStore) -> str:
    return f"s3://{s3.new_bucket()}/lake"


def _table(lake: str, options: dict[str, str], name: str = "few") -> LakeTable:
    return open_table(
        f"{lake}/{name}", "delta", "date string, at timestamp, n long",
        partition_by=("date",), time="at", storage=options,
    )  # fmt: skip


def _rows(*numbers: int) -> list[dict[str, Any]]:
    return [
        {"date": f"2026-11-{15 + n % 2}", "at": MORNING + timedelta(minutes=n), "n": n}
        for n in numbers
    ]


def _numbers(table: LakeTable) -> list[int]:
    return sorted(row["n"] for row in table.rows())


def test_a_table_in_s3_takes_each_batch_once(s3: ObjectStore, lake: str) -> None:
    table = _table(lake, s3.options)
    assert table.rows() == [] and table.last_batch("w") is None
    assert table.append_rows(_rows(0, 1, 2), "w", 0).files == 2
    # Another process, and the scheme that people of Spark write.
    other = _table(lake.replace("s3://", "s3a://"), s3.options)
    assert other.append_rows(_rows(0, 1, 2), "w", 0).skipped
    other.append_rows(_rows(3, 4), "w", 1)
    assert _numbers(table) == [0, 1, 2, 3, 4]
    assert table.rows()[0]["at"].tzinfo is not None
    low = int(MORNING.timestamp() * 1_000_000)
    assert min(file.low_us or 0 for file in table.files()) == low
    assert len(table.files()) == 4
    assert table.compact() == 2 and len(table.files()) == 2
    assert _numbers(other) == [0, 1, 2, 3, 4] and other.last_batch("w") == 1
    assert table.drop_before(low + 3_600_000_000) == 2 and table.rows() == []


def test_writers_at_once_lose_no_row_and_take_none_twice(s3: ObjectStore, lake: str) -> None:
    """Two writers of one name, as after a split brain, one of another, and a compaction."""
    _table(lake, s3.options).append_rows(_rows(-1), "start", 0)
    begin = threading.Barrier(4)
    failures: list[BaseException] = []

    def write(writer: str, first: int) -> None:
        try:
            table = _table(lake, s3.options)
            begin.wait()
            for batch in range(5):
                table.append_rows(_rows(first + batch), writer, batch)
        except BaseException as error:
            failures.append(error)

    def compact() -> None:
        try:
            begin.wait()
            for _ in range(3):
                _table(lake, s3.options).compact()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=("same", 0)) for _ in range(2)]
    threads += [threading.Thread(target=write, args=("other", 100))]
    threads += [threading.Thread(target=compact)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert _numbers(_table(lake, s3.options)) == [-1, *range(5), *range(100, 105)]


def test_a_writer_that_is_killed_before_its_commit_leaves_no_row(
    s3: ObjectStore, lake: str
) -> None:
    table = _table(lake, s3.options)
    table.append_rows(_rows(0), "w", 0)
    killed = TaskFiles(
        table.store, table.shape, file_prefix("w", 1), arrow_schema(table.schema)
    ).write([_batch(table, 1, 2)])
    assert len(killed) == 2 and _numbers(table) == [0]
    assert table.append_rows(_rows(1, 2), "w", 1).rows == 2
    assert _numbers(table) == [0, 1, 2]
    there = {item.path for item in table.store.items(recursive=True)}
    assert {file.path for file in killed} < there
    # In use by nothing, but it might be about to be committed: only age tells.
    log = open_log(f"{lake}/few", "delta", "at", s3.options)
    assert log.vacuum(168, dry_run=False).paths == []


def _batch(table: LakeTable, *numbers: int) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(_rows(*numbers), schema=arrow_schema(table.schema))


def test_a_commit_whose_answer_is_lost_counts_once(s3: ObjectStore, lake: str) -> None:
    """The process cannot know whether its commit is in; the next one does."""
    _table(lake, s3.options).append_rows(_rows(0), "w", 0)
    bucket = lake.split("/")[2]
    failures = 0
    with s3.losing(f"PUT .*{bucket}.*[.]json$", times=3):
        while failures < 9:
            try:
                table = _table(lake, s3.options)
                for batch in (1, 2, 3):
                    table.append_rows(_rows(batch), "w", batch)
                break
            except HeadraceError as error:
                failures += 1
                assert SECRET not in str(error)
        assert len(s3.hit()) >= 3
    table = _table(lake, s3.options)
    assert Counter(_numbers(table)) == Counter(range(4)) and table.last_batch("w") == 3


def test_a_compaction_whose_answer_is_lost_keeps_the_rows(s3: ObjectStore, lake: str) -> None:
    table = _table(lake, s3.options)
    for batch in range(3):
        table.append_rows(_rows(batch), "w", batch)
    with s3.losing(f"PUT .*{lake.split('/')[2]}.*[.]json$", times=1):
        try:
            table.compact()
        except HeadraceError as error:
            assert SECRET not in str(error)
        assert s3.hit()
    assert _numbers(_table(lake, s3.options)) == [0, 1, 2]
    table.compact()
    assert _numbers(_table(lake, s3.options)) == [0, 1, 2]


@pytest.mark.parametrize("columns", ["", ", name string"])
def test_a_replacement_whose_answer_is_lost_is_known_to_be_done(
    s3: ObjectStore, lake: str, columns: str
) -> None:
    """Else it is tried again, and names files as added and as removed."""
    table = _table(lake, s3.options)
    for batch in range(2):
        table.append_rows(_rows(batch), "w", batch)
    new = TaskFiles(table.store, table.shape, "rebuilt", arrow_schema(table.schema)).write(
        [_batch(table, 10, 11, 12)]
    )
    schema = schema_of(f"date string, at timestamp, n long{columns}")
    with s3.losing(f"PUT .*{lake.split('/')[2]}.*[.]json$", times=1):
        assert table.log.replace(new, table.files(), seen={"w": 1}, schema=schema)
        assert len(s3.hit()) == 2
    again = _table(lake, s3.options)
    assert _numbers(again) == [10, 11, 12] and again.last_batch("w") == 1


def test_an_answer_that_does_not_come_is_asked_for_again(s3: ObjectStore, lake: str) -> None:
    _table(lake, s3.options).append_rows(_rows(0, 2), "w", 0)
    with s3.losing(f"GET .*{lake.split('/')[2]}.*[.]parquet$", times=1, kind="slow"):
        assert _numbers(_table(lake, s3.options | {"timeout": "1s"})) == [0, 2]
        assert len(s3.hit()) > 1


def test_what_is_wrong_with_a_store_is_told_in_words(s3: ObjectStore, lake: str) -> None:
    def told(location: str, **changes: str) -> str:
        with pytest.raises(HeadraceError) as raised:
            Store(location, s3.options | changes).check()
        assert SECRET not in str(raised.value) and "\n" not in str(raised.value)
        return f"{type(raised.value).__name__}: {raised.value}"

    # A lake that is not there yet is no error.
    Store(lake, s3.options).check()
    assert told("s3://nowhere/lake").startswith(
        "InvalidArgument: there is no such bucket: s3://nowhere/lake; make it, or correct"
    )
    with s3.losing(lake.split("/")[2], times=99):
        broken = told(lake)
    assert broken.startswith(f"StoreUnreachable: {lake} at {s3.endpoint} does not answer")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        gone = told(lake, aws_endpoint_url=nobody)
    assert gone.startswith(f"StoreUnreachable: {lake} at {nobody} does not answer")
    s3.ask("POST", "/moto-api/reset-auth", b"0")
    try:
        wrong = told(lake)
    finally:
        s3.ask("POST", "/moto-api/reset-auth", b"inf")
    assert wrong == (
        f"InvalidArgument: {lake} refuses the keys; correct the storage options or the "
        "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
    )


def test_a_folder_may_be_named_by_its_uri(tmp_path: Path) -> None:
    lake = tmp_path / "a lake"
    table = _table(lake.as_uri(), {})
    for batch in range(3):
        table.append_rows(_rows(batch), "w", batch)
    table.compact()
    assert _numbers(_table(str(lake), {})) == [0, 1, 2]


def test_plain_parquet_says_why_it_cannot_be_in_a_bucket(s3: ObjectStore, lake: str) -> None:
    with pytest.raises(InvalidArgument, match='format = "delta" takes object stores'):
        open_log(lake, "parquet", "at", s3.options)
