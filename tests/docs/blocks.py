"""The blocks of a page, and what their first line says is to be done with them.

    ```python               run, from top to bottom, in one namespace for the page
    ```python shop.py       saved under that name, for the blocks that follow
    ```python theirs        somebody else's library: read by Python, not run
    ```output               what the Python block before it prints
    ```console              commands behind `$ `, each with what it shows
    ```shell                commands alone, which have to succeed

A Python block that defines tests is given to pytest, as a reader would. Every other
first line means that the block is only looked at.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parent.parent.parent

_BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"python (\w+\.py)")


class Block(NamedTuple):
    page: str
    line: int
    info: str
    text: str

    @property
    def is_test(self) -> bool:
        return self.info == "python" and "def test_" in self.text

    @property
    def file(self) -> str | None:
        """The name under which it is saved."""
        found = _FILE.fullmatch(self.info)
        return found and found.group(1)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """A line behind `$ `, and the lines that it shows."""

    line: str
    shown: list[str]


def blocks_of(page: str) -> list[Block]:
    text = (PROJECT / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start(2)), found.group(1).strip(), found.group(2))
        for found in _BLOCK.finditer(text)
    ]


def commands_of(block: Block) -> list[Command]:
    commands: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line.removeprefix("$ "), []))
        else:
            commands[-1].shown.append(line)
    return commands


_VARYING = (
    # Moments, times that something took, and ids that are made by chance.
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?"), "<moment>"),
    (re.compile(r"\b\d+\.\d+ ?m?s\b"), "<time>"),
    (re.compile(r"\+\d+m?s\b"), "+<after>"),
    (re.compile(r"\bcrc [0-9a-f]{8}\b"), "crc <checksum>"),
    (re.compile(r"\b[0-9a-f]{16,32}\b"), "<id>"),
    (re.compile(r"\b[\w.-]+-\d+-[0-9a-f]{8}\b"), "<consumer>"),
)


def is_shown(expected: str, actual: str) -> bool:
    """Whether a line is the one on the page: three dots stand for anything, and what is
    never twice the same, and the widths of columns, do not count."""
    pattern = ".*".join(re.escape(_plain(part)) for part in expected.split("..."))
    return re.fullmatch(pattern, _plain(actual)) is not None


def _plain(line: str) -> str:
    for varying, name in _VARYING:
        line = varying.sub(name, line)
    return re.sub(r" +", " ", line.rstrip())


def are_shown(expected: list[str], actual: list[str]) -> bool:
    """The same for all lines; three dots alone stand for any number of them."""
    if not expected:
        return not actual
    if expected[0].strip() == "...":
        return any(are_shown(expected[1:], actual[skip:]) for skip in range(len(actual) + 1))
    return (
        bool(actual)
        and is_shown(expected[0], actual[0])
        and are_shown(expected[1:], actual[1:])
    )  # fmt: skip
