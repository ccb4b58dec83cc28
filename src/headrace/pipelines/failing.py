"""Errors of Spark as one line that a person can act on.

    [CAST_INVALID_INPUT] The value '10.5' of the type "STRING" cannot be cast to "BIGINT" ...
    JVM stacktrace: ...                                         is left out
    Traceback (most recent call last): ...                      its last line is kept

A worker's error in Python arrives as text with its traceback, and what is wrong stands at
the traceback's end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

CHARACTERS_MAX = 600
_ENDS = ("JVM stacktrace", "== SQL", "== DataFrame", "\tat ")


def as_one_line(error: Exception) -> str:
    """What is wrong, without where in Spark it was noticed. The sentence about
    `spark.sql.ansi.enabled` goes as well: here the expression is to be mended."""
    lines: list[str] = []
    raised = ""
    is_traceback = False
    for line in str(error).strip().splitlines():
        if line.startswith(_ENDS):
            break
        if "Traceback (most recent call last)" in line:
            is_traceback = True
        elif not is_traceback:
            lines.append(line.strip())
        elif line and not line[0].isspace():
            raised = line
    text = " ".join(filter(None, [*lines, raised])).partition(" If necessary set ")[0]
    return text.removesuffix(".")[:CHARACTERS_MAX] or type(error).__name__


@contextmanager
def no_query_log() -> Iterator[None]:
    """PySpark also logs an error of a query as JSON with its whole stack; here it becomes
    one line. Nothing happens where there is no Spark.

    To make its logger, PySpark makes its own class that of all loggers that the process has
    not made yet. Those of ours, and of our users, stay what they were.
    """
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        yield
        return
    kind = logging.getLoggerClass()
    query_log = PySparkLogger.getLogger("SQLQueryContextLogger")
    logging.setLoggerClass(kind)
    before = query_log.level
    query_log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        query_log.setLevel(before)
        logging.setLoggerClass(kind)


def is_of_spark(error: Exception) -> bool:
    """Without importing Spark, which need not be there."""
    return any(kind.__name__ == "PySparkException" for kind in type(error).__mro__)
