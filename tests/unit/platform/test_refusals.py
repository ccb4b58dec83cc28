"""A directory that the system does not let us use: an error of ours, which says what to do."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

import headrace
from headrace.core.errors import HeadraceError, InvalidArgument, ReadOnly
from headrace.core.ports import File, Lock
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk


class RefusingDisk(MemoryDisk):
    """Refuses what changes something, or everything. Permission bits would not stop
    tests that run as root."""

    def __init__(self, number: int, *, reads: bool = False) -> None:
        super().__init__()
        self.number: int | None = None
        with contextlib.closing(Node.open("here", disk=self)) as node:
            node.create_topic("orders")
        self.number = number
        self.reads = reads

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, note: bool = False
    ) -> File:
        if self.number is not None and (self.reads or not read_only):
            raise OSError(self.number, os.strerror(self.number), f"/there/{path}")
        return super().open(path, create=create, read_only=read_only, note=note)

    def lock(self, path: str, holder: str) -> Lock:
        if self.number is not None:
            raise OSError(self.number, os.strerror(self.number), f"/there/{path}")
        return super().lock(path, holder)


@pytest.mark.parametrize("below", ["", "/below"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_in_place_of_a_directory_is_an_error_of_ours(
    tmp_path: Path, below: str, read_only: bool
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidArgument, match=r"/file.* is a file.*name a directory"):
        headrace.open(f"{tmp_path}/file{below}", read_only=read_only)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EROFS, "mount it for writing"),
        (errno.EACCES, "chown -R"),
        (errno.EPERM, "chown -R"),
    ],
)
def test_a_directory_that_cannot_be_written_to_says_what_to_do(number: int, advice: str) -> None:
    disk = RefusingDisk(number)
    with pytest.raises(ReadOnly, match=f"/there/lock.*{advice}.*read_only=True"):
        Node.open("here", disk=disk)
    with contextlib.closing(Node.open("here", disk=disk, read_only=True)) as node:
        assert [topic.name for topic in node.topics()] == ["orders"]


def test_a_directory_that_cannot_be_read_says_what_to_do() -> None:
    disk = RefusingDisk(errno.EACCES, reads=True)
    with pytest.raises(HeadraceError, match=r"/there/headrace.json cannot be used.*chown -R"):
        Node.open("here", disk=disk, read_only=True)


def test_other_failures_of_a_disk_stay_what_they_are() -> None:
    with pytest.raises(OSError, match="Input/output") as failed:
        Node.open("here", disk=RefusingDisk(errno.EIO))
    assert not isinstance(failed.value, HeadraceError)
