"""`python -m benchmarks.doors`: every door of a node, beside other people's servers.

    python -m benchmarks.doors                               everything, in six minutes
    python -m benchmarks.doors --rows publish-one --runs 1   this row alone, once
    python -m benchmarks.doors --systems headrace            our own doors alone
    python -m benchmarks.doors --quick                       tiny: whether it works

All systems of a run take turns, so that a busy minute hits them all. Results are printed
as tables and written to doors.md and doors.json in --output; progress goes to standard
error. Nothing is asserted about speed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.child import PROJECT
from benchmarks.doors import report
from benchmarks.doors.generator import Task
from benchmarks.doors.rows import CONTENDERS, ROWS, Contender, Row
from benchmarks.doors.systems import NotInstalled, System


class Sizes(NamedTuple):
    seconds: float
    fill_one: int
    fill_many: int
    runs: int


FULL = Sizes(seconds=2.0, fill_one=30_000, fill_many=250_000, runs=3)
QUICK = Sizes(seconds=0.2, fill_one=2_000, fill_many=10_000, runs=1)


def main() -> int:
    arguments = _arguments()
    place: Path = arguments.output.resolve()
    place.mkdir(parents=True, exist_ok=True)
    kind = machine.filesystem_of(place)
    if kind in machine.NOT_A_DISK and not arguments.quick:
        print(f"benchmarks: {place} is on {kind}, which is not a disk", file=sys.stderr)
        return 2
    sizes = QUICK if arguments.quick else FULL
    if arguments.runs:
        sizes = sizes._replace(runs=arguments.runs)
    rows = [row for row in ROWS if not arguments.rows or row.name in arguments.rows]
    contenders = [
        each
        for each in CONTENDERS
        if not arguments.systems or any(word in each.name for word in arguments.systems)
    ]
    described = machine.describe(place)
    described["command"] = " ".join(["python -m benchmarks.doors", *sys.argv[1:]])
    # Ended from outside, it still ends its servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    measured = _measure(place / "doors", rows, contenders, sizes)
    described["load after"] = machine.describe(place)["load"]
    report.write(place, described, measured)
    text = report.markdown(described, measured, is_judged=not arguments.quick)
    (place / "doors.md").write_text(text)
    print(text, end="")
    return 0


def _measure(
    place: Path, rows: list[Row], contenders: list[Contender], sizes: Sizes
) -> list[report.Measured]:
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    failures: dict[tuple[str, str], str] = {}
    for number in range(sizes.runs):
        # One server is up at a time, and has the machine to itself.
        for kind in dict.fromkeys(each.system for each in contenders):
            mine = [each for each in contenders if each.system is kind]
            shutil.rmtree(place, ignore_errors=True)
            try:
                system = kind(place)
            except (NotInstalled, RuntimeError) as error:
                for row in rows:
                    failures |= {(row.name, each.name): str(error) for each in mine}
                continue
            try:
                for row in rows:
                    for each in mine:
                        key = row.name, each.name
                        print(f"{number + 1}: {row.name}, {each.name}", file=sys.stderr, flush=True)
                        try:
                            topic = f"bench-{row.name}-{each.client.replace('.', '-')}"
                            found = _generate(system, each, row, sizes, topic)
                            runs.setdefault(key, []).append(found)
                        except RuntimeError as error:
                            failures[key] = str(error)
                            print(f"    {error}", file=sys.stderr)
            finally:
                system.stop()
    return [
        report.Measured(
            row,
            each,
            runs.get((row.name, each.name), []),
            failures.get((row.name, each.name), ""),
        )
        for row in rows
        for each in contenders
    ]


def _generate(
    system: System, contender: Contender, row: Row, sizes: Sizes, topic: str
) -> dict[str, Any]:
    fill = 0
    if row.act == "work":
        fill = sizes.fill_one if row.batch == 1 else sizes.fill_many
        if not contender.is_ours:
            # Filling takes the others longer than emptying, and more does not make
            # them faster.
            fill //= 5
    task = Task(
        contender.client, system.address(contender.port), topic, row.act, row.batch,
        sizes.seconds, system.pids, fill,
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.doors.generator", json.dumps(task._asdict())],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise RuntimeError(last[0][:200])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if not found["messages"]:
        raise RuntimeError("not a single message went through")
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.doors", description="Measure.")
    names = [row.name for row in ROWS]
    parser.add_argument(
        "--rows", nargs="+", choices=names, default=[], metavar="ROW",
        help=f"of {', '.join(names)}; all when none is named",
    )  # fmt: skip
    parser.add_argument(
        "--systems",
        nargs="+",
        default=[],
        metavar="WORD",
        help="whose names have one of these",
    )
    parser.add_argument("--runs", type=int, help="how often each is measured")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument(
        "--output", type=Path, default=Path(".bench"), help="a directory on the disk to measure"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
