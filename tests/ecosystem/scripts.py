"""Scripts of commands, with what Apache Kafka answers to each, and a node where it differs.

    file plan.json {"version": 1}        a file; @plan.json is its path in a command

    $ kafka-cluster unregister --id 7    a command, as a user types it, but for the address
    $ open-transaction --topic orders    a program of ours (tools.py), which is no tool
    < a line                             what it reads from its standard input
      BrokerIdNotRegisteredException     what Kafka answers, in plain words (answers.py)
      [1]                                its exit code, if it is not 0
    refused: there is one node           why a node answers something else; or `differs: `
      UnsupportedVersionException        what a node answers
      [1]

Each script has a broker of its own. Answers are recorded (recording.py), commands and
reasons are written by hand.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.kafka.brokers import Broker
from tests.ecosystem.answers import plain
from tests.ecosystem.tools import Tools

FOLDER = Path(__file__).parent / "scripts"
VERDICTS = ("differs", "refused")
# Tools of sub-commands that take the address behind one, and tools that take none.
ADDRESS_LAST = ("cluster",)
NO_ADDRESS = ("dump-log",)


@dataclass(frozen=True)
class Command:
    line: str
    stdin: str = ""
    # What Apache Kafka answers.
    expected: list[str] = field(default_factory=list)
    # Why a node answers something else, and what.
    verdict: str = ""
    reason: str = ""
    own: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line)

    @property
    def tool(self) -> str:
        return self.words[0].removeprefix("kafka-")

    def answer_of(self, broker: str) -> list[str]:
        """What this broker is expected to answer."""
        return self.own if self.verdict and broker == "headrace" else self.expected


@dataclass(frozen=True)
class Script:
    name: str
    # Comments and files, as they stand before the first command.
    head: list[str]
    commands: list[Command]

    @property
    def files(self) -> dict[str, str]:
        given = (line.split(" ", 2) for line in self.head if line.startswith("file "))
        return {name: text for _, name, text in given}


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(name: str) -> Script:
    head: list[str] = []
    commands: list[Command] = []
    for line in (FOLDER / f"{name}.txt").read_text().splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:]))
        elif not commands:
            head.append(line)
        elif line:
            commands[-1] = _continued(commands[-1], line)
    return Script(name, head, commands)


def _continued(command: Command, line: str) -> Command:
    if line.startswith("< "):
        return replace(command, stdin=f"{command.stdin}{line[2:]}\n")
    if line.startswith("  "):
        if command.verdict:
            return replace(command, own=[*command.own, line[2:]])
        return replace(command, expected=[*command.expected, line[2:]])
    verdict, _, reason = line.partition(": ")
    if verdict not in VERDICTS or not reason:
        raise ValueError(f"a line of a script that means nothing: {line!r}")
    return replace(command, verdict=verdict, reason=reason)


def written(script: Script) -> str:
    lines = [*script.head]
    for command in script.commands:
        lines += [f"$ {command.line}"]
        lines += [f"< {line}" for line in command.stdin.splitlines()]
        lines += [f"  {line}" for line in command.expected]
        if command.verdict:
            lines += [f"{command.verdict}: {command.reason}"]
            lines += [f"  {line}" for line in command.own]
        lines += [""]
    return "\n".join(lines[:-1]) + "\n"


def run(
    script: Script, tools: Tools, broker: Broker, show: Callable[[str], None] = lambda line: None
) -> list[list[str]]:
    """What the broker answers to each command."""
    place = broker.place / "files"
    place.mkdir()
    folders = {str(place): "FILES", str(broker.place / "data"): "DATA"}
    for name, text in script.files.items():
        (place / name).write_text(text.replace("\\n", "\n"))
    answers = []
    for command in script.commands:
        show(command.line)
        address = [] if command.tool in NO_ADDRESS else ["--bootstrap-server", broker.bootstrap]
        given = [
            str(place / word[1:]) if word[:1] == "@" and word[1:] in script.files else word
            for word in command.words[1:]
        ]
        words = [*given, *address] if command.tool in ADDRESS_LAST else [*address, *given]
        answer = tools.run(command.tool, *words, stdin=command.stdin)
        answers.append(plain(command.tool, answer, folders))
    return answers
