"""The typed table made anew from the raw one, while the archive goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tests.pipelines.conftest import NOON_MS, record, records
from tests.pipelines.test_archive_evolution import job_of

from headrace.cli.main import cli
from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive import rebuild as rebuilding
from headrace.pipelines.archive.job import ArchiveJob
from headrace.pipelines.archive.reading import read_typed
from headrace.pipelines.archive.rebuild import rebuild

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 24 * 3600 * 1000


def take(spark: SparkSession, job: ArchiveJob, batch: int, *values: bytes) -> None:
    """Two records a batch; those of odd offsets are of the day after."""
    rows = [
        record(value, offset=2 * batch + number, at_ms=NOON_MS + DAY_MS * (number % 2))
        for number, value in enumerate(values)
    ]
    job.ledger.write(job.take(records(spark, rows), batch, "query"))


def places(spark: SparkSession, job: ArchiveJob) -> tuple[dict[int, Any], set[int]]:
    """The typed ids and the bad records, by offset; each offset is in one of them once."""
    typed = [(row["_offset"], row["id"]) for row in read_typed(spark, job.settings).collect()]
    assert job._bad is not None
    bad = [row["offset"] for row in job._bad.read(spark).collect()]
    assert len({*(offset for offset, _ in typed), *bad}) == len(typed) + len(bad)
    return dict(typed), set(bad)


def before(monkeypatch: pytest.MonkeyPatch, name: str, events: list[Callable[[], None]]) -> None:
    """Let each event happen at one call of a function of the rebuild, before it runs."""
    real = getattr(rebuilding, name)

    def call(*arguments: Any, **named: Any) -> Any:
        if events:
            events.pop(0)()
        return real(*arguments, **named)

    monkeypatch.setattr(rebuilding, name, call)


def test_other_types_are_taken_from_raw_and_a_batch_meanwhile_is_neither_lost_nor_doubled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (job_of(tmp_path, "delta", f"id {kind}") for kind in ("STRING", "BIGINT"))
    take(spark, old, 0, b'{"id": 1}', b'{"id": "x"}')
    take(spark, old, 1, b'{"id": 3}', b"broken")
    with pytest.raises(InvalidArgument, match="'id' is string in the table and bigint"):
        new.prepare(spark)
    seen: list[Any] = []

    def meanwhile() -> None:
        take(spark, old, 2, b'{"id": 5}', b'{"id": "y"}')
        seen.append(places(spark, old))

    events = [lambda: None, meanwhile]
    before(monkeypatch, "write_files", events)
    done = rebuild(spark, new.settings)
    assert not events and done == (3, 3, 2)
    assert seen == [({0: "1", 1: "x", 2: "3", 4: "5", 5: "y"}, {3})], "readers saw the old table"
    # The archive of before stops, with what it has put into raw; the next one goes on there.
    after = (b'{"id": 7}', b'{"id": "z"}')
    with pytest.raises(InvalidArgument, match="run the pipeline again"):
        take(spark, old, 3, *after)
    take(spark, new, 3, *after)
    assert places(spark, new) == ({0: 1, 2: 3, 4: 5, 6: 7}, {1, 3, 5, 7})
    assert new.raw.read(spark).count() == 8


def test_a_part_is_made_anew_and_again_after_a_kill(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (job_of(tmp_path, "delta", f"id BIGINT{more}") for more in ("", ", n INT"))
    take(spark, old, 0, b'{"id": 0, "n": 0}', b'{"id": 1, "n": 1}')
    take(spark, old, 1, b'{"id": 2, "n": "x"}', b'{"id": 3, "n": "x"}')
    day = "2026-11-16"
    with pytest.raises(InvalidArgument, match="id bigint to decimal.* without --from"):
        rebuild(spark, job_of(tmp_path, "delta", "id DECIMAL(30,0)").settings, start=day)

    def killed() -> None:
        raise ConnectionAbortedError

    events: list[Callable[[], None]] = [killed]
    before(monkeypatch, "_replace_bad", events)
    with pytest.raises(ConnectionAbortedError):
        rebuild(spark, new.settings, start=day)
    # A batch between the two commits: its rows stay as the archive decoded them.
    events += [lambda: take(spark, old, 2, b'{"id": 4}', b'{"id": 5, "n": "x"}')]
    events += [lambda: take(spark, old, 3, b'{"id": 6}', b"broken")]
    assert rebuild(spark, new.settings, start=day).batch == 1
    assert places(spark, old) == ({0: 0, 1: 1, 2: 2, 4: 4, 5: 5}, {3})
    assert rebuild(spark, new.settings, start=day).batch == 2
    rows = {row["_offset"]: row["n"] for row in read_typed(spark, new.settings).collect()}
    assert rows == {0: None, 1: 1, 2: None, 4: None, 6: None}
    assert places(spark, old)[1] == {3, 5, 7}


def test_a_rebuild_that_makes_no_sense_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    job = job_of(tmp_path, "delta", "id BIGINT")
    with pytest.raises(InvalidArgument, match="run the archive first"):
        rebuild(spark, job.settings)
    take(spark, job, 0, b"{}")
    other = ArchiveJob(job.settings.changed({"name": "other"}))
    take(spark, other, 0, b"{}")
    with pytest.raises(InvalidArgument, match="is also written by 'other'"):
        rebuild(spark, job.settings)
    config = tmp_path / "archive.toml"
    lines = ("topic = 'metrics'", "servers = '127.0.0.1:1'", f"lake = '{tmp_path / 'lake'}'")
    config.write_text("\n".join(lines))
    for more, message in (
        (["--from", "yesterday"], "--from must be a date such as 2026-11-15, not 'yesterday'"),
        ([], 'value_format is "raw", so there is no typed table'),
        (["--set", "pipeline=rollup"], "the settings are for the pipeline 'rollup'"),
    ):
        result = CliRunner().invoke(cli, ["pipeline", "rebuild", "--config", str(config), *more])
        assert result.exit_code == 2 and message in result.stderr, result.output
    typed = ["--set", "value_format=json", "--set", "value_schema=id BIGINT", "--set", "name=new"]
    result = CliRunner().invoke(cli, ["pipeline", "rebuild", "--config", str(config), *typed])
    assert result.exit_code == 2 and "has nothing of the archive 'new'" in result.stderr


def test_a_typed_table_is_made_of_what_was_archived_raw(
    spark: SparkSession, tmp_path: Path
) -> None:
    typed = job_of(tmp_path, "parquet", "id BIGINT")
    raw = ArchiveJob(typed.settings.changed({"value_format": "raw", "value_schema": ""}))
    take(spark, raw, 0, b'{"id": 1}', b"broken")
    assert rebuild(spark, typed.settings) == (1, 1, 0)
    take(spark, typed, 1, b'{"id": 2}')
    assert places(spark, typed) == ({0: 1, 2: 2}, {1})


def test_a_rebuild_keeps_the_folders_that_the_tables_have(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its files would be read by the folders of the table, and their rows would be null or
    there twice."""
    by_day = job_of(tmp_path, "delta", "id BIGINT, n INT")
    take(spark, by_day, 0, b'{"id": 1}', b'{"id": 2}')
    for partition_by, message in (
        ("id", "typed is partitioned by _date and not by id; set partition_by"),
        ("hour", "raw is partitioned by date and not by date, hour; set partition_by"),
        ("none", "raw is partitioned by date and not by nothing; set partition_by"),
    ):
        settings = by_day.settings.changed({"partition_by": partition_by})
        with pytest.raises(InvalidArgument, match=message):
            rebuild(spark, settings)
        # Nor are its columns changed by an archive that cannot append to it.
        wider = settings.changed({"value_schema": "id BIGINT, n BIGINT, more STRING"})
        with pytest.raises(InvalidArgument, match=message):
            ArchiveJob(wider).prepare(spark)
    assert places(spark, by_day) == ({0: 1, 1: 2}, set())
    assert "more" not in read_typed(spark, by_day.settings).columns
    (tmp_path / "by-id").mkdir()
    by_id = job_of(tmp_path / "by-id", "delta", "id BIGINT")
    by_id = ArchiveJob(by_id.settings.changed({"partition_by": "id"}))
    take(spark, by_id, 0, b'{"id": 1}', b'{"id": 2}')
    with pytest.raises(InvalidArgument, match="typed is partitioned by id and not by _date"):
        rebuild(spark, by_id.settings.changed({"partition_by": "day"}), start="2026-11-16")
    assert places(spark, by_id) == ({0: 1, 1: 2}, set())
