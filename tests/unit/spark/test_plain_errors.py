"""Errors as Spark's processes show them; `tests/spark` looks at what users see."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructType

from headrace.core.errors import InvalidOption
from headrace.spark.plain_errors import RefusedStream, told_plainly
from headrace.spark.source import HeadraceSource

HIDE = "SPARK_HIDE_TRACEBACK"


@told_plainly
def fail(error: Exception) -> None:
    raise error


def test_tracebacks_of_a_users_own_process_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDE, raising=False)
    with pytest.raises(InvalidOption):
        fail(InvalidOption("no"))
    assert HIDE not in os.environ


@pytest.mark.process
def test_a_process_of_spark_shows_what_we_refuse_without_a_traceback() -> None:
    program = """
import importlib.util, os, sys
sys.modules["__main__"].__spec__ = importlib.util.spec_from_loader("pyspark.daemon", None)
from headrace.core.errors import InvalidOption
from headrace.spark.plain_errors import told_plainly
for error in (ZeroDivisionError(), InvalidOption("no")):
    def fail(): raise error
    try: told_plainly(fail)()
    except type(error): print(os.environ.get("SPARK_HIDE_TRACEBACK"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout.split() == ["None", "1"]


def test_a_stream_that_cannot_be_made_says_why_when_it_is_asked() -> None:
    source = HeadraceSource({"servers": "a:1", "subscribe": "orders", "endingOffsets": "latest"})
    reader = source.streamReader(StructType().add("offset", LongType()))
    assert isinstance(reader, RefusedStream)
    for ask in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
    ):
        with pytest.raises(InvalidOption, match="'endingOffsets' is not for a stream read"):
            ask()
    # Spark does so whatever happened.
    reader.stop()
