"""Which threads sync, in a process that may have a node of other tests running."""

from __future__ import annotations

import threading


def syncing() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if "headrace-sync" in each.name}
