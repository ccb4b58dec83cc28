"""The archive's job: raw first, then typed and bad, then the ledger.

The ledger's row says where each partition of the topic ends in the lake. That is
the seam at which a reader goes over from the lake to the live topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive import transform
from headrace.pipelines.avro import read_avro_schema
from headrace.pipelines.ledger import Done, Ledger, now
from headrace.pipelines.settings import StreamSettings, missing
from headrace.pipelines.table import Appended, LakeTable, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class ArchiveSettings(StreamSettings):
    # With another format than raw, a typed table is written besides the raw one.
    value_format: Literal["raw", "json", "avro"] = "raw"
    # The columns of the typed table, in Spark's words.
    value_schema: str = ""
    # The file that says how Avro values are written.
    avro_schema: str = ""

    def check(self) -> None:
        StreamSettings.check(self)
        if self.value_format == "raw":
            if self.value_schema or self.avro_schema:
                key = "value_schema" if self.value_schema else "avro_schema"
                raise InvalidArgument(
                    f'{key} is given but value_format is "raw"; say which format it is, '
                    'as in: value_format = "json"'
                )
            return
        if not self.value_schema:
            raise missing("value_schema", "which columns to make", "id BIGINT, total DOUBLE")
        if self.value_format == "avro" and not self.avro_schema:
            raise missing("avro_schema", "which file has the schema", "order.avsc")
        if self.value_format == "json" and self.avro_schema:
            raise InvalidArgument(
                'avro_schema is given but value_format is "json"; say "avro", or remove it'
            )


class ArchiveJob:
    def __init__(self, settings: ArchiveSettings) -> None:
        self.settings = settings
        self.raw = raw_table(settings)
        self.ledger = Ledger(settings.lake, settings.format, settings.instance, settings.storage)
        self._avro = read_avro_schema(settings.avro_schema) if settings.avro_schema else None
        self._typed: LakeTable | None = None
        self._bad: LakeTable | None = None

    def take(self, records: DataFrame, batch: int, query: str) -> Done:
        started_at = now()
        last = self.ledger.last()
        is_typed = self.settings.value_format != "raw"
        if is_typed:
            decoded = transform.decode(records, self.settings.value_schema, self._avro)
            records = decoded.persist()
        try:
            raw = self.raw.append(transform.raw_rows(records, batch), self.ledger.writer, batch)
            if raw.skipped:
                raw = _count(records)
            bad = self._take_typed(records, batch) if is_typed else 0
        finally:
            if is_typed:
                records.unpersist()
        ends = dict(last.ends) if last else {}
        ends |= raw.ends
        return Done(
            self.ledger.writer, batch, query, raw.rows, raw.rows, 0, bad, None, ends,
            started_at, now(),
        )  # fmt: skip

    def _take_typed(self, records: DataFrame, batch: int) -> int:
        """How many rows were bad."""
        typed, bad = self._tables(records.schema)
        typed.append(transform.typed_rows(records), self.ledger.writer, batch)
        bad_rows = transform.bad_rows(records)
        done = bad.append(bad_rows, self.ledger.writer, batch)
        return bad_rows.count() if done.skipped else done.rows

    def _tables(self, schema: StructType) -> tuple[LakeTable, LakeTable]:
        if self._typed is None or self._bad is None:
            self._typed = open_table(
                self.settings.table_path("typed"),
                self.settings.format,
                transform.typed_schema(schema),
                partition_by=("_date",),
                time="_timestamp",
                storage=self.settings.storage,
            )
            self._bad = open_table(
                self.settings.table_path("bad"),
                self.settings.format,
                transform.BAD_SCHEMA,
                partition_by=("date",),
                time="timestamp",
                storage=self.settings.storage,
            )
        return self._typed, self._bad

    def compact(self, spark: SparkSession) -> None:
        for table in (self.raw, self._typed, self._bad):
            if table is not None:
                table.compact(spark)


def raw_table(settings: StreamSettings) -> LakeTable:
    return open_table(
        settings.table_path("raw"),
        settings.format,
        transform.RAW_SCHEMA,
        partition_by=("date",),
        time="timestamp",
        storage=settings.storage,
    )


def _count(records: DataFrame) -> Appended:
    """What an append would have said, when an earlier attempt did it."""
    from pyspark.sql import functions as F

    found = (
        records.groupBy("topic", "partition")
        .agg(F.count("*").alias("rows"), (F.max("offset") + 1).alias("end"))
        .collect()
    )
    ends = {f"{row.topic}/{row.partition}": row.end for row in found}
    return Appended(sum(row.rows for row in found), 0, True, ends)
