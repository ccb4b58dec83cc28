"""`python -m benchmarks`: measure this machine. Asserts nothing about speed.

    python -m benchmarks                       everything, in some minutes
    python -m benchmarks publish-one memory    these rows alone
    python -m benchmarks --quick               everything, tiny: whether it works

Results go to standard output as a Markdown table, and to results.json and
results.md in the directory; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from benchmarks import machine, report
from benchmarks.rows import ROWS
from benchmarks.sizes import FULL, QUICK


def main() -> int:
    arguments = _arguments()
    sizes = QUICK if arguments.quick else FULL
    if arguments.runs:
        sizes = sizes._replace(runs=arguments.runs)
    place: Path = arguments.directory
    place.mkdir(parents=True, exist_ok=True)
    kind = machine.filesystem_of(place)
    if kind in machine.NOT_A_DISK and not arguments.quick:
        print(f"benchmarks: {place} is on {kind}, which is not a disk", file=sys.stderr)
        return 2
    known = {row.name: row for row in ROWS}
    chosen = [known[name] for name in arguments.rows] or list(ROWS)
    described = machine.describe(place)
    findings = [report.Findings(row, sizes) for row in chosen]
    for number in range(sizes.runs):
        for found in findings:
            if found.row.once and number:
                continue
            _progress(f"run {number + 1} of {sizes.runs}: {found.title} ... ", end="")
            began = time.perf_counter()
            work = place / "work"
            shutil.rmtree(work, ignore_errors=True)
            try:
                found.add(found.row.measure(work, sizes))
            finally:
                shutil.rmtree(work, ignore_errors=True)
            _progress(f"{time.perf_counter() - began:.1f} s")
    report.write(place, described, findings)
    print(report.markdown(described, findings), end="")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure.")
    parser.add_argument(
        "rows", nargs="*", choices=[[], *(row.name for row in ROWS)], metavar="ROW",
        help=f"of {', '.join(row.name for row in ROWS)}; all when none is named",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument("--runs", type=int, help="how often rows of throughput are repeated")
    parser.add_argument(
        "--directory", type=Path, default=Path(".bench"), help="on the disk to measure"
    )
    return parser.parse_args()


def _progress(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
