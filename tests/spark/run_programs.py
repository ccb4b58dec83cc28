"""Runs the programs of `programs.py` in a Spark of their own:

    python -m tests.spark.run_programs FORMAT SERVERS FOLDER    prints the rows of each, as JSON
    python -m tests.spark.run_programs --record                 kafka on Apache Kafka, into ANSWERS

Needs Spark's own Kafka source, from Maven.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.ecosystem.tools import BROKERS
from tests.spark.programs import PROGRAMS, Rows, Shop
from tests.spark.session import start_session

ANSWERS = Path(__file__).parent / "programs.json"
PROJECT = Path(__file__).parent.parent.parent
PLACE = PROJECT / ".cache" / "spark-programs"


def recorded() -> dict[str, Rows]:
    """What each program gave with Spark's own source on Apache Kafka."""
    answers: dict[str, Rows] = json.loads(ANSWERS.read_text())
    return answers


def in_a_process(format: str, servers: str, folder: Path) -> dict[str, Rows]:
    words = [sys.executable, "-m", "tests.spark.run_programs", format, servers, str(folder)]
    done = subprocess.run(words, cwd=PROJECT, stdout=subprocess.PIPE, check=True, text=True)
    answers: dict[str, Rows] = json.loads(done.stdout)
    return answers


def run(format: str, servers: str, folder: Path) -> dict[str, Rows]:
    scratch = folder / "spark"
    scratch.mkdir(parents=True)
    spark = start_session(scratch)
    try:
        shop = Shop(spark, format, servers, folder)
        shop.open()
        answers = {}
        for program in PROGRAMS:
            print(program.__name__, file=sys.stderr, flush=True)
            answers[program.__name__] = program(shop)
        return answers
    finally:
        spark.stop()


def record() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    broker = BROKERS["kafka"](PLACE / "broker")
    broker.start()
    try:
        answers = run("kafka", broker.bootstrap, PLACE / "programs")
    finally:
        broker.stop()
    lines = (f"  {json.dumps(name)}: {json.dumps(rows)}" for name, rows in answers.items())
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        record()
    else:
        print(json.dumps(run(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
