"""What a process takes of its machine, as Linux tells it under /proc.

Of this process or of another one: whoever looks at a directory from outside wants to
know how the process that serves it is doing. What cannot be found out is None: on other
systems, of processes of other users, and of one that has just ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

Found = TypeVar("Found")

# Fields of /proc/<pid>/stat behind the name, which is in brackets and may hold anything.
_USER_TICKS, _SYSTEM_TICKS, _STARTED_TICKS = 11, 12, 19
# Where a container says how much memory it may use.
_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class ProcessFigures(NamedTuple):
    started_at_ms: int | None
    cpu_seconds: float | None
    memory_bytes: int | None
    open_files: int | None
    open_files_max: int | None


def process_figures(pid: int | None = None) -> ProcessFigures:
    root = f"/proc/{'self' if pid is None else pid}"
    return ProcessFigures(
        _tried(lambda: _started_at_ms(root)),
        _tried(lambda: _cpu_seconds(root)),
        _tried(lambda: _memory_bytes(root)),
        _tried(lambda: len(os.listdir(f"{root}/fd"))),
        _tried(lambda: _open_files_max(root)),
    )


def held_bytes() -> int | None:
    """Of this process's own, without pages of files, which the system can take back."""
    return _tried(_held_bytes)


def memory_bytes_max() -> int | None:
    """What this machine, or the container that it looks like, has in all."""
    machine = _tried(_machine_bytes)
    for path in _MEMORY_LIMITS:
        limit = _tried(partial(_number, path))
        if limit is not None and (machine is None or limit < machine):
            return limit
    return machine


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # It is there, and somebody else's.
        pass
    return True


def _tried(find: Callable[[], Found]) -> Found | None:
    try:
        return find()
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _content(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _number(path: str) -> int:
    return int(_content(path))


def _stat(root: str) -> list[str]:
    return _content(f"{root}/stat").rpartition(")")[2].split()


def _ticks_per_second() -> int:
    return os.sysconf("SC_CLK_TCK")


def _cpu_seconds(root: str) -> float:
    fields = _stat(root)
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _ticks_per_second()


def _started_at_ms(root: str) -> int:
    booted = next(
        int(line.split()[1])
        for line in _content("/proc/stat").splitlines()
        if line.startswith("btime ")
    )
    return booted * 1000 + int(_stat(root)[_STARTED_TICKS]) * 1000 // _ticks_per_second()


def _memory_bytes(root: str) -> int:
    return int(_content(f"{root}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _held_bytes() -> int:
    _, resident, shared, *_ = _content("/proc/self/statm").split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def _open_files_max(root: str) -> int:
    return next(
        int(line.split()[3])
        for line in _content(f"{root}/limits").splitlines()
        if line.startswith("Max open files")
    )


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
