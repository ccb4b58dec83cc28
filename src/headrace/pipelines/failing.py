"""Errors of Spark as one line that a person can act on.

[CAST_INVALID_INPUT] The value '10.5' of the type "STRING" cannot be cast to "BIGINT" ...
JVM stacktrace: ...                                         is left out
"""

from __future__ import annotations

CHARACTERS_MAX = 600


def as_one_line(error: Exception) -> str:
    """What is wrong, without where in Spark it was noticed. The sentence about
    `spark.sql.ansi.enabled` goes as well: here the expression is to be mended."""
    lines = []
    for line in str(error).strip().splitlines():
        if line.startswith(("JVM stacktrace", "== SQL", "== DataFrame", "\tat ", "Traceback")):
            break
        lines.append(line.strip())
    text = " ".join(filter(None, lines)).partition(" If necessary set ")[0]
    return text.removesuffix(".")[:CHARACTERS_MAX] or type(error).__name__


def is_of_spark(error: Exception) -> bool:
    """Without importing Spark, which need not be there."""
    return any(kind.__name__ == "PySparkException" for kind in type(error).__mro__)
