"""Makes the tables `typed`, `bad` and `latest` anew from `raw`, while the archive goes on.

    raw      batches 0 ... n | n+1 ...      a batch is here before it is in typed and bad
    typed    written anew    | whatever the archive has appended since
    bad      written anew    |
    latest   written anew    | by a seam of its own: a record is the same change, whenever

The seam is a batch number: the last one that any table has, so that `raw` holds all up to
it. The new files take the place of the old ones in one commit of each table's log, with
the new columns, and only if no later batch is there; then the later ones are written too
and it is tried again. The commit also says that the archive's batches up to the seam are
in, so a batch that was under way is not appended on top.

An archive that runs with other columns than the new ones is refused at its next batch; the
batch is taken when it is started again. A rebuild that was killed has changed nothing, or
`typed` alone: it is run again, from the beginning.

Rejected: a second table that takes the old one's name at the end. Object stores cannot
rename a folder, and readers would have to look for the table twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from headrace.core.errors import InvalidArgument
from headrace.core.wording import counted
from headrace.pipelines.archive import transform
from headrace.pipelines.archive.job import ArchiveJob, ArchiveSettings, bad_table, typed_table
from headrace.pipelines.archive.latest import create, find_changes, write
from headrace.pipelines.datafiles import DataFile, file_prefix, write_files
from headrace.pipelines.evolution import check, evolve
from headrace.pipelines.evolving import TRIES, busy, evolve_table
from headrace.pipelines.ledger import check_written, writers_of
from headrace.pipelines.registry import Say
from headrace.pipelines.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headrace.pipelines.table import LakeTable


class Rebuilt(NamedTuple):
    rows: int
    rows_bad: int
    # The last batch that was written anew.
    batch: int


def run(settings: ArchiveSettings, *, start: str, master: str | None, say: Say) -> int:
    check_start(start)
    with spark_session(settings, master) as spark:
        done = rebuild(spark, settings, start=start)
    say(
        f"{counted(done.rows, 'row')} of {settings.table_path('typed')} made anew from records up "
        f"to batch {done.batch}"
    )
    if done.rows_bad:
        say(f"{done.rows_bad:,} could not be decoded; they are in the table `bad`")
    return 0


def check_start(start: str) -> None:
    try:
        if start and date.fromisoformat(start).isoformat() != start:
            raise ValueError
    except ValueError:
        raise InvalidArgument(f"--from must be a date such as 2026-11-15, not {start!r}") from None


def rebuild(spark: SparkSession, settings: ArchiveSettings, *, start: str = "") -> Rebuilt:
    """Both tables anew, from the day `start` on where one is given."""
    job = ArchiveJob(settings)
    if not job.is_typed:
        raise InvalidArgument(
            'value_format is "raw", so there is no typed table to make anew; say value_format and '
            "value_schema"
        )
    writer = job.ledger.writer
    check_written(settings.lake, settings.format, writer, settings.storage)
    _check_alone(job)
    columns = job.typed_schema(spark)
    typed, bad, latest = (
        typed_table(settings, columns),
        bad_table(settings),
        job.latest_table(columns),
    )
    for table in (job.raw, typed, bad, latest):
        if table is not None:
            table.check_partitioning()
    if latest is not None and start:
        raise InvalidArgument(
            "a table that follows keys (upsert = true) cannot be made anew in part; leave --from "
            "out"
        )
    schema = typed.schema
    if start:
        _check_by_day(settings)
        schema = _schema_from(spark, typed, start, writer)
    for table in (typed, bad):
        table.create()
    source = _Source(spark, job, start)
    new = _New(typed, schema, "_date", source, transform.typed_rows)
    new_bad = _New(bad, bad.schema, "date", source, transform.bad_rows)
    through = _replace_typed(new, new_bad)
    _replace_bad(new_bad, through)
    if latest is not None:
        create(latest)
        _replace_latest(_NewLatest(latest, latest.schema, "", source, transform.typed_rows))
    return Rebuilt(new.rows, new_bad.rows, through)


def _check_by_day(settings: ArchiveSettings) -> None:
    if settings.partition_by not in ("day", "hour"):
        raise InvalidArgument(
            f"--from needs tables whose files are of one day, and partition_by is "
            f"{settings.partition_by!r}; rebuild all of it, without --from"
        )


def _check_alone(job: ArchiveJob) -> None:
    settings, mine = job.settings, job.ledger.writer
    others = [
        each
        for each in writers_of(settings.lake, settings.format, settings.storage)
        if each != mine and job.raw.last_batch(each) is not None
    ]
    if others:
        raise InvalidArgument(
            f"lake {settings.lake!r} is also written by {', '.join(map(repr, others))}, whose "
            "rows a rebuild would lose; give each archive a lake of its own"
        )


def _schema_from(spark: SparkSession, typed: LakeTable, start: str, writer: str) -> StructType:
    """The columns when older rows stay as they are: nothing but new columns may differ."""
    stored = typed.stored_schema()
    if stored is None:
        return typed.schema
    evolution = evolve(stored, typed.schema)
    remedy = f"rows before {start} have the old columns: run it without --from"
    check(evolution, typed.location, remedy)
    if evolution.rewritten:
        raise InvalidArgument(
            f"{typed.location}: {', '.join(evolution.rewritten)} is another type, and {remedy}"
        )
    return evolve_table(typed, spark, writers=(writer,)).schema


def _day(file: DataFile, column: str) -> str:
    """Of a file of several days, one before any."""
    return file.partition.get(column) or ""


@dataclass
class _Source:
    """The raw table's records of some batches, decoded."""

    spark: SparkSession
    job: ArchiveJob
    start: str

    def records(self, after: int, through: int) -> DataFrame:
        raw = self.job.raw
        files = [file for file in raw.files() if _day(file, "date") >= self.start]
        batch = F.col("batch")
        return raw.read_files(self.spark, files).where((batch > after) & (batch <= through))

    def ends(self, through: int) -> dict[str, int]:
        """Where the batches end: "topic/partition" to the next offset."""
        return transform.ends(self.records(-1, through))


