"""A path with a space in it: Spark does not look for data sources then, and is told."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.pipelines.session import java_options
from headrace.spark.registering import register
from headrace.spark.source import HeadraceSource


@pytest.mark.parametrize(
    ("python", "registered"),
    [("/srv/headrace/.venv/bin/python", []), ("/srv/my jobs/.venv/bin/python", [HeadraceSource])],
)
def test_the_source_is_registered_where_spark_would_not_find_it(
    monkeypatch: pytest.MonkeyPatch, python: str, registered: list[type]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__file__="/opt/spark/__init__.py"))
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    found: list[type] = []
    session: Any = SimpleNamespace(dataSource=SimpleNamespace(register=found.append))
    register(session)
    assert found == registered


def test_what_java_is_told_has_no_space_in_it() -> None:
    # Java would take what follows the space for the name of a class, and not start.
    told = java_options("/srv/my jobs/log4j2.properties")
    assert told == "-Dlog4j2.configurationFile=file:///srv/my%20jobs/log4j2.properties"
