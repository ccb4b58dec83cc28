"""Windows on files: the same bytes, mapped or read, and cold ones told from warm ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.twins import both

from headrace.core.ports import Buffer, WouldWait
from headrace.platform.disk import RealDisk
from headrace.platform.window import WINDOW_BYTES_MIN

Open = Callable[..., Buffer]
each_window = pytest.mark.parametrize("open_window", both("headrace.platform.window.open_window"))


@each_window
@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 4097, 99_999, 100_000, 200_000])
@pytest.mark.parametrize("length", [0, 1, 4096, 70_000, 10**6])
def test_a_window_shows_the_file_from_any_position(
    tmp_path: Path, open_window: Open, position: int, length: int
) -> None:
    content = os.urandom(100_000)
    path = tmp_path / "file"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    window = open_window(descriptor, length, position)
    os.close(descriptor)
    path.unlink()
    assert bytes(window) == content[position : position + length]
    assert len(window) == len(bytes(window))


@each_window
def test_a_window_cannot_be_opened_on_nothing(open_window: Open) -> None:
    with pytest.raises(OSError):
        open_window(-1, 100, 0)


@each_window
def test_a_window_holds_no_descriptor(tmp_path: Path, open_window: Open) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    descriptor = os.open(path, os.O_RDONLY)
    before = len(os.listdir("/proc/self/fd"))
    windows = [open_window(descriptor, 10_000, number) for number in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert all(len(window) == 10_000 for window in windows)
    os.close(descriptor)


@pytest.mark.parametrize("call", ["read", "view"])
def test_what_the_system_has_dropped_from_memory_is_read_after_warming(
    tmp_path: Path, call: str
) -> None:
    # Dropping is a wish that a system may not grant; then nothing has to be warmed.
    content = os.urandom(8 * WINDOW_BYTES_MIN)
    disk = RealDisk(tmp_path)
    file = disk.open("a", create=True)
    file.write(content, 0)
    file.sync()
    descriptor = os.open(tmp_path / "a", os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    with disk.without_waiting():
        for _ in range(3):
            try:
                found = getattr(file, call)(len(content), 0)
                break
            except WouldWait as cold:
                assert (cold.length, cold.position) == (len(content), 0)
                # This thread does not wait; another one does.
                thread = threading.Thread(target=cold.warm)
                thread.start()
                thread.join()
    assert bytes(found) == content
    file.close()
