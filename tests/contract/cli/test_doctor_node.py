"""`headrace doctor` of a node, and of a machine that does not give it enough."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.contract.cli.conftest import PROGRAM
from tests.contract.cli.test_doctor import (
    HOUR_MS,
    MB,
    NOW_MS,
    any_machine,
    findings_in,
    invoke,
    made,
    only,
)
from tests.contract.loop_node import LoopNode
from tests.interop.conftest import NodeProcess
from tests.unit.engine.test_hostile_batches import nonsense

import headrace
from headrace.cli import doctor as doctor_command
from headrace.cli.doctor import check_node_contents
from headrace.cli.doctor_state import check_future, check_lag
from headrace.client.connecting import open_backend
from headrace.client.kafka.cluster import KafkaCluster
from headrace.client.kafka.offsets import commit_offsets
from headrace.core.overview_values import NodeFigures
from headrace.core.values import SPARK_PROGRESS, Outgoing, PartitionInfo, PlacedBatch, TopicInfo
from headrace.engine import contents as engine_contents
from headrace.node import Node
from headrace.platform.clock import SystemClock
from headrace.testing import ManualClock, MemoryDisk

__all__ = ["any_machine", "made"]


@pytest.fixture(scope="module")
def node(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    data = tmp_path_factory.mktemp("doctor-node") / "data"
    shutil.copytree(made, data)
    process = NodeProcess(data)
    yield process
    process.stop()


def test_a_sound_node_has_no_findings(node: NodeProcess) -> None:
    result = invoke("--server", node.bootstrap, "--json")
    assert (result.exit_code, findings_in(result)) == (0, {}), result.stdout
    names = [check["name"] for check in json.loads(result.stdout)["checks"]]
    assert names[:7] == ["node", "clock", "binding", "disk", "syncs", "open files", "memory"]
    # The directory that it serves is sound as well, and is said to be open.
    beside = invoke("--data", str(node.data))
    assert beside.exit_code == 0
    assert f"open for writing by pid {node.process.pid}" in beside.stdout


def test_batches_that_the_node_could_not_open_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # As a version that did not look has stored them.
    monkeypatch.setattr(engine_contents, "_check_records", lambda *_: True)
    node = LoopNode(MemoryDisk(), SystemClock())
    try:
        with closing(open_backend(str(node.address))) as backend:
            backend.create_topic("raw", partitions=1)
            answered = threading.Event()
            backend.begin_batches(
                [PlacedBatch("raw", 0, bytearray(nonsense()))], lambda _: answered.set()
            )
            assert answered.wait(60)
            assert check_node_contents(backend)[1] == []
            assert backend.read("raw", 0, 0) == ([], 3)
            [finding] = check_node_contents(backend)[1]
            assert finding.about == "raw:0"
            assert "offsets 0 to 2 cannot be opened" in finding.what
            # What is not there any more is nothing to see to.
            backend.delete_records("raw", 0, 3)
            assert check_node_contents(backend)[1] == []
    finally:
        node.close()


def test_what_is_published_meanwhile_is_not_from_the_future(tmp_path: Path) -> None:
    class Busy(Node):
        """Somebody publishes between every two questions."""

        def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
            found = super().offset_at(topic, partition, at_ms)
            self.publish(topic, [Outgoing(b"x", partition=partition)])
            return found

    node = Busy.open(tmp_path / "data")
    now_ms = SystemClock().now_ms()
    try:
        node.create_topic("orders", partitions=1, settings={"timestamp_after_max_ms": None})
        node.publish("orders", [Outgoing(b"x")])
        assert check_future(node, node.topics(), now_ms)[1] == []
        node.publish("orders", [Outgoing(b"x", timestamp_ms=now_ms + 2 * HOUR_MS)])
        [finding] = check_future(node, node.topics(), now_ms)[1]
        assert "offset 2 is from" in finding.what
    finally:
        node.close()


def test_a_query_on_spark_is_no_group_that_nobody_reads(node: NodeProcess) -> None:
    with headrace.connect(node.bootstrap) as handle:
        handle.create_topic("read-by-spark", 1)
        handle.publish_many("read-by-spark", [b"value"] * 5)
        with KafkaCluster((node.bootstrap,), timeout_ms=30_000) as cluster:
            commit_offsets(cluster, "rollup", {("read-by-spark", 0): 2}, metadata=SPARK_PROGRESS)
        assert "lag" not in findings_in(invoke("--server", node.bootstrap, "--json"))
        handle.delete_topic("read-by-spark")


def test_a_group_of_a_node_that_was_read_a_moment_ago_is_no_finding(node: NodeProcess) -> None:
    with headrace.connect(node.bootstrap) as handle:
        handle.create_topic("left", 1)
        handle.queue("left", group="nobody").close()
        handle.publish_many("left", [b"value"] * 5)
        result = invoke("--server", node.bootstrap, "--json")
        assert (result.exit_code, findings_in(result)) == (0, {}), result.stdout
        handle.delete_group("nobody")
        handle.delete_topic("left")


def test_a_group_that_nobody_reads_is_a_finding() -> None:
    clock = ManualClock(autoskip=False)
    node = Node.open(":memory:", disk=MemoryDisk(), clock=clock)
    node.create_topic("left", partitions=1)
    node.open_queue("nobody", ["left"], "me")
    node.leave("nobody", "me")
    node.publish("left", [Outgoing(b"value")] * 5)
    found = []
    for seconds in (59, 1):
        clock.skip(seconds)
        overview = node.overview()
        found.append(check_lag(overview, overview, knows_members=True)[1])
    node.close()
    assert found[0] == []
    [finding] = found[1]
    assert finding.about == "nobody" and finding.what.startswith("5 messages behind")


def test_a_node_that_does_not_answer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        result = invoke("--server", f"127.0.0.1:{free.getsockname()[1]}", "--json")
    assert result.exit_code == 2
    assert "no node answers" in findings_in(result)["node"][0]["what"]


def test_a_node_with_open_doors(made: Path, tmp_path: Path) -> None:
    data = shutil.copytree(made, tmp_path / "data")
    process = NodeProcess(Path(data), "--insecure", "--kafka", "0.0.0.0:0")
    try:
        port = process.bootstrap.rpartition(":")[2]
        result = invoke("--server", f"127.0.0.1:{port}", "--json")
        finding = only(findings_in(result), "binding", "warn")
        assert finding["about"] == f"kafka 0.0.0.0:{port}"
        assert findings_in(invoke("--data", str(data), "--json"))["binding"]
    finally:
        process.stop()


def figures(**fields: Any) -> NodeFigures:
    made = NodeFigures(
        "0.1.0", 0, "/data", NOW_MS, NOW_MS, 1.0, 100 * MB, 4000 * MB, 50_000 * MB, 100_000 * MB,
        1.5, 64 * MB, 40, 4096, 2, {"kafka": "127.0.0.1:9092"},
    )  # fmt: skip
    return made._replace(**fields)


@pytest.mark.parametrize(
    ("check", "fields", "words"),
    [
        (doctor_command.check_version, {"version": "9.9"}, "the node is 9.9"),
        (lambda each: doctor_command.check_clock(each, NOW_MS + 60_000), {}, "is 1m from"),
        (doctor_command.check_doors, {"doors": {"http": "[::]:9080"}}, "other machines"),
        (doctor_command.check_node_disk, {"disk_free_bytes": MB}, "publishing has stopped"),
        (doctor_command.check_node_syncs, {"sync_ms": 2e9}, "one sync takes"),
        (doctor_command.check_node_files, {"open_files": 4000}, "4,000 of 4,096"),
        (doctor_command.check_node_files, {"open_files_max": 64}, "may open 64"),
        (doctor_command.check_node_memory, {"memory_bytes": 3900 * MB}, "of 3.9 GB"),
    ],
)
def test_what_a_node_says_of_itself(check: Any, fields: dict[str, Any], words: str) -> None:
    _, found = check(figures(**fields))
    assert words in next(iter(found)).what
    if check is not doctor_command.check_version and fields:
        assert list(check(figures())[1]) == []


def test_a_partition_that_has_stopped_is_said() -> None:
    from headrace.cli.doctor_state import check_stopped
    from headrace.core.overview_values import Overview, TopicTotals

    topics = (TopicTotals("orders", 3, 1, 1, 1, 0, 0, 1, 0, 0),)
    _, found = check_stopped(Overview(NOW_MS, topics, (), (), 0))
    [finding] = found
    assert finding.level == "bad" and "headrace log verify orders" in finding.do


def test_retention_is_not_asked_of_a_topic_with_one_segment() -> None:
    from headrace.cli.doctor_state import check_retention

    assert check_retention([TopicInfo("orders", "00", (), {"retention_ms": None})])[1] == []


def test_a_topic_without_cleanup_grows_whatever_its_retention_is() -> None:
    from headrace.cli.doctor_state import check_retention

    grown = (PartitionInfo(0, 0, 9, 9, 2 * MB, 2, 9),)
    kept = {"cleanup": None, "retention_ms": 1_000}
    [finding] = check_retention([TopicInfo("orders", "00", grown, kept)])[1]
    assert finding.do == "headrace topic alter orders --set cleanup=delete"


# What the machine gives.


def examined(
    *words: str, settings: dict[str, str] | None = None, before: Callable[[], None] | None = None
) -> Any:
    """The report of a doctor in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, "doctor", *words, "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(settings or {})},
        preexec_fn=before,
        stdout=subprocess.PIPE,
        check=False,
    )
    checks = json.loads(result.stdout)["checks"]
    return result.returncode, {each["name"]: each["findings"] for each in checks}


def test_a_disk_below_the_floor_is_broken_and_so_is_publishing(made: Path, tmp_path: Path) -> None:
    """The floor is a setting, so that no disk has to be filled for it."""
    data = shutil.copytree(made, tmp_path / "data")
    floor = {"HEADRACE_FREE_BYTES_MIN": str(2**60)}
    code, found = examined("--data", str(data), settings=floor)
    assert code == 2 and "publishing has stopped at" in found["disk"][0]["what"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_FREE_BYTES_MIN", str(2**60))
        process = NodeProcess(Path(data))
    try:
        with headrace.connect(process.bootstrap) as handle, pytest.raises(headrace.DiskFull):
            handle.publish("orders", b"no room")
        code, found = examined("--server", process.bootstrap)
        assert code == 2 and "publishing has stopped at" in found["disk"][0]["what"]
    finally:
        process.stop()


def test_a_limit_of_open_files_that_is_too_low(made: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    _, found = examined("--data", str(made), before=few)
    assert "may open 256 files" in found["open files"][0]["what"]
