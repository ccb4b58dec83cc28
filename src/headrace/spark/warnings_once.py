"""Warnings of which a user needs one, however often Spark asks.

A query is planned by several processes, and each micro-batch of a stream by new calls.
They share the folder that Spark made for this driver, so a file there says that a
warning was given; it goes with the driver. Where there is no such folder, each process
remembers its own.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_given: set[str] = set()
# How Spark names the folders that it removes when the driver ends.
_OF_DRIVER: Final = "blockmgr-"


def warn_once(text: str) -> None:
    """Log a warning that this driver has not given yet."""
    if text in _given:
        return
    _given.add(text)
    if _is_new_to_driver(text):
        logger.warning("headrace: %s", text)


def _is_new_to_driver(text: str) -> bool:
    folder = Path(os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0])
    if not folder.name.startswith(_OF_DRIVER):
        return True
    mark = folder / f"headrace-warned-{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True
