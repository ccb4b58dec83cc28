"""Reading what a rollup wrote, and proof that it counts every row.

in = rolled + late + bad              what the ledger says
rolled = rows in closed minutes + rows in open ones, and so on
                                      what the tables themselves hold
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.pipelines.ledger import Ledger
from headrace.pipelines.rollup.job import MINUTE_US, RollupTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipelines.settings import StreamSettings


class Reconciled(NamedTuple):
    """What came in by the ledger, and what the tables hold of it."""

    rows_in: int
    rows_rolled: int
    rows_closed: int
    rows_open: int
    rows_late: int
    rows_bad: int

    @property
    def adds_up(self) -> bool:
        found = self.rows_closed + self.rows_open + self.rows_late + self.rows_bad
        return self.rows_in == found and self.rows_rolled == self.rows_closed + self.rows_open


def reconcile(spark: SparkSession, settings: StreamSettings) -> Reconciled:
    """Count the tables anew and set them beside the ledger."""
    tables = RollupTables(settings)
    ledger = Ledger(settings.lake, settings.format, settings.instance, settings.storage)
    totals = ledger.totals()
    return Reconciled(
        totals.rows_in,
        totals.rows_out,
        _summed(tables.rollups["1m"].read(spark)),
        _summed(open_minutes(spark, settings)),
        tables.late.read(spark).count(),
        tables.bad.read(spark).count(),
    )


def open_minutes(spark: SparkSession, settings: StreamSettings) -> DataFrame:
    """The shares of minutes that the watermark has not passed yet."""
    from pyspark.sql import functions as F

    last = Ledger(settings.lake, settings.format, settings.instance, settings.storage).last()
    shares = RollupTables(settings).partials.read(spark)
    if last is None or last.watermark_us is None:
        return shares
    return shares.where(F.unix_micros("window_start") > last.watermark_us - MINUTE_US)


def _summed(frame: DataFrame) -> int:
    row = frame.selectExpr("coalesce(sum(count), 0)").first()
    return int(row[0]) if row else 0
