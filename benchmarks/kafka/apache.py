"""Apache Kafka, as it is published on Maven Central: fetched once, run as one node.

    ~/.cache/headrace/kafka/<version>/*.jar

It runs as its own start script runs it: KRaft with broker and controller in one
process, the collector and the heap that the script chooses.

Rejected: the release archive. It is several times as large, and only on mirrors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.kafka.brokers import HOST, Broker, Durability, free_port

VERSION = "4.3.1"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace" / "kafka"
DOWNLOAD_SECONDS = 600
JAVA_MAJOR_MIN = 17

VIRTUAL_MACHINE = (
    "-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)  # fmt: skip

PROJECT_FILE = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>benchmarks</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""

# Everything that is not said here is as Kafka has it. Copies: there is one node.
# Groups: as ours, which do not wait for more members; and the same heartbeat. Checks for
# what can be deleted and compacted come as often as ours do.
SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.consumer.heartbeat.interval.ms=500
group.consumer.min.heartbeat.interval.ms=500
log.retention.check.interval.ms=30000
"""


class NoKafka(Exception):
    """It cannot be had here; says why."""


class Kafka(Broker):
    name = "kafka"

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._jars = jars()

    def command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", str(self._settings)]

    @property
    def _settings(self) -> Path:
        return self.place / "server.properties"

    def prepare(self) -> None:
        self._settings.write_text(
            SETTINGS.format(
                host=HOST, port=self.port, controller=free_port(), data=self.place / "data"
            )
        )
        # Any cluster id will do; this is what an id looks like.
        subprocess.run(
            [
                *self._java(), "kafka.tools.StorageTool", "format",
                "--cluster-id", "aGVhZHJhY2UtYmVuY2gtMQ", "--config", str(self._settings),
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip

    def _java(self) -> list[str]:
        return ["java", *VIRTUAL_MACHINE, "-cp", f"{self._jars}/*"]

    def durability(self, durability: Durability) -> dict[str, str]:
        return {"flush.messages": "1"} if durability == "synced" else {}


def jars() -> Path:
    """The folder that holds them, filled from Maven if it is not there; NoKafka if
    that cannot be done."""
    _check_java()
    folder = CACHE / VERSION
    if folder.exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise NoKafka("mvn, which fetches Apache Kafka, is not installed")
    partial = folder.with_name(f"{VERSION}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        (partial / "pom.xml").write_text(PROJECT_FILE.format(version=VERSION))
        print(f"fetching Apache Kafka {VERSION}, about 45 MB, from Maven", file=sys.stderr)
        done = subprocess.run(
            [
                maven, "--batch-mode", "--file", partial / "pom.xml",
                "dependency:copy-dependencies", "-DincludeScope=runtime",
                f"-DoutputDirectory={partial}",
            ],
            # Maven's own lines are the progress.
            stdout=sys.stderr,
            check=False,
            timeout=DOWNLOAD_SECONDS,
        )  # fmt: skip
        if done.returncode:
            raise NoKafka(f"Apache Kafka {VERSION} cannot be fetched from Maven")
        partial.rename(folder)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoKafka(f"Apache Kafka {VERSION} cannot be fetched: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _check_java() -> None:
    if shutil.which("java") is None:
        raise NoKafka("java is not installed")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = said.partition('"')[2].partition('"')[0].split(".")[0]
    if not version.isdecimal() or int(version) < JAVA_MAJOR_MIN:
        raise NoKafka(f"Apache Kafka {VERSION} needs Java {JAVA_MAJOR_MIN}; here is {version}")
