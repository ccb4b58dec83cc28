"""What makes `format("headrace")` known where Spark does not look for it.

Spark finds the source by itself (see `pyspark_headrace`), but not where the path of its Python
or its own has a space in it: it asks a shell for the one without quotes, and looks for the other
at an address in which the space is %20. It says nothing, and the source is not found.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(session: SparkSession) -> None:
    """Make the source known to this session, if Spark does not find it there."""
    import pyspark

    paths = (os.environ.get("PYSPARK_PYTHON", sys.executable), str(pyspark.__file__))
    if not all(map(is_looked_at, paths)):
        from headrace.spark.source import HeadraceSource

        session.dataSource.register(HeadraceSource)


def is_looked_at(path: str) -> bool:
    """Whether Spark looks for sources where its Python, or itself, lies at this path."""
    return not any(character.isspace() for character in path)
