"""`python -m benchmarks.spark`: the connector beside its ceilings, and beside Spark's own.

    python -m benchmarks.spark                              everything
    python -m benchmarks.spark --only batch-read --rows 2000000
    python -m benchmarks.spark --rows 20000 --runs 1 --no-kafka       whether it works

Prints a table and writes spark.json into --output. Nothing is asserted about speed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.maven import NoJars
from benchmarks.spark.kafka_jars import connector

PROJECT = Path(__file__).parent.parent.parent


def main() -> int:
    arguments = _arguments()
    place: Path = arguments.output.resolve()
    place.mkdir(parents=True, exist_ok=True)
    described = machine.describe(place)
    described["command"] = " ".join(["python -m benchmarks.spark", *sys.argv[1:]])
    described["pyspark"] = version("pyspark")
    jars: list[Path] = []
    if arguments.no_kafka:
        described["spark-sql-kafka"] = "not run: --no-kafka"
    else:
        try:
            described["spark-sql-kafka"], jars = connector(version("pyspark"))
        except NoJars as error:
            described["spark-sql-kafka"] = f"not run: {error}"
    spark = _session(place, jars)
    from benchmarks.spark.measuring import Bench, Measured
    from benchmarks.spark.rows import ROWS

    bench = Bench(place, spark, arguments.rows, arguments.runs)
    measured: list[Measured] = []
    try:
        for name in arguments.only or ROWS:
            for each in ROWS[name](bench, bool(jars)):
                measured.append(each)
                shown = each.note or (
                    f"{each.rows_per_second / 1e6:.2f} M rows/s, {each.share or 1:.0%}, "
                    f"{each.cpu_seconds:.2f} CPU s/M rows"
                )
                print(f"{each.row:40} {each.system:30} {shown}", file=sys.stderr)
    finally:
        bench.close()
        spark.stop()
    described["load after"] = machine.describe(place)["load"]
    (place / "spark.json").write_text(
        json.dumps({"machine": described, "rows": [each._asdict() for each in measured]}, indent=2)
    )
    _print(measured, described)
    return 0


def _session(place: Path, jars: list[Path]):  # type: ignore[no-untyped-def]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    paths = [str(PROJECT), str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("headrace-benchmarks")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(place / "local"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        **({"spark.jars": ",".join(map(str, jars))} if jars else {}),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _print(measured, described) -> None:  # type: ignore[no-untyped-def]
    table = Table("row", "system", "M rows/s", "of ceiling", "CPU s/M rows")
    for each in measured:
        rate = each.note or f"{each.rows_per_second / 1e6:.2f}"
        share = "" if each.share is None else f"{each.share:.0%}"
        cpu = f"{each.cpu_seconds:.2f}" if each.cpu_seconds else ""
        table.add_row(each.row, each.system, rate, share, cpu)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for name, value in described.items():
        console.print(f"{name}: {value}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--output", type=Path, default=PROJECT / ".bench" / "spark")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
