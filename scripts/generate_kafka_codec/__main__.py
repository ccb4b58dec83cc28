"""The command: definitions in, modules out.

    python -m scripts.generate_kafka_codec            writes the modules anew
    python -m scripts.generate_kafka_codec --check    says what would change, and fails if anything
    python -m scripts.generate_kafka_codec --definition FILE --versions 0-4 --output FILE
                                                      one module, from a definition of your own

`headrace.wire.kafka.api` says which messages and versions. The definitions come from
a package of about 200 MB that is downloaded once, into ~/.cache/headrace.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from headrace.wire.kafka.api import APIS, EMBEDDED, NEVER, Api, module_name

from .definitions import Definition, Versions, load_texts, read_definition, read_versions
from .modules import COMMAND, module_text, sign

PROJECT = Path(__file__).parent.parent.parent
TARGET = PROJECT / "src" / "headrace" / "wire" / "kafka" / "generated"
PACKAGE = f'"""Kafka\'s messages, one module each; made by `{COMMAND}`."""\n'


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "headrace")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--definition", type=Path, help="make one module from this file")
    parser.add_argument("--versions", type=read_versions, help="its versions, such as 0-4")
    parser.add_argument("--output", type=Path, help="where to write it")
    arguments = parser.parse_args()
    if arguments.definition:
        if not arguments.output:
            parser.error("--definition needs --output")
        definition = read_definition(arguments.definition.read_text())
        text = module_text(definition, arguments.versions or definition.valid)
        arguments.output.write_text(sign(format_source(text)))
        return 0
    made = make_modules(load_texts(arguments.cache))
    stale = {path.name for path in TARGET.glob("*.py")} - set(made)
    changed = [name for name, text in made.items() if _text_of(TARGET / name) != text]
    if arguments.check:
        for name in sorted([*changed, *stale]):
            print(f"would change: {name}")
        return 1 if changed or stale else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (TARGET / name).unlink()
    for name in changed:
        (TARGET / name).write_text(made[name])
    lines = sum(text.count("\n") for text in made.values())
    print(f"{len(made)} modules, {lines} lines; {len(changed)} changed, {len(stale)} removed")
    return 0


def make_modules(texts: dict[str, str]) -> dict[str, str]:
    """File names and their contents."""
    wanted: list[tuple[str, Versions, Api | None]] = [
        (name, Versions(first, last), None) for name, first, last in EMBEDDED
    ]
    for api in APIS.values():
        for kind in ("Request", "Response"):
            wanted.append((api.name + kind, Versions(api.first, api.last), api))
    made = {"__init__.py": PACKAGE}
    for done, (name, versions, owner) in enumerate(wanted, 1):
        definition = read_definition(texts[name])
        if owner is not None:
            check_flexible(definition, owner.key, owner.flexible_first)
        if sys.stdout.isatty():
            print(f"\r{done}/{len(wanted)} {name:<40}", end="", flush=True)
        made[f"{module_name(name)}.py"] = sign(format_source(module_text(definition, versions)))
    if sys.stdout.isatty():
        print()
    return made


def check_flexible(definition: Definition, key: int, flexible_first: int) -> None:
    """The table of APIs must agree with Kafka, because headers depend on it."""
    first, last = definition.flexible
    if definition.key != key or (first if last >= first else NEVER) != flexible_first:
        raise ValueError(f"{definition.name}: the table of APIs says otherwise")


def format_source(text: str) -> str:
    """As the project formats its code."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "generated.py", "-"]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=True, cwd=PROJECT
    )
    return done.stdout


def _text_of(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
