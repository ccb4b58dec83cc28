"""What makes `format("headrace")` known to Spark, without any registration.

Spark imports every top-level module whose name begins with `pyspark_` when a session
first looks for a data source, and takes its `DefaultSource`. So this stays light:
what reads and writes is imported when it is used.
"""

from headrace.spark.source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
