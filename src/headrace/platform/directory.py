"""A data directory: its format, its identity, and who may write to it.

headrace.json    format version and the directory's own id
lock             held by the one process that writes
reserve          space that is given up when the disk is full, so that acks
                 can still be written
metadata/        the catalog's log
topics/<id>/<n>/ the partitions
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from crc32c import crc32c

from headrace.core.errors import (
    DiskFull,
    HeadraceError,
    InvalidArgument,
    ReadOnly,
    UnsupportedFormat,
)
from headrace.core.ports import Disk, Entropy, Lock
from headrace.core.system_errors import is_file_in_the_way, is_read_only, is_refused
from headrace.log.checkpoint import TEMPORARY_SUFFIX, replace_file

# Raised by everything that an older version cannot read: tests/unit/platform/
# test_format.py has what each number stands for.
FORMAT = 3
# The oldest that this version reads.
FORMAT_MIN = 1
FORMAT_FILE = "headrace.json"
# Whoever writes holds it.
LOCK = "lock"
# What a first opening that was cut short can leave.
_BEFORE_THE_FORMAT = (LOCK, FORMAT_FILE + TEMPORARY_SUFFIX)
RESERVE_FILE = "reserve"
# Of a node in a new directory: what a broker of Kafka alone is called by its own settings,
# and by tools that name a broker.
NODE_ID = 1
RESERVE_BYTES = 4 * 1024 * 1024


class Identity(msgspec.Struct):
    format: int
    directory_id: str
    node_id: int = 0
    # CRC32C of the three above, as text with a space between.
    crc: int = 0

    def checksum(self) -> int:
        return crc32c(f"{self.format} {self.directory_id} {self.node_id}".encode())


@contextlib.contextmanager
def plain_refusals() -> Iterator[None]:
    """While a directory is opened: what the system refuses is an error of ours, that says
    what to do. A disk that fails, or is full, is not a matter of which directory."""
    try:
        yield
    except OSError as error:
        if isinstance(error, HeadraceError):
            raise
        where, why = error.filename or "the directory", error.strerror
        if is_file_in_the_way(error):
            raise InvalidArgument(
                f"{where} is a file, or is below one; name a directory, which is made if need be"
            ) from error
        if is_read_only(error):
            raise ReadOnly(
                f"{where} cannot be written to, as the disk is read-only: mount it for writing "
                "(the system's log says whether it failed), or open it with read_only=True"
            ) from error
        if is_refused(error):
            raise ReadOnly(
                f"{where} cannot be used by this user ({why}): give the directory to it "
                "(chown -R USER DIR), or, where it may read, open it with read_only=True"
            ) from error
        raise


@plain_refusals()
def claim(disk: Disk, entropy: Entropy) -> Lock:
    """Take the directory for writing: make it if it is new, refuse it if it is
    not ours to read. InUse when another process has it, ReadOnly where the system does
    not let us write."""
    names = disk.list("")
    if FORMAT_FILE in names:
        check_format(disk)
    elif foreign := [name for name in names if name not in _BEFORE_THE_FORMAT]:
        raise UnsupportedFormat(
            f"the directory is not empty and not Headrace's (it has {foreign[0]!r}); "
            "choose another one"
        )
    disk.make_directory("")
    lock = disk.lock(LOCK, describe_holder())
    try:
        if not disk.exists(FORMAT_FILE):
            _write(disk, Identity(FORMAT, entropy.random_bytes(16).hex(), NODE_ID))
        else:
            _raise_format(disk)
    except BaseException:
        lock.release()
        raise
    return lock


def _write(disk: Disk, identity: Identity) -> None:
    identity.crc = identity.checksum()
    replace_file(disk, "", FORMAT_FILE, msgspec.json.encode(identity))


def _raise_format(disk: Disk) -> None:
    """Whoever writes may write what older versions cannot read, so they are kept out from
    now on. On a full disk the reserve makes room."""
    found = check_format(disk)
    if found.format < FORMAT:
        found.format = FORMAT
        try:
            _write(disk, found)
        except DiskFull:
            if not give_up_reserve(disk):
                raise
            _write(disk, found)


def describe_holder(doors: Mapping[str, str] | None = None) -> str:
    """This process, and where it can be reached: a line for itself and one for each door."""
    lines = [f"pid {os.getpid()} on {platform.node()}: {_command(sys.argv)}"]
    lines += [f"{door} on {address}" for door, address in (doors or {}).items()]
    return "\n".join(lines)


@plain_refusals()
def check_format(disk: Disk) -> Identity:
    try:
        file = disk.open(FORMAT_FILE, read_only=True)
    except FileNotFoundError:
        raise InvalidArgument(
            "there is no Headrace directory here; the first process that opens it for writing "
            "makes one"
        ) from None
    with contextlib.closing(file):
        content = file.read(file.size(), 0)
    try:
        found = msgspec.json.decode(content, type=Identity)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnsupportedFormat(f"{FORMAT_FILE} cannot be read: {error}") from error
    if found.format > FORMAT:
        raise UnsupportedFormat(
            f"{FORMAT_FILE} says format {found.format} and this Headrace knows up to {FORMAT}; "
            "upgrade with: pip install -U headrace"
        )
    if found.format < FORMAT_MIN or found.crc != found.checksum():
        raise UnsupportedFormat(
            f"{FORMAT_FILE} is damaged: its checksum does not match; put back a copy of it, or "
            "open another directory. Nothing else was touched"
        )
    return found


def keep_reserve(disk: Disk) -> None:
    """Hold back some space, if there is any. Without it a full disk only means
    that acks have to wait for room like publishes do."""
    with contextlib.suppress(OSError):
        file = disk.open(RESERVE_FILE, create=True)
        with contextlib.closing(file):
            file.reserve(RESERVE_BYTES)


def give_up_reserve(disk: Disk) -> bool:
    if not disk.exists(RESERVE_FILE):
        return False
    disk.remove(RESERVE_FILE)
    return True


def _command(argv: Iterable[str]) -> str:
    return " ".join(" ".join(argv).split())[:200] or "python"
