"""Writes down what Apache Kafka and a node answer to the commands of all scripts, or of some:

    python -m tests.ecosystem.recording [kafka|headrace] [script ...]

Kafka's answers are what a node is compared with. A node's own answers are written where
a command says why they differ; where it does not and they do, nothing is written and the
command is shown.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from tests.ecosystem import scripts
from tests.ecosystem.tools import BROKERS, Tools

PLACE = Path(__file__).parent.parent.parent / ".cache" / "recording"


def main(which: list[str], chosen: list[str]) -> int:
    tools = Tools()
    try:
        return sum(
            _record(script, broker, tools)
            for broker in which
            for script in map(scripts.load, chosen or scripts.names())
        )
    finally:
        tools.close()


def _record(script: scripts.Script, name: str, tools: Tools) -> int:
    """How many answers differ without a reason."""
    shutil.rmtree(PLACE, ignore_errors=True)
    broker = BROKERS[name](PLACE)
    broker.start()
    try:
        answers = scripts.run(script, tools, broker, _show)
    finally:
        broker.stop()
    commands, unexplained = [], 0
    for command, answer in zip(script.commands, answers, strict=True):
        if name == "kafka":
            command = replace(command, expected=answer)
        elif command.verdict:
            command = replace(command, own=answer)
        elif answer != command.expected:
            unexplained += 1
            print(f"\n{script.name}: $ {command.line}")
            print(*(f"  - {line}" for line in command.expected if line not in answer), sep="\n")
            print(*(f"  + {line}" for line in answer if line not in command.expected), sep="\n")
        commands.append(command)
    path = scripts.FOLDER / f"{script.name}.txt"
    path.write_text(scripts.written(replace(script, commands=commands)))
    return unexplained


def _show(line: str) -> None:
    print("$", line, file=sys.stderr)


if __name__ == "__main__":
    brokers = [each for each in sys.argv[1:] if each in BROKERS] or list(BROKERS)
    sys.exit(min(1, main(brokers, [each for each in sys.argv[1:] if each not in BROKERS])))
