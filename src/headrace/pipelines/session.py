"""The Spark session of a pipeline, wherever it runs.

    headrace pipeline run    a session of our own: `local[*]`, or --master
    spark-submit             the session that spark-submit set up
    a notebook, a test       the session that is there

Executors run the interpreter that the driver runs, and the driver speaks on the
loopback when all is on one machine: both are what people expect and not what
Spark does by default.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.extras import require
from headrace.spark.registering import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.settings import PipelineSettings

LOCAL = "local[*]"
# Small by Spark's measure, since a rollup's groups are few; [spark] overrules.
_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_DEFAULTS = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}


@contextmanager
def spark_session(settings: PipelineSettings, master: str | None = None) -> Iterator[SparkSession]:
    """The active session, or a new one with the settings' choices that ends here. Whether the
    lake's object store answers is seen first, which takes less time than a session."""
    settings.check_reach()
    sql = require("pyspark.sql", "spark")
    active: SparkSession | None = sql.SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    session = start_session(settings, master)
    try:
        yield session
    finally:
        session.stop()


def start_session(settings: PipelineSettings, master: str | None = None) -> SparkSession:
    """A session with the settings' choices, for its caller to stop."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = master or settings.master or os.environ.get("SPARK_MASTER", "")
    # spark-submit has said already which master and which settings.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName(f"headrace {settings.instance}")
    values = dict(_DEFAULTS)
    if not submitted:
        builder = builder.master(chosen or LOCAL)
        if (chosen or LOCAL).startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            values |= _LOCAL_DEFAULTS
            quiet = resources.files("headrace.pipelines") / "log4j2.properties"
            values["spark.driver.extraJavaOptions"] = java_options(str(quiet))
    for name, value in (values | settings.spark).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    if not submitted and "spark.log.level" not in settings.spark:
        session.sparkContext.setLogLevel("ERROR")
    register(session)
    return session


def java_options(log_settings: str) -> str:
    """What the driver's Java is told, in words that a space in a path does not cut."""
    return f"-Dlog4j2.configurationFile={Path(log_settings).as_uri()}"
