"""Streams whose output mode is `update`, to a topic: batch by batch.

    counts.writeStream.outputMode("update").foreachBatch(
        topic_writer(servers="127.0.0.1:9092", topic="counts", exactlyOnce=True, sinkId="counts")
    )

Spark itself refuses `update` for every sink that is written in Python, before it asks
us ("does not support Update mode"); what foreachBatch is given, it does not judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.core.errors import InvalidOption
from headrace.spark.write_options import parse_write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def topic_writer(
    options: Mapping[str, object] | None = None, /, **more: object
) -> Callable[[DataFrame, int], None]:
    """What foreachBatch takes: writes each micro-batch as `format("headrace")` would.

    `options` are those of a writer, also by name where Python allows it. With
    `exactlyOnce` a batch that comes again is not written again; `sinkId` names the
    sink then, the same one in every run. InvalidOption for what makes no sense.
    """
    given = {name: _text(value) for name, value in {**(options or {}), **more}.items()}
    names = {name.lower(): name for name in given}
    if "batchid" in names:
        raise InvalidOption("option 'batchId' is given by foreachBatch; leave it out")
    # What has no effect is said when the first batch is written.
    is_once = parse_write_options(given, is_stream=True, is_quiet=True).exactly_once
    if is_once and "sinkid" not in names:
        raise InvalidOption(
            "option 'sinkId' is missing: with foreachBatch exactly-once needs a name for the "
            "sink; give it one, the same in every run"
        )

    def write(frame: DataFrame, batch: int) -> None:
        number = {"batchId": str(batch)} if is_once else {}
        frame.write.format("headrace").mode("append").options(**given, **number).save()

    return write


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
