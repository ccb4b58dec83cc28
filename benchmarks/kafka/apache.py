"""Apache Kafka, as it is published on Maven Central: fetched once, run as one node.

    ~/.cache/headrace/kafka/<version>/*.jar

It runs as its own start script runs it: KRaft with broker and controller in one
process, the collector and the heap that the script chooses.

Rejected: the release archive. It is several times as large, and only on mirrors.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks import maven
from benchmarks.kafka.brokers import HOST, Broker, Durability, free_port

VERSION = "4.3.1"
CACHE = maven.CACHE / "kafka"

VIRTUAL_MACHINE = (
    "-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)  # fmt: skip

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


class Kafka(Broker):
    name = "kafka"
    settings = SETTINGS

    def __init__(self, place: Path, folder: Path | None = None) -> None:
        """`folder` has its jars; None is where they are fetched to."""
        super().__init__(place)
        self._jars = folder or jars()

    def command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", str(self._settings)]

    @property
    def _settings(self) -> Path:
        return self.place / "server.properties"

    def prepare(self) -> None:
        self._settings.write_text(
            self.settings.format(
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
    """The folder that holds them, filled from Maven if it is not there; NoJars if
    that cannot be done."""
    maven.check_java()
    wanted = [maven.artifact(f"org.apache.kafka:kafka_2.13:{VERSION}")]
    return maven.jars(CACHE / VERSION, wanted, f"Apache Kafka {VERSION}, about 45 MB,")
