"""One contract for every disk: the real one, the one in memory, the one with faults."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.errors import InUse
from headrace.core.ports import Disk
from headrace.platform import disk as real
from headrace.platform.descriptors import Descriptors
from headrace.platform.disk import RealDisk
from headrace.platform.holder import find_holder
from headrace.platform.memory_disk import MemoryDisk
from headrace.platform.window import WINDOW_BYTES_MIN
from headrace.testing.fault_disk import FaultDisk


@pytest.fixture(params=["real", "crowded", "seeking", "memory", "fault"])
def disk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Disk]:
    if request.param == "memory":
        yield MemoryDisk()
    elif request.param == "fault":
        yield FaultDisk()
    else:
        if request.param == "seeking":
            # The file that Windows gets, on whatever system this is.
            monkeypatch.setattr(real, "RealFile", real.WindowsFile)
        if request.param == "crowded":
            # Only one file may be open, so that each is opened again and again.
            monkeypatch.setattr(real, "DESCRIPTORS", Descriptors(1))
        yield RealDisk(tmp_path)


def test_what_was_written_is_read_back(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(b"hello", 0)
    file.write(memoryview(b"world"), 5)
    assert file.read(100, 0) == b"helloworld"
    assert file.read(3, 4) == b"owo"
    assert file.size() == 10


def test_a_read_behind_the_end_is_empty(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(b"hello", 0)
    assert file.read(10, 5) == b""
    assert file.read(10, 50) == b""


@pytest.mark.parametrize("size", [10, WINDOW_BYTES_MIN, 3 * WINDOW_BYTES_MIN + 7])
def test_a_view_shows_what_a_read_reads_and_outlives_the_file(disk: Disk, size: int) -> None:
    file = disk.open("a", create=True)
    content = bytes(number % 251 for number in range(size))
    file.write(content, 0)
    views = [file.view(size, 0), file.view(size, 5), file.view(2 * size, size // 2)]
    file.write(b"more", size)
    disk.remove("a")
    file.close()
    assert [bytes(view) for view in views] == [content, content[5:], content[size // 2 :]]
    assert bytes(disk.open("b", create=True).view(size, 0)) == b""


def test_what_was_just_written_is_read_without_waiting(disk: Disk) -> None:
    file = disk.open("a", create=True)
    content = b"x" * (2 * WINDOW_BYTES_MIN)
    file.write(content, 0)
    with disk.without_waiting():
        assert file.read(100, 5) == content[5:105]
        assert file.read(100, len(content) - 5) == b"x" * 5
        assert file.view(len(content), 0) == content
    assert file.read(100, len(content)) == b""


def test_a_write_behind_the_end_leaves_zeros_between(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(b"x", 3)
    assert file.read(10, 0) == b"\0\0\0x"


def test_a_write_inside_overwrites_and_keeps_the_rest(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(b"0123456789", 0)
    file.write(bytearray(b"xx"), 4)
    assert file.read(10, 0) == b"0123xx6789"


def test_parts_are_written_as_if_joined(disk: Disk) -> None:
    file = disk.open("a", create=True)
    parts = [b"%04d" % number for number in range(3000)]
    file.write_parts(parts, 2)
    assert file.read(20_000, 2) == b"".join(parts)
    file.write_parts([], 0)
    assert file.size() == 12_002


def test_truncate_cuts_and_extends_with_zeros(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(b"0123456789", 0)
    file.truncate(4)
    assert file.read(10, 0) == b"0123"
    file.truncate(6)
    assert file.read(10, 0) == b"0123\0\0"


def test_reserving_space_does_not_change_the_size(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(b"abc", 0)
    file.reserve(1 << 20)
    assert file.size() == 3
    assert file.read(10, 0) == b"abc"
    file.sync()


def test_two_handles_see_the_same_bytes(disk: Disk) -> None:
    writer = disk.open("a", create=True)
    reader = disk.open("a", read_only=True)
    writer.write(b"now", 0)
    assert reader.read(3, 0) == b"now"


def test_a_read_only_handle_refuses_to_write(disk: Disk) -> None:
    disk.open("a", create=True).close()
    file = disk.open("a", read_only=True)
    with pytest.raises(OSError):
        file.write(b"x", 0)
    with pytest.raises(OSError):
        file.truncate(0)


def test_a_closed_handle_refuses_everything_and_closes_again(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.close()
    file.close()
    for call in (file.size, file.sync, lambda: file.read(1, 0), lambda: file.write(b"x", 0)):
        with pytest.raises(OSError):
            call()


def test_opening_what_does_not_exist_raises(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("nothing")
    with pytest.raises(FileNotFoundError):
        disk.open("nowhere/a", create=True)


def test_creating_an_existing_file_keeps_its_content(disk: Disk) -> None:
    disk.open("a", create=True).write(b"kept", 0)
    assert disk.open("a", create=True).read(10, 0) == b"kept"


def test_folders_are_made_with_their_parents_and_listed_in_order(disk: Disk) -> None:
    disk.make_directory("x/y/z")
    disk.make_directory("x/y/z")
    for name in ("b", "c", "a"):
        disk.open(f"x/y/{name}", create=True).close()
    assert disk.list("x/y") == ["a", "b", "c", "z"]
    assert disk.list("x") == ["y"]
    assert disk.list("x/y/z") == []
    assert disk.list("nowhere") == []


def test_files_and_folders_exist_until_removed(disk: Disk) -> None:
    disk.make_directory("x/y")
    disk.open("x/y/a", create=True).close()
    assert disk.exists("x/y/a") and disk.exists("x/y") and not disk.exists("x/a")
    disk.remove("x/y/a")
    disk.remove("x/y/a")
    assert not disk.exists("x/y/a")
    disk.open("x/b", create=True).close()
    disk.remove_tree("x")
    disk.remove_tree("x")
    assert not disk.exists("x") and not disk.exists("x/b") and not disk.exists("x/y")


def test_a_tree_is_removed_without_its_namesakes(disk: Disk) -> None:
    disk.make_directory("x")
    disk.make_directory("xy")
    disk.open("xy/a", create=True).close()
    disk.remove_tree("x")
    assert disk.list("") == ["xy"] and disk.list("xy") == ["a"]


@pytest.mark.skipif(os.name == "nt", reason="Windows refuses to remove an open file")
def test_an_open_handle_outlives_removal_and_replacement(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(b"old", 0)
    disk.open("b", create=True).write(b"new", 0)
    disk.rename("b", "a")
    assert file.read(3, 0) == b"old"
    assert disk.open("a").read(3, 0) == b"new"
    assert not disk.exists("b")
    disk.remove("a")
    assert file.read(3, 0) == b"old"


def test_renaming_what_does_not_exist_raises(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.rename("nothing", "a")


def test_folders_can_be_synced(disk: Disk) -> None:
    disk.make_directory("x")
    disk.sync_directory("x")
    disk.sync_directory("")


@pytest.mark.parametrize("path", ["/etc/passwd", "../a", "x/../../a", "x//a", "x/./a", "x\\..\\a"])
def test_no_path_leads_out_of_the_root(disk: Disk, path: str) -> None:
    for call in (disk.open, disk.exists, disk.list, disk.remove, disk.make_directory):
        with pytest.raises(ValueError):
            call(path)


def test_free_space_is_known(disk: Disk) -> None:
    assert disk.free_bytes() > 0


def test_a_lock_has_one_holder_whose_name_others_are_told(disk: Disk) -> None:
    lock = disk.lock("lock", "pid 4711, headrace serve")
    with pytest.raises(InUse, match="pid 4711, headrace serve"):
        disk.lock("lock", "somebody else")
    lock.release()
    lock.release()
    second = disk.lock("lock", "the next")
    with pytest.raises(InUse, match="held by the next"):
        disk.lock("lock", "somebody else")
    second.release()


def test_a_holder_can_say_more_of_itself_later(disk: Disk) -> None:
    lock = disk.lock("lock", "pid 4711 on here: headrace serve --data x")
    lock.tell("pid 4711 on here: serve")
    with pytest.raises(InUse, match="pid 4711 on here: serve"):
        disk.lock("lock", "somebody else")
    lock.release()


def test_removing_the_file_of_a_lock_lets_nobody_in(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    lock = disk.lock("lock", "pid 4711 on here: headrace serve")
    (tmp_path / "lock").unlink()
    for _ in range(2):
        with pytest.raises(InUse, match="this process has the directory open"):
            disk.lock("lock", "somebody else")
        with pytest.raises(InUse):
            disk.check_unlocked("lock")
    assert find_holder(str(tmp_path)) is not None
    lock.release()
    assert find_holder(str(tmp_path)) is None
    disk.lock("lock", "the next").release()


@pytest.mark.parametrize(
    ("doors", "told"),
    [
        ("http on 127.0.0.1:8080\nkafka on 127.0.0.1:9092", "--server 127.0.0.1:9092 or"),
        ("http on 127.0.0.1:8080\ngrpc on 127.0.0.1:9081", "--server grpc://127.0.0.1:9081 or"),
        ("http on 127.0.0.1:8080", "which serves it at http://127.0.0.1:8080:"),
    ],
)
def test_who_is_told_of_a_holder_is_told_where_it_can_be_reached(
    tmp_path: Path, doors: str, told: str
) -> None:
    disk = RealDisk(str(tmp_path))
    lock = disk.lock("lock", f"pid 4711 on here: headrace serve\n{doors}")
    with pytest.raises(InUse, match=f"pid 4711 .* {re.escape(told)}"):
        disk.lock("lock", "somebody else")
    lock.release()


def test_whether_a_lock_is_held_can_be_asked_without_taking_it(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.check_unlocked("lock")
    lock = disk.lock("lock", "pid 4711, headrace serve")
    with pytest.raises(InUse, match="pid 4711, headrace serve"):
        disk.check_unlocked("lock")
    lock.release()
    disk.check_unlocked("lock")
    # Asking left nothing behind.
    disk.lock("lock", "the next").release()
