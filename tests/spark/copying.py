"""A driver of its own: copies a topic to another, exactly once, and ends.

    python -m tests.spark.copying SERVERS SOURCE TARGET CHECKPOINT ROWS [MASTER]

Whoever tests it kills it; started again it goes on from its checkpoint. The last
argument says where tasks run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.session import start_session


def main() -> None:
    servers, source, target, checkpoint, rows, *master = sys.argv[1:]
    folder = Path(checkpoint).parent / "driver"
    folder.mkdir(exist_ok=True)
    spark = start_session(folder, *master)
    frame = (
        spark.readStream.format("headrace")
        .option("servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows)
        .option("progressGroup", "copying")
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("headrace")
        .option("servers", servers)
        .option("topic", target)
        .option("exactlyOnce", "true")
        .option("kafka.batch.size", "4000")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("copied", flush=True)


if __name__ == "__main__":
    main()
