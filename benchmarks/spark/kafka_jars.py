"""Spark's own Kafka connector, from Maven Central: fetched once.

    ~/.cache/headrace/spark-sql-kafka/<version>/*.jar

The version that belongs to the installed Spark comes first. Where it cannot be had, the
newest that was seen to read, stream and write in Spark 4.3.0 takes its place: 4.2.0, by
its parts, since not every mirror has all that it names.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks import maven

# The rest of what it names is in every Spark already.
NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
VERSION_SEEN = "4.2.0"
PARTS = (
    f"{CONNECTOR}:{VERSION_SEEN}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


class Connector(NamedTuple):
    version: str
    jars: list[Path]


def connector(spark_version: str) -> Connector:
    """NoJars if it cannot be had."""
    try:
        whole = [maven.artifact(f"{CONNECTOR}:{spark_version}")]
        return Connector(spark_version, _jars(spark_version, whole))
    except maven.NoJars as error:
        print(error, file=sys.stderr)
    parts = [maven.artifact(part, alone=True) for part in PARTS]
    return Connector(VERSION_SEEN, _jars(VERSION_SEEN, parts))


def _jars(version: str, dependencies: list[str]) -> list[Path]:
    folder = maven.CACHE / "spark-sql-kafka" / version
    maven.jars(folder, dependencies, f"spark-sql-kafka-0-10 {version}")
    return sorted(path for path in folder.glob("*.jar") if path.name.startswith(NEEDED))
