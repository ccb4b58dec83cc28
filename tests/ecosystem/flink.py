"""Apache Flink with its connector for Kafka, from Maven Central, and a job of ours on it.

~/.cache/headrace/flink/<version>/*.jar
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from benchmarks import maven
from benchmarks.kafka.brokers import HOST, free_port
from tests.ecosystem.programs import DEADLINE_SECONDS, Program, rest, wait_until
from tests.ecosystem.tools import QUICK, SOURCES, compiled

VERSION = "2.2.1"
WANTED = (
    f"org.apache.flink:flink-clients:{VERSION}",
    f"org.apache.flink:flink-streaming-java:{VERSION}",
    f"org.apache.flink:flink-connector-base:{VERSION}",
    # The newest that goes with that Flink.
    "org.apache.flink:flink-connector-kafka:5.0.0-2.2",
    # Writes what they log; of the version that they use.
    "org.slf4j:slf4j-simple:1.7.36",
)
OPTIONS = (
    "-Xmx512m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    # Each commit would be a warning that a metric of it has its name twice.
    "-Dorg.slf4j.simpleLogger.log.org.apache.flink.metrics=error",
    # As Flink's own scripts have it.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)


class Counter(Program):
    """A run of java/flink/FlinkCounter.java, which says what it does."""

    def __init__(
        self, bootstrap: str, naming: str, place: Path, checkpoint_ms: int, start: str = ""
    ) -> None:
        """`start` is the checkpoint or savepoint to go on from."""
        self._place = place
        self._url = f"http://{HOST}:{(port := free_port())}"
        classes = compiled(SOURCES / "flink", jars())
        arguments = (bootstrap, str(port), naming, str(checkpoint_ms), str(place), start)
        super().__init__(
            [
                "java", *QUICK, *OPTIONS, "-cp", os.pathsep.join((str(classes), f"{jars()}/*")),
                "FlinkCounter", *filter(None, arguments),
            ],
            place / "flink.log",
        )  # fmt: skip

    def make_savepoint(self) -> str:
        """Where it is; the job goes on."""
        before = newest(self._place, "savepoints")
        self._ask("savepoints", {"target-directory": f"{self._place}/savepoints"})
        wait_until(lambda: newest(self._place, "savepoints") != before, self)
        return newest(self._place, "savepoints")

    def stop(self) -> str:
        """End the job; where its last savepoint is."""
        assert self._process is not None
        self._ask("stop", {"targetDirectory": f"{self._place}/savepoints", "drain": False})
        assert self._process.wait(DEADLINE_SECONDS) == 0, self.tail()
        self._process = None
        return newest(self._place, "savepoints")

    def _ask(self, what: str, body: dict[str, object]) -> None:
        [job] = rest("GET", f"{self._url}/jobs")["jobs"]
        rest("POST", f"{self._url}/jobs/{job['id']}/{what}", body)


def newest(place: Path, kind: str) -> str:
    """The newest complete one of all runs, of "checkpoints" or "savepoints"; "" if there is
    none. The metadata of one are written last."""
    found = sorted(place.glob(f"{kind}/**/_metadata"), key=lambda path: path.stat().st_mtime_ns)
    return f"file://{found[-1].parent}" if found else ""


@cache
def jars() -> Path:
    """The folder with Flink; NoJars if it cannot be had."""
    maven.check_java()
    wanted = [maven.artifact(name) for name in WANTED]
    return maven.jars(maven.CACHE / "flink" / VERSION, wanted, f"Flink {VERSION}, about 85 MB,")
