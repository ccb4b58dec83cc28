"""The rollup's job: each batch goes through the tables in a fixed order.

    records -> partials            this batch's share of each open minute
               partials -> rollup_1m   minutes that the watermark has passed
               rollup_1m -> rollup_5m, rollup_1h
               late, bad           what no window takes, with the reason
               batches             the ledger: in = rolled + late + bad

The watermark is the greatest time seen less the delay; a batch works with the one
that the batch before left in the ledger, so a repeated batch decides as it did
before. Every step is skipped when its table has the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from headrace.core.errors import InvalidArgument
from headrace.core.settings import check_between
from headrace.pipelines.avro import AvroSchema, check_schema_ids, read_avro_schema
from headrace.pipelines.ledger import Done, Ledger, now
from headrace.pipelines.settings import StreamSettings, duration_ms, missing
from headrace.pipelines.table import LakeTable, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class RollupSettings(StreamSettings):
    encoding: Literal["json", "avro"] = "json"
    avro_schema: str = ""
    # Of values from clients of a schema registry: the ids of schemas that it reads.
    avro_schema_ids: tuple[int, ...] = ()
    # How long a window waits for what is late, in event time.
    watermark: str = "10m"
    # How far a metric's time may be ahead of the time it was published at.
    ahead_max: str = "10m"
    sketch_k: int = 512
    # A topic that closed windows are published to, besides the tables.
    publish_to: str = ""

    def __post_init__(self) -> None:
        StreamSettings.__post_init__(self)
        duration_ms("watermark", self.watermark)
        duration_ms("ahead_max", self.ahead_max)
        # Below 300 the promised rank error of 1% would not hold.
        check_between("sketch_k", self.sketch_k, 300, 65_535)

    def check(self) -> None:
        StreamSettings.check(self)
        if self.partition_by != "day":
            raise InvalidArgument(
                "partition_by is for the archive; a rollup's tables are partitioned by day"
            )
        check_schema_ids(self.avro_schema_ids, "encoding", self.encoding)
        if self.encoding == "avro" and not self.avro_schema:
            raise missing("avro_schema", "which file has the schema", "metric.avsc")
        if self.encoding == "json" and self.avro_schema:
            raise InvalidArgument(
                'avro_schema is given but encoding is "json"; say encoding = "avro" or remove it'
            )
        if self.publish_to == self.topic:
            raise InvalidArgument(
                "publish_to is the topic that is read; name another, or the rollup feeds itself"
            )
        if self.publish_to and not self.servers:
            raise InvalidArgument("publish_to needs a node; say where with servers = ...")


class Counts(NamedTuple):
    total: int
    rolled: int
    late: int
    bad: int
    latest_us: int | None
    # "topic/partition" to the offset behind the last record.
    ends: dict[str, int]


class RollupTables:
    def __init__(self, settings: StreamSettings) -> None:
        from headrace.pipelines.rollup import transform

        self.partials = _table(settings, "partials", transform.PARTIAL_SCHEMA, "window_start")
        self.rollups = {
            name: _table(settings, f"rollup_{name}", transform.ROLLUP_SCHEMA, "window_start")
            for name in transform.RESOLUTIONS
        }
        self.late = _table(settings, "late", transform.LATE_SCHEMA, "ts")
        self.bad = _table(settings, "bad", transform.BAD_SCHEMA, "timestamp")

    def lasting(self) -> list[LakeTable]:
        return [*self.rollups.values(), self.late, self.bad]


def _table(settings: StreamSettings, name: str, schema: str, time: str) -> LakeTable:
    return open_table(
        settings.table_path(name),
        settings.format,
        schema,
        partition_by=("date",),
        time=time,
        storage=settings.storage,
    )


class RollupJob:
    def __init__(self, settings: RollupSettings) -> None:
        self.settings = settings
        self.tables = RollupTables(settings)
        self.ledger = Ledger(settings.lake, settings.format, settings.instance, settings.storage)
        self._delay_us = duration_ms("watermark", settings.watermark) * 1_000
        self._avro = _avro_schema(settings)

    @property
    def before_ledger(self) -> Sequence[LakeTable]:
        return [self.tables.partials, *self.tables.lasting()]

    def take(self, records: DataFrame, batch: int, query: str) -> Done:
        started_at = now()
        last = self.ledger.last()
        before_us = last.watermark_us if last else None
        rows = self._classified(records, before_us).persist()
        try:
            counts = _count(rows)
            after_us = self._watermark_after(before_us, counts.latest_us)
            self._append(rows, batch, counts, before_us)
            if after_us is not None:
                closed = self._close(records.sparkSession, batch, before_us, after_us)
                self._publish(closed, batch, query)
        finally:
            rows.unpersist()
        if after_us is not None:
            # A closed minute's shares will not be asked for again.
            self.tables.partials.drop_before(after_us - MINUTE_US + 1)
        return Done(
            self.ledger.writer, batch, query, counts.total, counts.rolled, counts.late,
            counts.bad, after_us, (last.ends if last else {}) | counts.ends, started_at, now(),
        )  # fmt: skip

    def compact(self, spark: SparkSession) -> None:
        # Partials are left out: their files go away as their minutes are closed.
        for table in self.tables.lasting():
            table.compact(spark)

    def _classified(self, records: DataFrame, watermark_us: int | None) -> DataFrame:
        from headrace.pipelines.rollup import transform

        if self._avro is None:
            parsed = transform.parse_json(records)
        else:
            parsed = transform.parse_avro(records, self._avro)
        ahead_max_ms = duration_ms("ahead_max", self.settings.ahead_max)
        return transform.classify(
            transform.metrics(parsed, ahead_max_ms=ahead_max_ms), watermark_us
        )

    def _watermark_after(self, before_us: int | None, latest_us: int | None) -> int | None:
        if latest_us is None:
            return before_us
        reached = latest_us - self._delay_us
        return reached if before_us is None else max(before_us, reached)

    def _append(
        self, rows: DataFrame, batch: int, counts: Counts, watermark_us: int | None
    ) -> None:
        from headrace.pipelines.rollup import transform

        writer = self.ledger.writer
        if counts.rolled:
            rolled = rows.where("fate = 'rolled'")
            shares = transform.minutes(rolled, batch, sketch_k=self.settings.sketch_k)
            self.tables.partials.append(shares, writer, batch)
        if counts.late:
            self.tables.late.append(transform.late_rows(rows, watermark_us), writer, batch)
        if counts.bad:
            self.tables.bad.append(transform.bad_rows(rows), writer, batch)

    def _close(
        self, spark: SparkSession, batch: int, before_us: int | None, after_us: int
    ) -> dict[str, DataFrame]:
        """Write the windows that the watermark has passed; those, by resolution."""
        from headrace.pipelines.rollup import transform

        closed: dict[str, DataFrame] = {}
        source = self.tables.partials
        for name, seconds in transform.RESOLUTIONS.items():
            length_us = seconds * 1_000_000
            end_us = after_us - after_us % length_us
            # Where the last window that was closed ends: nothing new up to there.
            start_us = None if before_us is None else before_us - before_us % length_us
            if start_us is not None and start_us >= end_us:
                continue
            parts = source.read(spark, start_us, end_us)
            windows = transform.merge(
                parts,
                seconds,
                closed_after_us=start_us,
                closed_until_us=end_us,
                sketch_k=self.settings.sketch_k,
            )
            table = self.tables.rollups[name]
            table.append(windows.coalesce(1), self.ledger.writer, batch)
            if self.settings.publish_to:
                written = table.read(spark, start_us, end_us)
                closed[name] = transform.ended(written, start_us, end_us)
            # The minutes are closed; what is longer is made of them.
            source = self.tables.rollups["1m"]
        return closed

    def _publish(self, closed: dict[str, DataFrame], batch: int, query: str) -> None:
        """The closed windows as records, once: the sink knows the batch's number."""
        from headrace.pipelines.rollup import transform

        if not closed:
            return
        options = {
            "kafka.bootstrap.servers": self.settings.servers,
            "topic": self.settings.publish_to,
            "exactlyOnce": "true",
            # With a new checkpoint numbers of batches begin anew: it is another sink.
            "sinkId": f"{self.ledger.writer}-{query}",
            "batchId": str(batch),
        }
        # One task, so that a repeated batch is recognised whatever its plan.
        rows = transform.published(closed).coalesce(1)
        rows.write.format("headrace").mode("append").options(**options).save()


def _count(rows: DataFrame) -> Counts:
    from pyspark.sql import functions as F

    def fate(name: str) -> Any:
        return F.count(F.when(F.col("fate") == name, 1))

    found = (
        rows.groupBy("topic", "partition")
        .agg(
            F.count("*").alias("rows"),
            fate("rolled").alias("rolled"),
            fate("late").alias("late"),
            fate("bad").alias("bad"),
            F.max(F.when(F.col("fate") == "rolled", F.unix_micros("ts"))).alias("latest_us"),
            (F.max("offset") + 1).alias("end"),
        )
        .collect()
    )
    return Counts(
        sum(row.rows for row in found),
        sum(row.rolled for row in found),
        sum(row.late for row in found),
        sum(row.bad for row in found),
        max((row.latest_us for row in found if row.latest_us is not None), default=None),
        {f"{row.topic}/{row.partition}": row.end for row in found},
    )


def _avro_schema(settings: RollupSettings) -> AvroSchema | None:
    if settings.encoding != "avro":
        return None
    return read_avro_schema(settings.avro_schema, settings.avro_schema_ids)
