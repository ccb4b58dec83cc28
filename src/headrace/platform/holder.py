"""Who has a directory open for writing, without touching its lock.

The lock file says who took it last; whether it is still held is asked of the system,
which knows every lock. Trying to take it would keep away whoever starts at that moment.
"""

from __future__ import annotations

import os
import platform
import re
from typing import NamedTuple

from headrace.platform.process import is_alive

LOCK_FILE = "lock"
_LOCKS_FILE = "/proc/locks"
_HOLDER = re.compile(r"pid (?P<pid>\d+) on (?P<host>[^:]*): (?P<command>.*)", re.DOTALL)


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
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
            inode = os.fstat(file.fileno()).st_ino
    except OSError:
        return None
    found = _HOLDER.fullmatch(text.strip())
    if found is None:
        return None
    holder = Holder(int(found["pid"]), found["host"], found["command"])
    if not holder.is_here:
        # A directory on a shared disk: nobody here can tell, so it may be held.
        return holder
    return holder if _is_held(inode, holder.pid) else None


def _is_held(inode: int, pid: int) -> bool:
    try:
        with open(_LOCKS_FILE, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return is_alive(pid)
    for line in lines:
        # 7: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return True
    return False
