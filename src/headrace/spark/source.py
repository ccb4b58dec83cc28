"""The data source that Spark finds under the name `headrace`.

Options are checked when a query is planned: by `schema` and again wherever Spark makes
a reader or a writer, each in a process of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.spark.batch import HeadraceReader
    from headrace.spark.stream import HeadraceStreamReader


class HeadraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        from headrace.spark.options import parse_shape
        from headrace.spark.schema import table_ddl

        return table_ddl(parse_shape(self.options), None)

    def reader(self, schema: StructType) -> HeadraceReader:
        from headrace.spark.batch import HeadraceReader
        from headrace.spark.options import parse_read_options

        return HeadraceReader(parse_read_options(self.options, "batch"), schema)

    def streamReader(self, schema: StructType) -> HeadraceStreamReader:
        from headrace.spark.options import parse_read_options
        from headrace.spark.stream import HeadraceStreamReader

        return HeadraceStreamReader(parse_read_options(self.options, "stream"), schema)
