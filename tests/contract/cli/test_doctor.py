"""`headrace doctor` finds what is really wrong, calls nothing wrong that is not, and
changes nothing."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.unit.engine.test_hostile_batches import nonsense, vast

import headrace
from headrace.cli import doctor as doctor_command
from headrace.cli import doctor_contents, doctor_files
from headrace.cli.main import cli
from headrace.core.values import Outgoing
from headrace.engine import contents as engine_contents
from headrace.engine.coordinator.transaction import Transaction
from headrace.inspect import read_catalog
from headrace.node import Node
from headrace.platform.clock import SystemClock

NOW_MS = SystemClock().now_ms()
HOUR_MS = 3_600_000
MB = 1024 * 1024


def invoke(*words: str) -> Result:
    result = CliRunner().invoke(cli, ["doctor", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def findings_in(result: Result) -> dict[str, list[dict[str, str]]]:
    checks = json.loads(result.stdout)["checks"]
    return {check["name"]: check["findings"] for check in checks if check["findings"]}


def snapshot(root: Path) -> dict[str, tuple[int, int, int, str]]:
    """Everything about every file that somebody could have changed."""
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        digest = hashlib.sha256(content).hexdigest()
        found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, digest)
    return found


@pytest.fixture(autouse=True)
def any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow or nearly full disk below the tests is no finding here."""
    monkeypatch.setattr(doctor_files, "SYNC_MS_MAX", 1e9)
    monkeypatch.setattr(doctor_files, "FREE_SHARE", 0.0)
    monkeypatch.setattr(doctor_files, "FLOOR_TIMES", 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which work was done and finished."""
    data = tmp_path_factory.mktemp("doctor") / "data"
    with headrace.open(data) as handle:
        handle.create_topic("orders", 2, segment_bytes=8192)
        for number in range(60):
            handle.publish("orders", bytes([number]) * 500)
        with handle.queue("orders", group="billing") as queue:
            while leased := queue.lease(20):
                queue.ack(leased)
        with handle.stream("orders", group="audit") as stream:
            while stream.poll(wait=0):
                stream.commit()
    return data


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(made, tmp_path / "data"))


Examine = Callable[..., dict[str, list[dict[str, str]]]]


@pytest.fixture
def examine(data: Path) -> Examine:
    def run(*words: str, code: int) -> dict[str, list[dict[str, str]]]:
        before = snapshot(data)
        result = invoke("--data", str(data), "--json", *words)
        assert snapshot(data) == before
        assert result.exit_code == code, result.stdout
        return findings_in(result)

    return run


def only(found: dict[str, list[dict[str, str]]], name: str, level: str) -> dict[str, str]:
    """The one finding, which has to be of this check."""
    assert list(found) == [name], found
    [finding] = found[name]
    assert finding["level"] == level
    assert all(finding[part] for part in ("about", "what", "why", "do"))
    return finding


def change(path: Path, position: int, flip: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= flip
    path.write_bytes(content)


def folder_of(data: Path, topic: str = "orders", partition: int = 0) -> Path:
    return data / read_catalog(str(data), NOW_MS).topics[topic].folder / str(partition)


# Sound.


def test_a_sound_directory_has_no_findings(examine: Examine) -> None:
    assert examine(code=0) == {}
    assert examine("--full", code=0) == {}


def test_the_report_names_every_check(data: Path) -> None:
    printed = invoke("--data", str(data)).stdout.splitlines()
    assert all(line.startswith("ok    ") for line in printed[:-2])
    assert printed[-1] == f"{len(printed) - 2} checks: all is well"
    names = [line[6:].split("  ")[0] for line in printed[:-2]]
    assert names[:7] == [
        "format", "lock", "binding", "permissions", "leftovers", "catalog", "segments",
    ]  # fmt: skip
    assert names[-4:] == ["lag", "waiting", "retention", "timestamps"]


def test_a_directory_that_is_not_there_is_said_as_ever(tmp_path: Path) -> None:
    assert invoke("--data", str(tmp_path / "absent")).exit_code == 1
    assert invoke("--server", "127.0.0.1:1", "--full").exit_code == 2


# Files.


def test_a_format_that_is_not_known(data: Path, examine: Examine) -> None:
    path = data / "headrace.json"
    path.write_text(re.sub(r'"format":\d+', '"format":99', path.read_text()))
    found = examine(code=2)
    [finding] = found["format"]
    assert "upgrade with" in finding["what"]
    assert "cannot be opened" in found["opening"][0]["what"]


def test_a_directory_of_another_machine(data: Path, examine: Examine) -> None:
    (data / "lock").write_text("pid 7 on elsewhere: headrace serve")
    assert "another machine" in only(examine(code=1), "lock", "warn")["what"]
    (data / "lock").unlink()
    (data / "lock").mkdir()
    assert only(examine(code=2), "lock", "bad")["what"] == "is no file"


def test_a_node_that_everybody_can_reach(data: Path, examine: Examine) -> None:
    with (data / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate()
        lock.write(f"pid {os.getpid()} on {platform.node()}: headrace serve --insecure")
        lock.flush()
        assert "--insecure" in only(examine(code=1), "binding", "warn")["what"]
    # Whoever wrote that has gone.
    assert examine(code=0) == {}


def test_files_that_cannot_be_used_or_can_by_everybody(data: Path, examine: Examine) -> None:
    path = folder_of(data) / "00000000000000000000.log"
    path.chmod(0o666)
    assert "every user" in only(examine(code=1), "permissions", "warn")["what"]
    path.chmod(0o400)
    finding = examine(code=2)["permissions"][0]
    assert finding["level"] == "bad" and finding["about"].endswith("0/00000000000000000000.log")


def test_files_of_another_user() -> None:
    entries = [
        doctor_files.Entry(".", 0o40755, 1000),
        doctor_files.Entry("lock", 0o100644, 1000),
        doctor_files.Entry("metadata", 0o40755, 0),
    ]
    _, found = doctor_files.check_permissions(entries)
    [finding] = found
    assert finding.about == "metadata" and "chown -R 1000" in finding.do


def test_what_a_crash_left_behind(data: Path, examine: Examine) -> None:
    (folder_of(data) / "start.tmp").write_bytes(b"")
    assert only(examine(code=1), "leftovers", "warn")["about"].endswith("start.tmp")
    (folder_of(data) / "00000000000000000000.cleaned").write_bytes(b"")
    assert "and 1 more" in only(examine(code=1), "leftovers", "warn")["about"]


def test_the_folder_of_no_topic(data: Path, examine: Examine) -> None:
    (data / "topics" / ("ab" * 16) / "0").mkdir(parents=True)
    finding = only(examine(code=1), "leftovers", "warn")
    assert (finding["about"], finding["what"]) == (
        "topics/" + "ab" * 16,
        "is the folder of no topic",
    )


def test_a_catalog_that_cannot_be_read(data: Path, examine: Examine) -> None:
    change(data / "metadata" / "00000000000000000000.log", 80)
    found = examine(code=2)
    assert found["catalog"][0]["about"] == "metadata" and found["opening"]
    assert found["segments"][0]["level"] == "bad"


def test_a_partition_whose_folder_is_gone(data: Path, examine: Examine) -> None:
    folder = folder_of(data, partition=1)
    shutil.rmtree(folder)
    found = examine(code=2)
    [finding] = found["catalog"]
    assert finding["about"] == str(folder.relative_to(data))


def segments_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


@pytest.mark.parametrize("whole_bytes", [0, 2**20])
def test_a_batch_that_has_rotted_is_found_by_a_quick_look_where_it_looks(
    data: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch, whole_bytes: int
) -> None:
    monkeypatch.setattr("headrace.inspect.WHOLE_BYTES", whole_bytes)
    _, second, *_ = segments_of(folder_of(data))
    change(second, 100)
    for words in ((), ("--full",)):
        found = examine(*words, code=2)
        [finding] = found["segments"]
        assert finding["about"].startswith(str(second.relative_to(data)) + " at byte 0")
        assert "headrace log verify orders" in finding["do"] and "lost" in finding["why"]


def test_rot_between_the_samples_is_found_by_reading_everything(
    data: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = segments_of(folder_of(data))
    size = first.stat().st_size
    change(first, size // 2)
    monkeypatch.setattr("headrace.inspect.WHOLE_BYTES", 0)
    monkeypatch.setattr("headrace.inspect.SAMPLES", 1)
    assert "segments" not in examine(code=0)
    assert examine("--full", code=2)["segments"][0]["level"] == "bad"


@pytest.mark.parametrize("whole_bytes", [0, 2**20])
def test_an_index_that_says_what_is_not_so(
    data: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch, whole_bytes: int
) -> None:
    monkeypatch.setattr("headrace.inspect.WHOLE_BYTES", whole_bytes)
    index = next(path for path in sorted(folder_of(data).glob("*.index")) if path.stat().st_size)
    change(index, 7)
    finding = only(examine(code=1), "segments", "warn")
    assert finding["about"].startswith(str(index.relative_to(data)))
    assert "nothing is lost" in finding["why"]


def test_a_disk_that_is_full_or_slow(
    data: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_files, "FREE_SHARE", 1.1)
    assert "publishing stops at" in only(examine(code=1), "disk", "warn")["what"]
    monkeypatch.setattr(doctor_files, "floor_bytes", lambda: 2**60)
    assert "has stopped" in only(examine(code=2), "disk", "bad")["what"]
    monkeypatch.undo()
    monkeypatch.setattr(doctor_files, "FREE_SHARE", 0.0)
    monkeypatch.setattr(doctor_files, "FLOOR_TIMES", 0)
    monkeypatch.setattr(doctor_files, "SYNC_MS_MAX", 0.0)
    # Not every disk has files without a name.
    if doctor_files._sync_times_ms(str(data)):
        assert "one sync takes" in only(examine(code=1), "syncs", "warn")["what"]


def test_few_files_and_little_memory_are_said() -> None:
    assert doctor_command.few_files(1024) == doctor_command.little_memory(512 * MB) == []
    assert "256 files" in doctor_command.few_files(256)[0].what
    assert "64.0 MB" in doctor_command.little_memory(64 * MB)[0].what


# Topics and groups.


@contextlib.contextmanager
def opened(data: Path) -> Iterator[Node]:
    node = Node.open(data)
    yield node
    node.close()


def test_dead_letters_that_wait(data: Path, examine: Examine) -> None:
    with headrace.open(data) as handle:
        handle.publish_many("orders", [b"bad"] * 3)
        with handle.queue("orders", group="billing") as queue:
            queue.reject(queue.lease(3))
    finding = only(examine(code=1), "dead letters", "warn")
    assert finding["about"] == "orders" and finding["what"].startswith("3 dead letters")


def test_a_transaction_that_nobody_ends(data: Path, examine: Examine) -> None:
    for age_ms, level in ((2 * 60_000, "warn"), (20 * 60_000, "bad")):
        with opened(data) as node:
            table, now_ms = node._broker.transactions, node.clock.now_ms()
            begun = table.init(f"billing-{level}", 15 * 60_000, None, now_ms - age_ms)
            assert isinstance(begun, Transaction)
            topic = node._broker.topics.named("orders")
            table.add(
                f"billing-{level}", begun.producer_id, begun.epoch, {(topic.id, 0)}, now_ms - age_ms
            )
    found = examine(code=2)
    assert list(found) == ["transactions"]
    assert [(each["about"], each["level"]) for each in found["transactions"]] == [
        ("billing-bad", "bad"),
        ("billing-warn", "warn"),
    ]


def test_a_cursor_behind_the_end_of_its_topic(data: Path, examine: Examine) -> None:
    with headrace.open(data) as handle:
        handle.create_topic("loose", 1, durability="os")
        handle.publish_many("loose", [b"value"] * 10)
        with handle.stream("loose", group="audit-loose") as stream:
            stream.poll(wait=0)
            stream.commit()
    # The disk lost what was never synced, and what says how much was.
    folder = folder_of(data, "loose")
    (folder / "00000000000000000000.log").write_bytes(b"")
    (folder / "synced").unlink()
    [finding] = examine(code=2)["cursors"]
    assert (finding["about"], finding["level"]) == ("audit-loose", "bad")
    assert "at 10 and the end is at 0" in finding["what"]


def test_a_message_that_has_waited_for_hours(data: Path, examine: Examine) -> None:
    with opened(data) as node:
        node.publish("orders", [Outgoing(b"old", timestamp_ms=NOW_MS - 3 * HOUR_MS)])
    found = examine(code=1)
    assert [each["about"] for each in found["waiting"]] == ["audit", "billing"]
    assert "has waited for 3h" in found["waiting"][0]["what"]


def test_a_topic_that_keeps_everything(data: Path, examine: Examine) -> None:
    with headrace.open(data) as handle:
        handle.alter_topic("orders", retention_ms=None)
    assert "keeps everything" in only(examine(code=1), "retention", "warn")["what"]
    with headrace.open(data) as handle:
        handle.alter_topic("orders", retention_bytes=10**9)
    assert examine(code=0) == {}


def test_a_record_from_the_future(data: Path, examine: Examine) -> None:
    with opened(data) as node:
        node.alter_topic("orders", {"timestamp_after_max_ms": None})
        node.publish("orders", [Outgoing(b"soon", timestamp_ms=NOW_MS + 48 * HOUR_MS, partition=1)])
    finding = only(examine(code=1), "timestamps", "warn")
    assert finding["about"] == "orders:1" and "offset 30 is from 20" in finding["what"]


def test_a_disk_that_is_read_only(
    data: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs

    def remounted(path: str) -> os.statvfs_result:
        found = list(real(path))
        found[8] |= os.ST_RDONLY
        return os.statvfs_result(found)

    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", remounted)
        finding = only(examine(code=2), "writing", "bad")
        assert "read-only" in finding["what"] and "remount,rw" in finding["do"]
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: False)
        assert "chown" in only(examine(code=1), "writing", "warn")["do"]
    assert examine(code=0) == {}


@pytest.mark.parametrize(
    ("bad", "why"), [(nonsense, "impossible"), (vast, "decompress to more than")]
)
def test_a_batch_that_nobody_can_open_is_named(
    examine: Examine,
    data: Path,
    bad: Callable[[], bytes],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        # As a version that did not look has stored it.
        patched.setattr(engine_contents, "may_hold_more", lambda *_: False)
        patched.setattr(engine_contents, "_check_records", lambda *_: True)
        with contextlib.closing(Node.open(data)) as node:
            node.create_topic("raw", partitions=2)
            node.publish("raw", [Outgoing(b"before", partition=1)])
            node.publish_batch("raw", 1, bytearray(bad()))
    for words in ([], ["--full"]):
        finding = only(examine(*words, code=1), "contents", "warn")
        assert finding["about"] == "raw:1"
        assert "offsets 1 to 3 cannot be opened" in finding["what"] and why in finding["what"]
        assert "publish it again" in finding["do"]


def test_of_a_large_log_the_first_batches_of_each_segment_are_opened(
    examine: Examine, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_contents, "WHOLE_BYTES", 0)
    monkeypatch.setattr(doctor_contents, "SAMPLE_BYTES", 1)
    monkeypatch.setattr(engine_contents, "_check_records", lambda *_: True)
    with contextlib.closing(Node.open(data)) as node:
        node.create_topic("raw", partitions=1, settings={"segment_bytes": 8192})
        node.publish("raw", [Outgoing(b"before")])
        node.publish_batch("raw", 0, bytearray(nonsense()))
        node.publish("raw", [Outgoing(bytes(9_000))])
        node.publish_batch("raw", 0, bytearray(nonsense()))
    finding = only(examine(code=1), "contents", "warn")
    assert "offsets 5 to 7" in finding["what"]
    assert len(examine("--full", code=1)["contents"]) == 2


def test_a_file_in_place_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused = invoke("--data", str(tmp_path / "file"))
    assert refused.exit_code == 1 and "is a file; name a directory" in refused.stderr
