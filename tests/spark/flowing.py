"""A driver of its own: one topic flows to another topic and to a Delta table.

    python -m tests.spark.flowing SERVERS SOURCE TARGET FOLDER MASTER

        source ──┬── format("headrace"), exactlyOnce ──> target
                 └── the archive's job ────────────────> a lake, as FOLDER/lake.json says

Whoever tests it kills it; started again it goes on from its checkpoints. It flows
until there is a file FOLDER/enough, then takes what is left and ends. A file
FOLDER/fail-commit makes the next commit to a table fail, before it is done or after,
as the file says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.session import start_session

from headrace.pipelines.archive.job import ArchiveJob, ArchiveSettings
from headrace.pipelines.running import follow, read_stream
from headrace.pipelines.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_PER_BATCH = 500


def archive_settings(servers: str, source: str, folder: Path, trigger: str) -> ArchiveSettings:
    """The lake is where FOLDER/lake.json says."""
    return ArchiveSettings.from_mapping(
        {
            "pipeline": "archive",
            "servers": servers,
            "topic": source,
            "checkpoint": str(folder / "archive"),
            **json.loads((folder / "lake.json").read_text()),
            "trigger": trigger,
            "rows_per_batch_max": ROWS_PER_BATCH,
            "compact_every": 6,
        }
    )


def start_copy(
    spark: SparkSession, servers: str, source: str, target: str, folder: Path, *, is_last: bool
) -> StreamingQuery:
    frame = (
        spark.readStream.format("headrace")
        .option("servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
        .option("progressGroup", "copying")
        .load()
    )
    writer = (
        frame.select("key", "value")
        .writeStream.format("headrace")
        .option("servers", servers)
        .option("topic", target)
        .option("exactlyOnce", "true")
        .option("kafka.batch.size", "2000")
        .option("checkpointLocation", str(folder / "copy"))
    )
    if is_last:
        return writer.trigger(availableNow=True).start()
    return writer.start()


def fail_commits_when_told(told: Path) -> None:
    real = LakeTable._commit

    def commit(self: LakeTable, *arguments: Any) -> Any:
        when = told.read_text() if told.exists() else ""
        told.unlink(missing_ok=True)
        if when == "before":
            raise ConnectionAbortedError("the commit fails, as it was told to")
        done = real(self, *arguments)
        if when == "after":
            raise ConnectionAbortedError("the commit is done, and nobody learns of it")
        return done

    LakeTable._commit = commit  # type: ignore[method-assign, assignment]


def main() -> None:
    servers, source, target, place, master = sys.argv[1:]
    folder = Path(place)
    scratch = folder / "driver"
    scratch.mkdir(exist_ok=True)
    spark = start_session(scratch, master)
    fail_commits_when_told(folder / "fail-commit")
    enough = folder / "enough"
    for is_last in (False, True):
        copy = start_copy(spark, servers, source, target, folder, is_last=is_last)
        settings = archive_settings(servers, source, folder, "once" if is_last else "100ms")
        follow(
            read_stream(spark, settings),
            ArchiveJob(settings),
            settings,
            stopped=lambda copy=copy, is_last=is_last: (  # type: ignore[misc]
                not is_last and (enough.exists() or not copy.isActive)
            ),
        )
        if not is_last and copy.isActive:
            copy.stop()
        # Raises what ended it, if anything did.
        copy.awaitTermination()
    print("flowed", flush=True)


if __name__ == "__main__":
    main()
