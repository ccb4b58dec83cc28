"""Errors that a user is to read: the message alone, once, and no other on top.

Spark shows what a process that plans for it raised, with the traceback of that process,
and behind it a message that is the second half of what it printed. What we refuse is
explained by its message. Tracebacks of everything else stay.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from headrace.core.errors import HeadraceError

P = ParamSpec("P")
Found = TypeVar("Found")
# As spark.sql.execution.pyspark.udf.hideTraceback.enabled does for a whole session.
_HIDE: Final = "SPARK_HIDE_TRACEBACK"


def told_plainly(plan: Callable[P, Found]) -> Callable[P, Found]:
    """What `plan` raises of ours is shown without a traceback, where Spark shows it."""

    @wraps(plan)
    def planned(*arguments: P.args, **named: P.kwargs) -> Found:
        try:
            return plan(*arguments, **named)
        except HeadraceError:
            if _is_spark_process():
                # Spark ends a process that raised, so nothing else comes from this one.
                os.environ[_HIDE] = "1"
            raise

    return planned


def _is_spark_process() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return str(getattr(spec, "name", "")).startswith("pyspark.")


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In place of a reader that could not be made: raises as soon as it is asked.

    Spark stops the reader of a stream whatever happened, and fails over one that was
    never made (UnboundLocalError), so that the reason is lost among its own lines.
    """

    def __init__(self, error: HeadraceError) -> None:
        self._error = error

    @told_plainly
    def _raise(self) -> NoReturn:
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        self._raise()

    def prepareForTriggerAvailableNow(self) -> None:
        self._raise()

    def initialOffset(self) -> dict[str, Any]:
        self._raise()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._raise()

    def read(self, partition: InputPartition) -> Any:
        self._raise()
