"""On a real cluster, a master and two workers: the rollup, and rows that flow from a
topic to a topic and to a table, each once, whatever fails on the way."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import NodeProcess
from tests.pipelines.conftest import NOON_MS, metric
from tests.pipelines.object_store import object_store
from tests.spark.conftest import Topic
from tests.spark.daemons import Cluster, spark_home, standalone
from tests.spark.flowing import archive_settings
from tests.spark.session import CLUSTER_SETTINGS, SETTINGS, environment
from tests.spark.test_batch_read import numbers
from tests.spark.test_write import values

from headrace.client.kafka.cluster import LATEST, READ_UNCOMMITTED, KafkaCluster
from headrace.client.kafka.producing import KafkaProducer
from headrace.pipelines import __main__ as submitted
from headrace.pipelines.archive.job import raw_table
from headrace.pipelines.status import status_of
from headrace.pipelines.table import LakeTable

PROJECT = Path(__file__).parent.parent.parent
RUN_SECONDS = 600
ROWS_PER_FAULT = 1_000
# Without `make spark-soak`: as many as it takes to lose an executor, a driver and a node.
FAULTS_IN_SHORT = 3
IS_LONG = "HEADRACE_SPARK_FAULTS" in os.environ

# As heavy as a session of its own each; they do not run beside it.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster"), 2) as started:
        yield started


def test_a_cluster_rolls_up_what_spark_submit_hands_in_and_publishes_it(
    cluster: Cluster, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic.publish([metric("cpu", NOON_MS + n * 60_000, float(n)) for n in range(40)] + [b"bad"])
    windows = Topic(topic.node, f"{topic.name}-windows")
    windows.create(1)
    settings = {
        "pipeline": "rollup",
        "servers": topic.node.bootstrap,
        "topic": topic.name,
        "lake": str(tmp_path / "lake"),
        "trigger": "once",
        "publish_to": windows.name,
        # Spark waits ten seconds for a Python that starts, which can be too few where
        # much else runs.
        "retries": 20,
    }
    config = tmp_path / "rollup.toml"
    config.write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items()))
    assert submitted.main(["--where"]) == 0
    program = capsys.readouterr().out.strip()
    chosen = SETTINGS | CLUSTER_SETTINGS | {"spark.log.level": "ERROR"}
    run = subprocess.run(
        [
            spark_home() / "bin" / "spark-submit", "--master", cluster.master,
            *(part for name, value in chosen.items() for part in ("--conf", f"{name}={value}")),
            program, "rollup", "--config", str(config),
        ],
        env={**os.environ, **environment(), "SPARK_HOME": str(spark_home())},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3_000:]
    assert "41 rows in = 40 rolled + 0 late + 1 bad" in run.stdout + run.stderr
    found = status_of(settings)
    assert (found.rows_in, found.rows_out, found.rows_bad, found.lag) == (41, 40, 1, 0)
    # The watermark is at 29 minutes: 29 minutes and 5 times 5 are closed.
    assert len(windows.consume(29 + 5)) == 34
    assert cluster.has_used_every_worker()


class Flow:
    """The driver, as a process that can be killed with everything that it started."""

    def __init__(
        self, cluster: Cluster, node: NodeProcess, folder: Path, lake: dict[str, Any]
    ) -> None:
        (folder / "lake.json").write_text(json.dumps(lake))
        self.node = node
        self.cluster = cluster
        self.folder = folder
        self.source, self.target = Topic(node, "source"), Topic(node, "target")
        self.source.create(2)
        self.target.create(3)
        self._command = [
            sys.executable, "-m", "tests.spark.flowing", node.bootstrap, self.source.name,
            self.target.name, str(folder), cluster.master,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "driver.log"

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=PROJECT,
                env={**os.environ, **environment()},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self._process

    def kill(self) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._process = None

    def waits(self, seconds: float) -> None:
        """A moment; a driver that a fault has ended is started again, as whoever runs
        one would."""
        if self._process is None:
            self._start()
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        self.kill()

    def wait_until_it_moves(self) -> None:
        """Until both the topic and the table got something new."""
        topic_end, table_files = self._topic_end(), self._table_files()
        for _ in range(RUN_SECONDS * 20):
            if self._topic_end() > topic_end and self._table_files() != table_files:
                return
            self.waits(0.05)
        raise AssertionError(f"nothing flows any more: {self.log.read_text()[-3_000:]}")

    def _topic_end(self) -> int:
        """Behind the last record, committed or not: to see a task at work."""
        with KafkaCluster([self.node.bootstrap]) as cluster:
            topic = cluster.topics([self.target.name])[self.target.name]
            wanted = dict.fromkeys(((topic.name, index) for index in topic.partitions), LATEST)
            return sum(each.offset for each in cluster.offsets(wanted, READ_UNCOMMITTED).values())

    @property
    def table(self) -> LakeTable:
        settings = archive_settings(self.node.bootstrap, self.source.name, self.folder, "once")
        return raw_table(settings)

    def _table_files(self) -> set[str]:
        return {file.path for file in self.table.files()}

    def finish(self) -> None:
        """To the end; a run that a fault broke is begun again."""
        (self.folder / "enough").touch()
        for _ in range(5):
            process = self._process or self._start()
            if process.wait(RUN_SECONDS) == 0:
                self._process = None
                return
            self.kill()
        raise AssertionError(f"it does not come to its end: {self.log.read_text()[-3_000:]}")


# The faults. Each strikes at whatever moment it is.


def kill_executor(flow: Flow, chance: random.Random) -> None:
    _kill_one(flow, chance, flow.cluster.executors)


def kill_task(flow: Flow, chance: random.Random) -> None:
    """The Python of a task dies, and the task fails."""
    _kill_one(flow, chance, flow.cluster.python_workers)


def _kill_one(flow: Flow, chance: random.Random, find: Callable[[], list[int]]) -> None:
    for _ in range(RUN_SECONDS * 20):
        try:
            os.kill(chance.choice(find()), signal.SIGKILL)
            return
        except (IndexError, ProcessLookupError):
            # Nobody is there at the moment, or not any more.
            flow.waits(0.05)
    raise AssertionError("there is nobody to kill")


def restart_node(flow: Flow, chance: random.Random) -> None:
    flow.node.restart(kill=True)


def kill_driver(flow: Flow, chance: random.Random) -> None:
    flow.kill()


def fail_commit(flow: Flow, chance: random.Random) -> None:
    """Of the table, before or after it is done; of the tasks' transactions, because
    somebody else takes their ids."""
    (flow.folder / "fail-commit").write_text(chance.choice(["before", "after"]))
    query = json.loads((flow.folder / "copy" / "metadata").read_text())["id"]
    with KafkaCluster([flow.node.bootstrap]) as cluster:
        for task in (0, 1):
            thief = KafkaProducer(cluster, transactional_id=f"{query}-{task}")
            thief.begin()
            thief.close()


FAULTS: tuple[Callable[[Flow, random.Random], None], ...] = (
    kill_executor,
    kill_driver,
    restart_node,
    fail_commit,
    kill_task,
)


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Settings of a lake in a folder, and of one in a bucket."""
    with object_store() as s3:
        yield {
            "folder": {"lake": str(tmp_path / "lake")},
            "bucket": {"lake": f"s3://{s3.new_bucket()}/lake", "storage": s3.options},
        }


@pytest.mark.spark_soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("where", ["folder", "bucket"] if IS_LONG else ["bucket"])
def test_rows_flow_once_to_a_topic_and_a_table_whatever_fails(
    cluster: Cluster, tmp_path: Path, lakes: dict[str, dict[str, Any]], where: str
) -> None:
    faults = int(os.environ.get("HEADRACE_SPARK_FAULTS", FAULTS_IN_SHORT))
    chance = random.Random(faults)
    node = NodeProcess(tmp_path / "data")
    flow = Flow(cluster, node, tmp_path, lakes[where])
    published = 0
    try:
        for number in range(faults):
            flow.source.publish(numbers(published, published + ROWS_PER_FAULT))
            published += ROWS_PER_FAULT
            flow.wait_until_it_moves()
            flow.waits(chance.random())
            FAULTS[number % len(FAULTS)](flow, chance)
        flow.finish()
        assert values(flow.target.consume(published)) == numbers(0, published)
        assert sorted(row["value"] for row in flow.table.rows()) == numbers(0, published)
    finally:
        flow.kill()
        node.stop()
