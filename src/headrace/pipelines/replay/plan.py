"""The plan of a replay, and how far it is: a small file, written after each chunk.

    bounds   {"orders/0": [120, 9000], "orders/1": [98, 8700]}   frozen at the start
    chunk    17                                                  the next one
    run      "5f0c..."                                           this replay and no other

Chunk n is the n-th stretch of so many offsets of every partition. It is the same
whoever asks and whenever, so a chunk that was cut short is repeated as it was, and
the sink recognises by its number what it has written already. Numbers are those of
one run: a replay that begins anew is another to the sink, or it would take the new
chunks for the old ones and write nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from headrace.core.errors import InvalidArgument

Place = tuple[str, int]
Ranges = dict[Place, tuple[int, int]]


@dataclass
class Plan:
    bounds: Ranges
    chunk_rows: int
    # What was asked for, in words: a file of another replay is refused by it.
    about: str
    chunk: int = 0
    records: int = 0
    # How many records were looked at, and the bytes of the keys and values that were written.
    # Zero in states that were written before these were counted.
    read: int = 0
    bytes: int = 0
    # Empty in states that were written before runs were told apart.
    run: str = ""

    @property
    def chunks(self) -> int:
        lengths = [end - start for start, end in self.bounds.values()]
        return max((-(-length // self._stretch) for length in lengths), default=0)

    @property
    def total(self) -> int:
        return sum(end - start for start, end in self.bounds.values())

    @property
    def _stretch(self) -> int:
        return max(1, self.chunk_rows // max(1, len(self.bounds)))

    def ranges(self, chunk: int) -> Ranges:
        """The offsets of a chunk; partitions that have none left are not named."""
        found: Ranges = {}
        for place, (start, end) in self.bounds.items():
            first = start + chunk * self._stretch
            if first < end:
                found[place] = (first, min(end, first + self._stretch))
        return found

    def save(self, path: str) -> None:
        document: dict[str, Any] = {
            "about": self.about,
            "chunk_rows": self.chunk_rows,
            "chunk": self.chunk,
            "records": self.records,
            "read": self.read,
            "bytes": self.bytes,
            "run": self.run,
            "bounds": {f"{t}/{p}": list(ends) for (t, p), ends in sorted(self.bounds.items())},
        }
        folder = os.path.dirname(path)
        if folder:
            os.makedirs(folder, exist_ok=True)
        aside = f"{path}.tmp"
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)


def load_plan(path: str, about: str) -> Plan | None:
    """None when there is none yet; InvalidArgument when it is another replay's."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        bounds: Ranges = {}
        for place, (start, end) in document["bounds"].items():
            topic, _, partition = place.rpartition("/")
            bounds[topic, int(partition)] = (int(start), int(end))
        plan = Plan(
            bounds,
            int(document["chunk_rows"]),
            str(document["about"]),
            int(document["chunk"]),
            int(document["records"]),
            int(document.get("read", 0)),
            int(document.get("bytes", 0)),
            str(document.get("run", "")),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"state {path!r} is not the state of a replay; remove it, or name another"
        ) from error
    if plan.about != about:
        raise InvalidArgument(
            f"state {path!r} is of another replay ({plan.about}); name another file with "
            "state = ..., or remove it to begin anew"
        )
    return plan
