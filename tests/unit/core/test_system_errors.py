"""The system's errors by name: which number is which, and what callers are told."""

from __future__ import annotations

import errno
import os

import pytest

from headrace.core import system_errors
from headrace.core.errors import DiskFull, HeadraceError, SyncFailed, TooManyFiles
from headrace.core.system_errors import WriteFailed


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (system_error(errno.ENOSPC), {"is_full", "is_shortage"}),
        (system_error(errno.EDQUOT), {"is_full", "is_shortage"}),
        (DiskFull("no room"), {"is_full", "is_shortage"}),
        (system_error(errno.EMFILE), {"are_files_used_up", "is_shortage"}),
        (system_error(errno.ENFILE), {"are_files_used_up", "is_shortage"}),
        (TooManyFiles("too many"), {"are_files_used_up", "is_shortage"}),
        (system_error(errno.EACCES), {"is_refused", "is_of_one_file"}),
        (system_error(errno.EPERM), {"is_refused", "is_of_one_file"}),
        (system_error(errno.EIO), {"is_of_one_file"}),
        (system_error(errno.ENOENT), {"is_of_one_file"}),
        (system_error(errno.EROFS), set()),
        (system_error(errno.ENOMEM), set()),
        (ValueError("not the system's"), set()),
        (SyncFailed("no"), set()),
    ],
    ids=lambda value: repr(value) if isinstance(value, Exception) else "-".join(sorted(value)),
)
def test_each_error_is_what_its_number_says_and_nothing_else(
    error: Exception, names: set[str]
) -> None:
    judges = ("is_full", "are_files_used_up", "is_shortage", "is_refused", "is_of_one_file")
    assert {name for name in judges if getattr(system_errors, name)(error)} == names


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, DiskFull, "reading and acking go on"),
        (errno.EDQUOT, DiskFull, "reading and acking go on"),
        (errno.EMFILE, TooManyFiles, "ulimit -n"),
        (errno.EIO, WriteFailed, "Input/output error.*; do this"),
        (errno.EROFS, WriteFailed, "do this"),
    ],
)
def test_a_caller_is_told_what_to_do(number: int, kind: type[HeadraceError], words: str) -> None:
    error = system_error(number)
    told = system_errors.disk_error(error, "do this")
    assert type(told) is kind and told.__cause__ is error
    with pytest.raises(kind, match=words):
        raise told
