"""`python -m benchmarks.kafka`: a node under load, beside Apache Kafka.

    python -m benchmarks.kafka                        everything, in about an hour
    python -m benchmarks.kafka --rows latency share   these rows alone
    python -m benchmarks.kafka --quick --no-kafka     tiny sizes: whether it works
    python -m benchmarks.kafka --before ../older      beside a node of that checkout

Results are printed as tables and written to kafka.json and kafka.md in --output;
progress goes to standard error. Nothing is asserted about speed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from benchmarks import machine
from benchmarks.kafka import report
from benchmarks.kafka.apache import VERSION
from benchmarks.kafka.bench import Bench
from benchmarks.kafka.generator import Generator, NotBuilt
from benchmarks.kafka.rows import ROWS
from benchmarks.kafka.sizes import FULL, QUICK


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
    if arguments.clearing_gb:
        sizes = sizes._replace(compact_bytes=int(arguments.clearing_gb * 1e9))
    chosen = [row for row in ROWS if not arguments.rows or row.name in arguments.rows]
    described = machine.describe(place)
    described["command"] = " ".join(["python -m benchmarks.kafka", *sys.argv[1:]])
    # Ended from outside, it still ends its brokers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        generator = Generator.build(place)
    except NotBuilt as error:
        # There is nothing to measure with; that is what every row says.
        measured = [report.Measured(row, [], f"not run: {error}") for row in chosen]
    else:
        bench = Bench(
            place, sizes, generator, kafka=not arguments.no_kafka, before=arguments.before
        )
        try:
            measured = [_measure(row, bench, is_tiny=arguments.quick) for row in chosen]
        finally:
            bench.close()
        described["peer"] = _peer(bench, arguments.before)
    described["load after"] = machine.describe(place)["load"]
    report.write(place, described, measured)
    report.print_table(measured, Console(width=None if sys.stdout.isatty() else 160))
    return 0


def _measure(row: report.Row, bench: Bench, *, is_tiny: bool) -> report.Measured:
    print(f"{row.name}: {row.title}", file=sys.stderr, flush=True)
    began = time.perf_counter()
    lines: list[report.Line] = []
    failure = ""
    try:
        for line in row.measure(bench):
            lines.append(line._replace(target=None) if is_tiny else line)
    except Exception as error:
        # Whatever went wrong with a broker or a client is told in the report; the
        # rows after this one can still be measured.
        failure = f"{type(error).__name__}: {error}"
        print(f"    {failure}", file=sys.stderr)
    print(f"    {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return report.Measured(row, lines, failure)


def _peer(bench: Bench, before: Path | None) -> str:
    if before is not None:
        return f"a node of {before}, commit {machine.commit(before)}"
    if bench.no_kafka:
        return f"not run: {bench.no_kafka}"
    return f"Apache Kafka {VERSION}, KRaft, one node"


def _checkout(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / ".venv/bin/python").is_file():
        raise argparse.ArgumentTypeError(
            f"{path} is not a checkout that is set up; run make check there once"
        )
    return path


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka", description="Measure.")
    names = [row.name for row in ROWS]
    parser.add_argument(
        "--rows", nargs="+", choices=names, default=[], metavar="ROW",
        help=f"of {', '.join(names)}; all when none is named",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument("--no-kafka", action="store_true", help="measure ours alone")
    parser.add_argument(
        "--before", type=_checkout, metavar="CHECKOUT",
        help="measure a node of this checkout, which is set up, in Kafka's place",
    )  # fmt: skip
    parser.add_argument("--runs", type=int, help="how often rows of throughput are repeated")
    parser.add_argument(
        "--clearing-gb", type=float, help="what the row `clearing` compacts and deletes"
    )
    parser.add_argument(
        "--output", type=Path, default=Path(".bench"), help="a directory on the disk to measure"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
