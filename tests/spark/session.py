"""How tests start Spark: small, quiet, on the loopback, with this checkout in reach."""

from __future__ import annotations

import logging
import os
import sys
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.maven import NoJars
from benchmarks.spark.kafka_jars import connector

from headrace.pipelines.session import java_options
from headrace.spark.registering import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Rows are few here, and compiling a plan takes longer than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}

# One executor at each worker, small enough to stand beside everything else.
CLUSTER_SETTINGS = {
    "spark.executor.memory": "512m",
    # As drivers are started: tests/conftest.py says why.
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


@cache
def kafka_source() -> tuple[Path, ...]:
    """The jars of Spark's own Kafka source; none where Maven cannot be reached."""
    import pyspark

    try:
        return tuple(connector(pyspark.__version__).jars)
    except NoJars as error:
        print(error, file=sys.stderr)
        return ()


def environment() -> dict[str, str]:
    """What Spark and its Python workers need around them."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def leave_handlers_alone() -> None:
    """PySpark's loggers of query errors make each handler that they are given write JSON. They do
    not propagate, so pytest gives them its own, and `caplog.text` would be JSON for all tests
    that follow in this process."""
    from pyspark.logger import PySparkLogger

    kind = logging.getLoggerClass()
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        logger.addHandler = partial(logging.Logger.addHandler, logger)  # type: ignore[method-assign]
    logging.setLoggerClass(kind)


def start_session(folder: Path, master: str = "local[2,4]") -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.update(environment())
    leave_handlers_alone()
    (folder / "log4j2.properties").write_text(
        "rootLogger.level = error\n"
        "rootLogger.appenderRef.stdout.ref = console\n"
        "appender.console.type = Console\n"
        "appender.console.name = console\n"
        "appender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %p %c{1}: %m%n\n"
    )
    builder = SparkSession.builder.master(master).appName("headrace-tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    if master.startswith("spark:"):
        for name, value in CLUSTER_SETTINGS.items():
            builder = builder.config(name, value)
    if master.startswith("local"):
        builder = builder.config("spark.jars", ",".join(map(str, kafka_source())))
    logging = java_options(str(folder / "log4j2.properties"))
    session: SparkSession = (
        builder.config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"{logging} -Dderby.system.home={folder}")
        .getOrCreate()
    )
    register(session)
    return session
