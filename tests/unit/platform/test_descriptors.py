"""More handles than open files: what is given up, and what may not be lost by it."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core import limits
from headrace.core.ports import File
from headrace.platform import descriptors as module
from headrace.platform import disk as real
from headrace.platform.descriptors import Descriptors, limit_for
from headrace.platform.disk import RealDisk

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="counts open files where Linux lists them"
)


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Descriptors:
    ring = Descriptors(8)
    monkeypatch.setattr(real, "DESCRIPTORS", ring)
    return ring


@pytest.fixture
def disk(ring: Descriptors, tmp_path: Path) -> RealDisk:
    return RealDisk(tmp_path)


def open_in(folder: Path) -> list[str]:
    """Names of the files of a folder that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            path = Path(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue
        if path.parent == folder:
            found.append(path.name)
    return found


def make(disk: RealDisk, count: int) -> list[File]:
    """Files that were written and synced."""
    files = [disk.open(f"{number}", create=True) for number in range(count)]
    for number, file in enumerate(files):
        file.write(b"%d" % number, 0)
        file.sync()
    return files


def test_more_files_are_held_than_are_open(disk: RealDisk, tmp_path: Path) -> None:
    files = make(disk, 100)
    assert len(open_in(tmp_path)) <= 8
    assert [file.read(10, 0) for file in files] == [b"%d" % number for number in range(100)]
    assert len(open_in(tmp_path)) <= 8


def test_a_file_in_use_stays_open(disk: RealDisk, tmp_path: Path) -> None:
    files = make(disk, 8)
    for number in range(8, 40):
        assert files[3].read(1, 0) == b"3"
        disk.open(f"{number}", create=True)
    assert "3" in open_in(tmp_path)


def test_closed_files_are_forgotten(disk: RealDisk, ring: Descriptors, tmp_path: Path) -> None:
    for file in make(disk, 50):
        file.close()
        file.close()
    assert open_in(tmp_path) == []
    assert ring.open_count == 0
    assert not ring.below(str(tmp_path))


def test_unsynced_writes_are_synced_before_their_file_is_given_up(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(module, "sync_descriptor", synced.append)
    files = [disk.open(f"{number}", create=True) for number in range(30)]
    assert not synced
    for file in files:
        file.write(b"x", 0)
    # Two beyond the limit may stay open before anybody has to wait for the disk.
    assert len(synced) == 20
    for file in files:
        assert file.read(1, 0) == b"x"


def test_clean_files_are_given_up_before_dirty_ones(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = make(disk, 5)
    dirty = disk.open("dirty", create=True)
    dirty.write(b"x", 0)
    monkeypatch.setattr(module, "sync_descriptor", lambda number: pytest.fail("synced"))
    for _ in range(5):
        for number in range(20, 40):
            disk.open(f"{number}", create=True).close()
        assert [file.read(1, 0) for file in clean]


def test_a_failed_sync_is_told_to_who_asks_later_and_ever_after(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = disk.open("lost", create=True)
    lost.write(b"x", 0)

    def fail(number: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    with monkeypatch.context() as broken:
        broken.setattr(module, "sync_descriptor", fail)
        for number in range(30):
            disk.open(f"{number}", create=True).write(b"y", 0)
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is broken"):
            lost.sync()


def test_a_sync_that_failed_once_fails_again(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("a", create=True)
    file.write(b"x", 0)

    def fail(number: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    with monkeypatch.context() as broken:
        broken.setattr(real, "sync_descriptor", fail)
        with pytest.raises(OSError, match="broken"):
            file.sync()
    with pytest.raises(OSError, match="broken"):
        file.sync()


def test_notes_are_given_up_without_a_sync(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sync_descriptor", lambda number: pytest.fail("synced"))
    notes = [disk.open(f"{number}", create=True, note=True) for number in range(40)]
    for note in notes:
        note.write(b"x", 0)
    assert all(note.read(1, 0) == b"x" for note in notes)


@pytest.mark.parametrize("how", ["remove", "remove_tree", "rename", "replace"])
def test_a_file_that_was_given_up_is_readable_after_its_name_is_gone(
    disk: RealDisk, tmp_path: Path, how: str
) -> None:
    disk.make_directory("folder")
    held = disk.open("folder/held", create=True)
    held.write(b"held", 0)
    held.sync()
    make(disk, 30)
    assert not open_in(tmp_path / "folder")
    if how == "remove":
        disk.remove("folder/held")
    elif how == "remove_tree":
        disk.remove_tree("folder")
    elif how == "rename":
        disk.rename("folder/held", "elsewhere")
    else:
        disk.open("other", create=True).write(b"other", 0)
        disk.rename("other", "folder/held")
    make(disk, 30)
    assert held.read(10, 0) == b"held"
    held.write(b"still", 0)
    held.sync()
    assert held.read(10, 0) == b"still"
    held.close()
    assert not open_in(tmp_path / "folder")


def test_another_file_in_the_place_of_one_is_never_read(disk: RealDisk, tmp_path: Path) -> None:
    held = make(disk, 30)[0]
    # As another process would do it: past this disk.
    (tmp_path / "new").write_bytes(b"new")
    os.replace(tmp_path / "new", tmp_path / "0")
    with pytest.raises(OSError, match="another process") as raised:
        held.read(10, 0)
    assert raised.value.errno == errno.ESTALE


def test_the_system_saying_stop_makes_room(disk: RealDisk, ring: Descriptors) -> None:
    ring.limit = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))
    try:
        files = make(disk, 200)
        disk.sync_directory("")
        assert all(file.read(10, 0) == b"%d" % number for number, file in enumerate(files))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_limit_follows_the_system_s() -> None:
    assert limit_for(1_024) == 512
    assert limit_for(10) == limits.OPEN_FILES_MIN
    assert limit_for(10**9) == limits.OPEN_FILES_MAX


@pytest.fixture
def hasty() -> Iterator[None]:
    import sys

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00001)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_threads_never_meet_another_file_s_bytes(disk: RealDisk, ring: Descriptors) -> None:
    ring.limit = 2
    files = make(disk, 12)
    wrong: list[object] = []

    def work(first: int) -> None:
        for turn in range(150):
            number = (first + turn * 5) % len(files)
            try:
                if turn % 10 == 9:
                    files[number].write(b"%d" % number, 0)
                    files[number].sync()
                found = files[number].read(10, 0)
            except OSError as error:
                wrong.append(error)
                return
            if found != b"%d" % number:
                wrong.append((number, found))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
