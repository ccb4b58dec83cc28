"""The archive's job: raw first, then typed and bad, then the ledger.

The ledger's row says where each partition of the topic ends in the lake. That is
the seam at which a reader goes over from the lake to the live topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.core.errors import InvalidArgument, InvalidOption
from headrace.core.values import check_name
from headrace.pipelines.archive import transform
from headrace.pipelines.archive.changes import RECORD_KEY, decode_events, with_row_keys
from headrace.pipelines.archive.latest import check_keys, find_changes, latest_table, upsert
from headrace.pipelines.avro import check_schema_ids, read_avro_schema
from headrace.pipelines.evolving import check_table, evolve_table
from headrace.pipelines.ledger import Done, Ledger, now, writers_of
from headrace.pipelines.schema import schema_of
from headrace.pipelines.settings import StreamSettings, missing
from headrace.pipelines.table import Appended, LakeTable, open_table
from headrace.spark.pattern.topics import topic_pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class ArchiveSettings(StreamSettings):
    # Several topics in one archive, by name or by a regular expression for whole names.
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    # With another format than raw, a typed table is written besides the raw one.
    value_format: Literal["raw", "json", "avro"] = "raw"
    # The columns of the typed table, in Spark's words.
    value_schema: str = ""
    # The file that says how Avro values are written.
    avro_schema: str = ""
    # Of values from clients of a schema registry: the ids of schemas that it reads.
    avro_schema_ids: tuple[int, ...] = ()
    # What values are besides rows: "debezium" are change events with before and after.
    changes: Literal["", "debezium"] = ""
    # A table `latest` with the last row of each key; a null value deletes.
    upsert: bool = False
    # The columns that name a row; the record's key unless given.
    key_columns: tuple[str, ...] = ()

    def check_topic(self) -> None:
        ways = ("topic", "topics", "topic_pattern")
        given = [name for name in ways if getattr(self, name)]
        if len(given) > 1:
            raise InvalidArgument(
                f"{' and '.join(given)} are both given; keep the one that says what to archive"
            )
        if not self.is_of_many:
            return StreamSettings.check_topic(self)
        for topic in self.topics:
            check_name("topic", topic)
        if self.topic_pattern:
            try:
                topic_pattern(self.topic_pattern)
            except InvalidOption as error:
                raise InvalidArgument(f"topic_pattern: {error}") from None
        if not self.name:
            raise missing("name", "which archive this is, since several topics say none", "shop")
        return None

    @property
    def is_of_many(self) -> bool:
        return bool(self.topics or self.topic_pattern)

    @property
    def subscription(self) -> dict[str, str]:
        if self.topic_pattern:
            return {"subscribePattern": self.topic_pattern}
        return {"subscribe": ",".join(self.topics or (self.topic,))}

    def check(self) -> None:
        StreamSettings.check(self)
        self.check_partition_by(transform.RAW_SCHEMA, self.value_schema)
        check_schema_ids(self.avro_schema_ids, "value_format", self.value_format)
        if self.value_format == "raw":
            needing = ("value_schema", "avro_schema", "changes", "upsert", "key_columns")
            for key in (name for name in needing if getattr(self, name)):
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
        if self.key_columns and not self.upsert:
            raise InvalidArgument(
                "key_columns is given but upsert is false; say upsert = true for a table with the "
                "last row of each key, or remove it"
            )


class ArchiveJob:
    def __init__(self, settings: ArchiveSettings) -> None:
        self.settings = settings
        self.raw = raw_table(settings)
        self.ledger = Ledger(settings.lake, settings.format, settings.instance, settings.storage)
        self._avro = (
            read_avro_schema(settings.avro_schema, settings.avro_schema_ids)
            if settings.avro_schema
            else None
        )
        self._typed: LakeTable | None = None
        self._bad: LakeTable | None = None
        self._latest: LakeTable | None = None

    @property
    def before_ledger(self) -> Sequence[LakeTable]:
        return [self.raw]

    @property
    def is_typed(self) -> bool:
        return self.settings.value_format != "raw"

    def prepare(self, spark: SparkSession) -> list[str]:
        """Fit the typed table to the settings; what was changed. InvalidArgument when
        it cannot be, before anything is written."""
        if not self.is_typed or self._typed is not None:
            return []
        schema = self.typed_schema(spark)
        typed, latest = typed_table(self.settings, schema), self.latest_table(schema)
        bad = bad_table(self.settings)
        tables = [typed] if latest is None else [typed, latest]
        for table in (self.raw, bad):
            table.check_partitioning()
        for table in tables:
            # Nothing is changed when one of them cannot be.
            check_table(table)
        others = writers_of(self.settings.lake, self.settings.format, self.settings.storage)
        writers = {self.ledger.writer, *others}
        if latest is not None:
            check_keys(latest)
            self._check_whole(latest)
            self._check_alone(latest, sorted(writers - {self.ledger.writer}))
        told = []
        for table in tables:
            changes = evolve_table(table, spark, writers=sorted(writers)).told()
            told += [f"{table.location}: {change}" for change in changes]
        self._typed, self._bad, self._latest = typed, bad, latest
        return told

    def _check_whole(self, latest: LakeTable) -> None:
        last = latest.last_batch(self.ledger.writer)
        if (-1 if last is None else last) < self.ledger.last_batch():
            raise InvalidArgument(
                f"what was archived without upsert = true is not in {latest.location}; make it "
                "with: headrace pipeline rebuild, then run the archive again"
            )

    def _check_alone(self, latest: LakeTable, others: list[str]) -> None:
        if "_topic" in self.keys:
            return
        for other in others:
            if latest.last_batch(other) is not None:
                raise InvalidArgument(
                    f"{latest.location} is kept by {other!r}, and rows of two archives with the "
                    "same key would be one; write to another lake, or archive both topics with "
                    "one archive (topics = ...)"
                )

    def latest_table(self, typed: StructType) -> LakeTable | None:
        if not self.settings.upsert:
            return None
        for name in self.settings.key_columns:
            if name not in typed.names:
                raise InvalidArgument(
                    f"key_columns has {name!r}, which value_schema has not; add it there"
                )
        return latest_table(self.settings, typed, self.keys)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that name a row in `latest`."""
        # The same key in two topics is two rows.
        topic = ("_topic",) if self.settings.is_of_many else ()
        return (*topic, *(self.settings.key_columns or RECORD_KEY))

    def typed_schema(self, spark: SparkSession) -> StructType:
        """The columns of `typed` as the settings have them."""
        transform.check_not_required(self.settings.value_schema)
        transform.check_can_be_stored(self.settings.value_schema)
        decoded = self._decode_values(transform.no_records(spark))
        return transform.typed_schema(decoded.schema)

    def decode(self, records: DataFrame) -> DataFrame:
        decoded = self._decode_values(records)
        decoded = transform.no_folder_is_bad(decoded, [self.settings.partition_by])
        if self.settings.upsert:
            return with_row_keys(decoded, self.settings.key_columns)
        # Change events of a compacted topic come with tombstones.
        return decoded if self.settings.changes else transform.null_is_bad(decoded)

    def _decode_values(self, records: DataFrame) -> DataFrame:
        if self.settings.changes:
            return decode_events(records, self.settings.value_schema, self._avro)
        return transform.decode(records, self.settings.value_schema, self._avro)

    def take(self, records: DataFrame, batch: int, query: str) -> Done:
        started_at = now()
        self.prepare(records.sparkSession)
        last = self.ledger.last()
        if self.is_typed:
            records = self.decode(records).persist()
        try:
            raw = self.raw.append(transform.raw_rows(records, batch), self.ledger.writer, batch)
            if raw.skipped:
                raw = _count(records)
            bad = 0
            if self.is_typed:
                bad = self._take_typed(records, batch)
                self._take_latest(records, batch)
        finally:
            if self.is_typed:
                records.unpersist()
        ends = dict(last.ends) if last else {}
        ends |= raw.ends
        return Done(
            self.ledger.writer, batch, query, raw.rows, raw.rows, 0, bad, None, ends,
            started_at, now(),
        )  # fmt: skip

    def _take_typed(self, records: DataFrame, batch: int) -> int:
        """How many rows were bad."""
        assert self._typed is not None and self._bad is not None
        taken = self._typed.append(transform.typed_rows(records), self.ledger.writer, batch)
        if taken.skipped and not self._bad.has(self.ledger.writer, batch):
            # An attempt before this one, perhaps with other settings, has decided.
            low_us = transform.low_us(records)
            typed = self._typed.read(records.sparkSession, low_us)
            records = transform.bad_unless_typed(records, typed)
        bad_rows = transform.bad_rows(records)
        done = self._bad.append(bad_rows, self.ledger.writer, batch)
        return bad_rows.count() if done.skipped else done.rows

    def _take_latest(self, records: DataFrame, batch: int) -> None:
        if self._latest is None or self._latest.has(self.ledger.writer, batch):
            return
        changes = find_changes(records, self.keys)
        try:
            upsert(self._latest, changes, self.ledger.writer, batch)
        finally:
            changes.last.unpersist()

    def compact(self, spark: SparkSession) -> None:
        for table in (self.raw, self._typed, self._bad, self._latest):
            if table is not None:
                table.compact(spark)


def raw_table(settings: StreamSettings) -> LakeTable:
    return open_table(
        settings.table_path("raw"),
        settings.format,
        transform.RAW_SCHEMA,
        partition_by=_partition_by(settings, "date", schema_of(transform.RAW_SCHEMA)),
        time="timestamp",
        storage=settings.storage,
    )


def typed_table(settings: StreamSettings, schema: StructType) -> LakeTable:
    return open_table(
        settings.table_path("typed"),
        settings.format,
        schema,
        partition_by=_partition_by(settings, "_date", schema),
        time="_timestamp",
        storage=settings.storage,
    )


def bad_table(settings: StreamSettings) -> LakeTable:
    return open_table(
        settings.table_path("bad"),
        settings.format,
        transform.BAD_SCHEMA,
        partition_by=_partition_by(settings, "date", schema_of(transform.BAD_SCHEMA)),
        time="timestamp",
        storage=settings.storage,
    )


def _partition_by(settings: StreamSettings, day: str, schema: StructType) -> tuple[str, ...]:
    return settings.partition_columns(day, schema.fieldNames())


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
