"""Who has a directory open for writing, without touching its lock.

The lock file says who took it last; whether it is still held is asked of the system,
which knows every lock. Trying to take it would keep away whoever starts at that moment.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from typing import NamedTuple

from headrace.platform.locking import LOCKS_FILE, holder_of_folder
from headrace.platform.process import is_alive

LOCK_FILE = "lock"
# Lines that follow say where it can be reached.
_HOLDER = re.compile(r"pid (?P<pid>\d+) on (?P<host>[^:]*): (?P<command>.*)")


class Holder(NamedTuple):
    pid: int
    host: str
    command: str

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.host == platform.node()


def find_holder(root: str) -> Holder | None:
    """Who holds the directory now; None when nobody does."""
    path = os.path.join(root, LOCK_FILE)
    text = ""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    found = _HOLDER.match(text.strip())
    if found is None:
        return _nameless(root)
    holder = Holder(int(found["pid"]), found["host"], found["command"])
    if not holder.is_here:
        # A directory on a shared disk: nobody here can tell, so it may be held.
        return holder
    return holder if _is_held(root, path, holder.pid) else _nameless(root)


def _is_held(root: str, path: str, pid: int) -> bool:
    if not os.path.exists(LOCKS_FILE):
        return is_alive(pid)
    # Versions before this one locked the file alone.
    return holder_of_folder(root) is not None or holder_of_folder(path) is not None


def _nameless(root: str) -> Holder | None:
    """Somebody whose text is gone, or not written yet."""
    pid = holder_of_folder(root)
    return None if pid is None else Holder(pid, platform.node(), "")
