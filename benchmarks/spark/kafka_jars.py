"""Spark's own Kafka connector, from Maven Central: fetched once.

~/.cache/headrace/spark-sql-kafka/<version>/*.jar
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "4.3.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace"
# The rest of what it names is in every Spark already.
NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
PROJECT_FILE = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>benchmarks</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


class NoConnector(Exception):
    """It cannot be had here; says why."""


def jars() -> list[Path]:
    folder = CACHE / "spark-sql-kafka" / VERSION
    if not folder.exists():
        _fetch(folder)
    return sorted(path for path in folder.glob("*.jar") if path.name.startswith(NEEDED))


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoConnector("mvn, which fetches Spark's Kafka connector, is not installed")
    partial = folder.with_name(f"{VERSION}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        (partial / "pom.xml").write_text(PROJECT_FILE.format(version=VERSION))
        print(f"fetching spark-sql-kafka-0-10 {VERSION} from Maven", file=sys.stderr)
        done = subprocess.run(
            [
                maven, "--batch-mode", "--quiet", "--file", partial / "pom.xml",
                "dependency:copy-dependencies", "-DincludeScope=runtime",
                f"-DoutputDirectory={partial}",
            ],
            stdout=sys.stderr, check=False, timeout=600,
        )  # fmt: skip
        if done.returncode:
            raise NoConnector(f"spark-sql-kafka-0-10 {VERSION} cannot be fetched from Maven")
        partial.rename(folder)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoConnector(f"spark-sql-kafka-0-10 cannot be fetched: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
