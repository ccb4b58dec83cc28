"""Spark's own Kafka connector, from Maven Central: fetched once.

    ~/.cache/headrace/spark-sql-kafka/<version>/*.jar

The version that belongs to the installed Spark comes first. Where it cannot be had, the
newest that was seen to read, stream and write in Spark 4.3.0 takes its place: 4.2.0, by
its parts, since not every mirror has all that it names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace"
# The rest of what it names is in every Spark already.
NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
PARTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
PROJECT_FILE = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>benchmarks</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
      {exclusions}
    </dependency>
"""
ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class NoConnector(Exception):
    """It cannot be had here; says why."""


class Connector(NamedTuple):
    version: str
    jars: list[Path]


def connector(spark_version: str) -> Connector:
    whole = DEPENDENCY.format(
        group=PARTS[0][0], artifact=PARTS[0][1], version=spark_version, exclusions=""
    )
    parts = "".join(
        DEPENDENCY.format(group=group, artifact=artifact, version=version, exclusions=ALONE)
        for group, artifact, version in PARTS
    )
    try:
        return Connector(spark_version, _jars(spark_version, whole))
    except NoConnector as error:
        print(error, file=sys.stderr)
    return Connector(PARTS[0][2], _jars(PARTS[0][2], parts))


def _jars(version: str, dependencies: str) -> list[Path]:
    folder = CACHE / "spark-sql-kafka" / version
    if not folder.exists():
        _fetch(folder, version, dependencies)
    return sorted(path for path in folder.glob("*.jar") if path.name.startswith(NEEDED))


def _fetch(folder: Path, version: str, dependencies: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoConnector("mvn, which fetches Spark's Kafka connector, is not installed")
    partial = folder.with_name(f"{version}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        (partial / "pom.xml").write_text(PROJECT_FILE.format(dependencies=dependencies))
        print(f"fetching spark-sql-kafka-0-10 {version} from Maven", file=sys.stderr)
        done = subprocess.run(
            [
                maven, "--batch-mode", "--quiet", "--file", partial / "pom.xml",
                "dependency:copy-dependencies", "-DincludeScope=runtime",
                f"-DoutputDirectory={partial}",
            ],
            stdout=subprocess.DEVNULL, check=False, timeout=600,
        )  # fmt: skip
        if done.returncode:
            raise NoConnector(f"spark-sql-kafka-0-10 {version} cannot be fetched from Maven")
        partial.rename(folder)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoConnector(f"spark-sql-kafka-0-10 cannot be fetched: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