@dataclass
class _New:
    """One table's new files, and how many batches they hold."""

    table: LakeTable
    schema: StructType
    date_column: str
    source: _Source
    rows_of: Callable[[DataFrame], DataFrame]
    files: list[DataFile] = field(default_factory=list)
    through: int = -1

    def catch_up(self, through: int) -> None:
        if through > self.through:
            records = self.source.job.decode(self.source.records(self.through, through))
            self.files += self.write(self.rows_of(records))
            self.through = through

    def write(self, rows: DataFrame) -> list[DataFile]:
        rows = self.table.with_hours(rows)
        return write_files(rows, self.table.store, self.table.shape, self.prefix)

    def old_files(self) -> list[DataFile]:
        return [
            file for file in self.table.files() if _day(file, self.date_column) >= self.source.start
        ]

    def last_batch(self) -> int:
        last = self.table.last_batch(self.writer)
        return -1 if last is None else last

    @property
    def prefix(self) -> str:
        return f"rebuilt-{file_prefix(self.writer, 0)}"

    @property
    def writer(self) -> str:
        return self.source.job.ledger.writer

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class _NewLatest(_New):
    """Records that come later change rows of the new files, which are written again."""

    def catch_up(self, through: int) -> None:
        if through > self.through:
            job = self.source.job
            records = job.decode(self.source.records(self.through, through))
            changes = find_changes(records, job.keys)
            try:
                self.files = write(self.table, self.schema, self.files, changes, self.prefix)
            finally:
                changes.last.unpersist()
            self.through = through


def _replace_typed(typed: _New, bad: _New) -> int:
    """The seam: the last batch that both have been written anew for."""
    job = typed.source.job
    for _ in range(TRIES):
        # In this order: a batch that is in one of them is complete in those that follow.
        through = max(job.ledger.last_batch(), bad.last_batch(), typed.last_batch())
        typed.catch_up(through)
        bad.catch_up(through)
        old = typed.old_files()
        seen = {typed.writer: through}
        if typed.table.log.replace(typed.files, old, seen=seen, schema=typed.schema):
            return through
    raise busy(typed.table)


def _replace_bad(bad: _New, through: int) -> None:
    """Rows of batches that came after the seam stay as they are."""
    ends: dict[str, int] | None = None
    for _ in range(TRIES):
        last, old, late = bad.last_batch(), bad.old_files(), []
        if last > through:
            ends = bad.source.ends(through) if ends is None else ends
            rows = bad.table.read_files(bad.source.spark, old)
            late = bad.write(transform.from_on(rows, ends))
        seen = {bad.writer: max(last, through)}
        if bad.table.log.replace([*bad.files, *late], old, seen=seen, schema=bad.schema):
            return
    raise busy(bad.table)


def _replace_latest(latest: _New) -> None:
    for _ in range(TRIES):
        through = max(latest.source.job.ledger.last_batch(), latest.last_batch())
        latest.catch_up(through)
        old, seen = latest.old_files(), {latest.writer: through}
        if latest.table.log.replace(latest.files, old, seen=seen, schema=latest.schema):
            return
    raise busy(latest.table)
