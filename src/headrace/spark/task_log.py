"""What a task read, as a line in the logs of Spark's Python workers.

    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    spark.tvf.python_worker_logs().where("logger = 'headrace.spark.reading'")

The numbers are in the column `context` too. Nothing is written where Spark does not keep
these logs.

Rejected: the query's progress. Spark asks a source that is written in Python for no numbers,
and takes no accumulators from it.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from headrace.client.kafka.fetching import FetchNumbers
from headrace.spark.splits import OffsetRange

# Spark's workers have it where their logs are kept.
_KEPT: Final = "PYSPARK_SPARK_SESSION_UUID"

logger = logging.getLogger("headrace.spark.reading")


def log_read(range: OffsetRange, rows: int, seconds: float, fetched: FetchNumbers) -> None:
    if _KEPT not in os.environ:
        return
    # A worker's loggers begin at warnings.
    logger.setLevel(logging.INFO)
    numbers = {
        "topic": range.topic,
        "partition": str(range.partition),
        "start": str(range.start),
        "end": str(range.end),
        "rows": str(rows),
        "bytes": str(fetched.bytes),
        "answers": str(fetched.answers),
        "retries": str(fetched.retries),
        "wait_ms": f"{fetched.wait_s * 1000:.0f}",
        "ms": f"{seconds * 1000:.0f}",
    }
    logger.info(
        "%s:%d from %d to %d: %d rows and %d bytes in %d answers, %.3f s of %.3f s waiting for "
        "them, %d retries",
        range.topic, range.partition, range.start, range.end, rows, fetched.bytes,
        fetched.answers, fetched.wait_s, seconds, fetched.retries,
        extra={"context": numbers},
    )  # fmt: skip
