"""Lines of Python under construction.

Knows indentation, the local names of one function, and the precompiled formats
that a module needs. What the lines say is the business of the other modules.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from contextlib import contextmanager

# Names that the generated functions use for themselves.
_TAKEN = {
    "_",
    "bytes",
    "count",
    "data",
    "end",
    "error",
    "fields",
    "isinstance",
    "len",
    "length",
    "memoryview",
    "message",
    "new",
    "out",
    "parts",
    "position",
    "range",
    "room",
    "size",
    "str",
    "tag",
    "tags",
    "text",
    "tuple",
}

# The formats that cannot be part of a name as they are.
_FORMAT_LETTERS = {"?": "z", "16s": "u"}


class Source:
    """`formats` collects the names of the packers and unpackers that are used."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.formats: dict[str, str] = {}
        self._depth = 0
        self._names: set[str] = set()

    def add(self, line: str) -> None:
        self.lines.append("    " * self._depth + line if line else "")

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.add(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def mark(self) -> tuple[int, int]:
        """A place at which a line can be inserted later."""
        return len(self.lines), self._depth

    def insert(self, mark: tuple[int, int], line: str) -> None:
        at, depth = mark
        self.lines.insert(at, "    " * depth + line)

    def start_function(self) -> None:
        self._names = set(_TAKEN)

    def local(self, name: str) -> str:
        """A local name that the function does not use yet."""
        unique, number = name, 1
        while unique in self._names or keyword.iskeyword(unique):
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        return unique

    def packer(self, formats: list[str]) -> str:
        return self._format("pack", "pack", formats)

    def unpacker(self, formats: list[str]) -> str:
        return self._format("unpack", "unpack_from", formats)

    def _format(self, verb: str, method: str, formats: list[str]) -> str:
        letters = "".join(_FORMAT_LETTERS.get(each, each) for each in formats)
        name = f"{verb}_{letters}"
        self.formats[name] = f'Struct(">{"".join(formats)}").{method}'
        return name
