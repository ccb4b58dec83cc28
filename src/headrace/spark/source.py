"""The data source that Spark finds under the name `headrace`.

Options are checked when a query is planned: by `schema` and again wherever Spark makes
a reader or a writer, each in a process of its own. So a process imports what it needs
and no more: what it imports, every query waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from headrace.spark.plain_errors import RefusedStream, told_plainly

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.spark.sink import HeadraceStreamWriter, HeadraceWriter


class HeadraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace"

    @told_plainly
    def schema(self) -> str:
        from headrace.spark.options import parse_shape
        from headrace.spark.schema import table_ddl

        return table_ddl(parse_shape(self.options))

    @told_plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.options import parse_read_options

        options = parse_read_options(self.options, "batch")
        if options.view != "stream":
            from headrace.spark.views import ViewReader

            return ViewReader(options, schema)
        from headrace.spark.batch import HeadraceReader, PushingReader

        return (PushingReader if options.push_filters else HeadraceReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from headrace.core.errors import HeadraceError
        from headrace.spark.options import parse_read_options
        from headrace.spark.stream import HeadraceStreamReader

        try:
            return HeadraceStreamReader(parse_read_options(self.options, "stream"), schema)
        except HeadraceError as error:
            return RefusedStream(error)

    @told_plainly
    def writer(self, schema: StructType, overwrite: bool) -> HeadraceWriter:
        from headrace.core.errors import InvalidOption
        from headrace.spark.sink import HeadraceWriter
        from headrace.spark.write_options import parse_write_options

        if overwrite:
            raise InvalidOption("a topic is only ever added to; use mode('append')")
        return HeadraceWriter(parse_write_options(self.options, is_stream=False), schema)

    @told_plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> HeadraceStreamWriter:
        from headrace.spark.sink import HeadraceStreamWriter
        from headrace.spark.write_options import parse_write_options

        return HeadraceStreamWriter(parse_write_options(self.options, is_stream=True), schema)
