"""The demo's metrics: a generator at a steady rate, and Spark that rolls them up.

    generator ──> topic "metrics" ──> rollup on Spark ──> tables in .demo/lake
      thread                            thread

Both run beside the other steps, since Spark takes its time to start. The metrics are
those of the last hours, at many times their speed, so that whole hours pass in the
demo. Some are late, some are broken; how many is known, and the tables have to agree.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

from headrace.cli.demo_words import note, say
from headrace.cli.output import Progress, print_table, progress
from headrace.core.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.cli.demo_steps import Demo

SECONDS = 15
PER_SECOND = 2_000
TICKS_PER_SECOND = 10
EVENT_HOURS = 2.5
SERIES = [("latency_ms", {"host": f"web-{n}", "path": p}) for n in range(4) for p in ("/", "/pay")]
SERIES += [("cpu", {"host": f"web-{n}"}) for n in range(4)]
LATE_EVERY = 211
LATE_MS = 40 * 60_000
BAD_EVERY = 503
BATCHES = 4
_WAIT_SECONDS = 0.2


def missing_parts() -> str | None:
    """What Spark needs and this machine has not; None when all is there."""
    for module, extra in (("pyspark", "spark"), ("deltalake", "pipelines")):
        if importlib.util.find_spec(module) is None:
            return f"{module} (pip install 'headrace[{extra}]')"
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return "Java 17 or later (apt install openjdk-17-jre-headless)"
    return None


def values_of(count: int, now_ms: int) -> list[bytes]:
    """So many metrics of the last hours, in the order in which they are published."""
    chance = random.Random(7)
    start_ms = now_ms - round(EVENT_HOURS * 3_600_000)
    values = []
    for number in range(count):
        at_ms = start_ms + (now_ms - start_ms) * number // count
        name, labels = SERIES[number % len(SERIES)]
        if number % BAD_EVERY == BAD_EVERY - 1:
            values.append(b'{"name": "cpu", "value": "much"}')
            continue
        if number % LATE_EVERY == LATE_EVERY - 1:
            at_ms -= LATE_MS
        # A slow wave over the hours, and a long tail, as in real life.
        wave = 1 + 0.4 * math.sin(at_ms / 1_800_000)
        value = chance.lognormvariate(3, 0.6) * wave if name == "latency_ms" else 0.3 * wave
        metric = {"name": name, "labels": labels, "ts": at_ms, "value": round(value, 3)}
        values.append(json.dumps(metric).encode())
    return values


class Metrics:
    """The generator's and the rollup's threads, and what they have done so far."""

    def __init__(self, demo: Demo, folder: str) -> None:
        self.total = SECONDS * PER_SECOND
        self.bad = self.total // BAD_EVERY
        self.published = 0
        self.rolled = 0
        self.spark: SparkSession | None = None
        self.started = threading.Event()
        self._demo = demo
        self._folder = folder
        self._stopping = threading.Event()
        self._failures: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._watched, args=(work,), daemon=True)
            for work in (self._publish, self._roll_up)
        ]

    def begin(self) -> None:
        with self._demo.connect() as handle:
            handle.create_topic("metrics", partitions=2)
        for thread in self._threads:
            thread.start()

    def wait(self, bar: Progress) -> None:
        """Until every metric has been through the rollup."""
        while self.rolled < self.total:
            self.check()
            bar.reach(self.rolled)
            self._stopping.wait(_WAIT_SECONDS)
        bar.reach(self.total)

    def end(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self.check()

    def check(self) -> None:
        if self._failures:
            raise self._failures[0]

    def settings(self) -> Any:
        from headrace.pipelines.rollup.job import RollupSettings

        return RollupSettings.from_mapping(
            {
                "pipeline": "rollup",
                "servers": self._demo.node.address,
                "topic": "metrics",
                "lake": os.path.join(self._folder, "lake"),
                "trigger": "1s",
                "rows_per_batch_max": self.total // BATCHES,
                "master": "local[2]",
            }
        )

    def _watched(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self._failures.append(error)
            self.started.set()

    def _publish(self) -> None:
        from headrace import NewMessage

        values = values_of(self.total, round(time.time() * 1000))
        tick = PER_SECOND // TICKS_PER_SECOND
        began = time.monotonic()
        with self._demo.connect() as handle:
            for start in range(0, self.total, tick):
                batch = [NewMessage(value) for value in values[start : start + tick]]
                self.published += len(handle.publish_many("metrics", batch))
                due = began + (start + tick) / PER_SECOND
                if self._stopping.wait(max(0.0, due - time.monotonic())):
                    return

    def _roll_up(self) -> None:
        from headrace.pipelines.rollup.job import RollupJob
        from headrace.pipelines.running import follow, read_stream
        from headrace.pipelines.session import start_session

        settings = self.settings()
        self.spark = start_session(settings)
        self.started.set()

        def report(done: Any) -> None:
            self.rolled += done.rows_in

        follow(
            read_stream(self.spark, settings),
            RollupJob(settings),
            settings,
            report=report,
            stopped=self._stopping.is_set,
        )


# Steps.


def begin_metrics(demo: Demo) -> None:
    lacking = missing_parts()
    if lacking is not None:
        say(f"skipped: metrics on Spark, which need {lacking}")
        return
    demo.metrics = Metrics(demo, demo.folder)
    demo.metrics.begin()
    say(
        f"a generator publishes {counted(demo.metrics.total, 'metric')}, {PER_SECOND:,} a "
        "second, late and "
        "broken ones among them; Spark starts beside it"
    )


def triage(demo: Demo) -> None:
    if demo.metrics is None:
        return
    say("a triage on Spark says what the dead letters have in common")
    demo.metrics.started.wait()
    demo.metrics.check()
    from headrace.pipelines.triage.run import TriageSettings
    from headrace.pipelines.triage.run import triage as run

    assert demo.metrics.spark is not None
    place = {"servers": demo.node.address, "topic": "orders"}
    demo.report = os.path.join(demo.folder, "triage.html")
    plan = os.path.join(demo.folder, "redrive.toml")
    settings = TriageSettings.from_mapping(place | {"report": demo.report, "plan": plan})
    findings = run(demo.metrics.spark, settings)
    for kind in findings.kinds[:3]:
        note(f"{kind.letters:,} of group {kind.group}: {kind.signature}")
    note(f"the whole of it: {os.path.relpath(demo.report)}")


def roll_up(demo: Demo) -> None:
    from headrace.pipelines.rollup.reading import reconcile

    metrics = demo.metrics
    if metrics is None:
        return
    say("the rollup on Spark turns the metrics into minutes, 5 minutes and hours")
    with progress("rolling up", metrics.total) as bar:
        metrics.wait(bar)
    metrics.end()
    assert metrics.spark is not None
    settings = metrics.settings()
    found = reconcile(metrics.spark, settings)
    note(
        f"{found.rows_in:,} in = {found.rows_closed:,} in closed windows + {found.rows_open:,} in "
        f"open ones + {found.rows_late:,} late + {found.rows_bad:,} bad"
    )
    _print_last_hour(metrics.spark, settings)
    metrics.spark.stop()
    demo.numbers["metrics rolled up"] = found.rows_rolled
    demo.numbers["metrics that came too late"] = found.rows_late
    counted = found.rows_closed + found.rows_open + found.rows_late + found.rows_bad
    demo.checks.append(("metrics that the tables account for", metrics.published, counted))
    demo.checks.append(("broken metrics found", metrics.bad, found.rows_bad))


def _print_last_hour(spark: SparkSession, settings: Any) -> None:
    from pyspark.sql import functions as F

    from headrace.pipelines.rollup.job import RollupTables

    hours = RollupTables(settings).rollups["1h"].read(spark)
    latest = hours.agg(F.max("window_start").alias("latest"))
    rows = hours.join(latest, hours["window_start"] == latest["latest"])
    print_table(
        ("series, in the last whole hour", "count", "mean", "p50", "p95", "p99"),
        [
            (row.series, row["count"], row["mean"], row.p50, row.p95, row.p99)
            for row in rows.orderBy("series").limit(6).collect()
        ],
    )


SPARK_STEPS = (begin_metrics, triage, roll_up)
