"""The ledger: one row for each batch that is done, written last.

    batch  rows_in  rows_out  rows_late  rows_bad  watermark_us  ends  ...

Tables are committed one after the other, so a crash leaves some with a batch and
some without. The ledger is committed when all have it: what it says is done is
done everywhere, and the state that the next batch begins with is the one that
the last row holds. That makes a repeated batch come out as it did the first time.

A ledger belongs to one checkpoint. Batch numbers begin anew with a new one, and
would look like batches that are in already; so another checkpoint is refused. The
ledger's log knows the query before the first batch is in any table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.core.errors import InvalidArgument
from headrace.pipelines.table import LakeTable, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "batches"
_SCHEMA = (
    "writer string, batch long, query string, rows_in long, rows_out long, rows_late long, "
    "rows_bad long, watermark_us long, ends string, started_at timestamp, done_at timestamp"
)


class Done(NamedTuple):
    """One batch that is in all tables."""

    writer: str
    batch: int
    query: str
    rows_in: int
    rows_out: int
    rows_late: int
    rows_bad: int
    # Event time up to which windows are closed, where there are windows.
    watermark_us: int | None
    # "topic/partition" to the offset behind the last row, over all batches.
    ends: dict[str, int]
    started_at: datetime
    done_at: datetime

    @property
    def seconds(self) -> float:
        return (self.done_at - self.started_at).total_seconds()


class Totals(NamedTuple):
    """Sums over all batches."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rows_late: int = 0
    rows_bad: int = 0


class Ledger:
    def __init__(
        self,
        lake: str,
        format: str,
        writer: str,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        location = f"{lake.rstrip('/')}/{TABLE}"
        self.writer = writer
        self._table: LakeTable = open_table(
            location, format, _SCHEMA, partition_by=(), time="done_at", storage=storage
        )
        self._last: Done | None = None
        self._loaded = False

    def last(self) -> Done | None:
        if not self._loaded:
            self._last = self._done(self.last_batch())
            self._loaded = True
        return self._last

    def has(self, batch: int) -> bool:
        return self._table.has(self.writer, batch)

    def last_batch(self) -> int:
        """As of now, also when another process goes on; -1 before the first."""
        last = self._table.last_batch(self.writer)
        return -1 if last is None else last

    def _done(self, batch: int) -> Done | None:
        """Each row has the ends of all partitions, so no other one is read."""
        if batch < 0:
            return None
        found = self._table.record_batches(bounds=[{"batch": (batch, batch + 1)}])
        for row in (row for rows in found for row in rows.to_pylist()):
            if row["writer"] == self.writer:
                return Done(**(row | {"ends": json.loads(row["ends"])}))
        return None

    def totals(self) -> Totals:
        import pyarrow.compute as pc

        total = Totals()
        counted = Totals._fields[1:]
        for rows in self._table.record_batches(("writer", *counted)):
            mine = rows.filter(pc.equal(rows["writer"], self.writer))
            more = (pc.sum(mine[name], min_count=0).as_py() for name in counted)
            pairs = zip(total, (mine.num_rows, *more), strict=True)
            total = Totals(*(before + after for before, after in pairs))
        return total

    def times(self, spark: SparkSession) -> DataFrame:
        """When each batch was done, as a DataFrame: `batch` and `done_at`."""
        rows = self._table.read(spark, columns=("writer", "batch", "done_at"))
        return rows.where(rows["writer"] == self.writer).drop("writer")

    def check_query(self, query: str, checkpoint: str, tables: Sequence[LakeTable] = ()) -> None:
        """InvalidArgument when the tables were written from another checkpoint. Before the
        ledger has a batch, `tables` may have one, of a process that was killed between."""
        last = self.last()
        if last is not None:
            is_another = last.query != query
        else:
            is_begun = any(table.last_batch(self.writer) is not None for table in tables)
            is_another = is_begun and not self._knows(query)
        if is_another:
            raise InvalidArgument(
                f"the tables were written with another checkpoint than {checkpoint!r}, whose "
                "batches cannot be told from those that are in; name the old one with "
                "checkpoint = ..., or write to another lake"
            )

    def begin(self, query: str) -> None:
        """Note the query before its first batch is in any table."""
        if self.last() is None and not self._knows(query):
            self._table.create()
            self._table.log.commit((), (), transaction=(self._name_of(query), 0), data_change=True)

    def _knows(self, query: str) -> bool:
        return self._table.last_batch(self._name_of(query)) is not None

    def _name_of(self, query: str) -> str:
        return f"{self.writer} from {query}"

    def write(self, done: Done) -> None:
        row: dict[str, Any] = done._asdict() | {"ends": json.dumps(done.ends, sort_keys=True)}
        self._table.append_rows([row], self.writer, done.batch)
        self._last = done

    def compact(self, spark: SparkSession) -> None:
        self._table.compact(spark)


def now() -> datetime:
    return datetime.now(UTC)


def writers_of(lake: str, format: str, storage: Mapping[str, str] | None = None) -> list[str]:
    """Which pipelines have written to the lake."""
    ledger = Ledger(lake, format, "", storage)
    found: set[str] = set()
    for rows in ledger._table.record_batches(("writer",)):
        found.update(rows["writer"].unique().to_pylist())
    return sorted(found)


def check_written(
    lake: str, format: str, writer: str, storage: Mapping[str, str] | None = None
) -> None:
    """InvalidArgument when the writer has no batch there: a wrong name would look like
    a lake in which nothing is missing."""
    there = writers_of(lake, format, storage)
    if writer not in there:
        raise InvalidArgument(
            f"lake {lake!r} has nothing of the archive {writer!r}"
            + (f", only of {', '.join(map(repr, there))}" if there else "")
            + "; run the archive first, or correct lake = ... or archive = ..."
        )
