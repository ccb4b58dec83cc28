"""Workers of Kafka Connect in distributed mode, exactly once, and their connectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.kafka.brokers import free_port
from tests.ecosystem.programs import Program, rest, wait_until
from tests.ecosystem.tools import java

# By default a worker looks for a new one for five minutes before its tasks go elsewhere.
SETTINGS = """\
bootstrap.servers={bootstrap}
group.id=connect
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
config.storage.topic=connect-configs
config.storage.replication.factor=1
status.storage.topic=connect-status
status.storage.replication.factor=1
exactly.once.source.support=enabled
offset.flush.interval.ms=500
scheduled.rebalance.max.delay.ms=1000
session.timeout.ms=6000
heartbeat.interval.ms=500
plugin.discovery=only_scan
"""


class Worker(Program):
    def __init__(self, bootstrap: str, place: Path, number: int = 0, more: str = "") -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        settings = place / f"worker-{number}.properties"
        settings.write_text(SETTINGS.format(bootstrap=bootstrap, port=port) + more)
        name = "org.apache.kafka.connect.cli.ConnectDistributed"
        super().__init__([*java(), name, str(settings)], place / f"worker-{number}.log")


def is_running(url: str, connector: str) -> bool:
    status = rest("GET", f"{url}/connectors/{connector}/status")
    states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
    return len(states) > 1 and set(states) == {"RUNNING"}


def add(worker: Worker, name: str, **config: Any) -> None:
    """Make a connector, or change it; dots of its settings are written as underscores."""
    given = {key.replace("_", "."): str(value) for key, value in config.items()}
    # While the workers share out what there is they refuse changes.
    wait_until(lambda: bool(rest("PUT", f"{worker.url}/connectors/{name}/config", given)), worker)
    wait_until(lambda: is_running(worker.url, name), worker)
