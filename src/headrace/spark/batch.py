"""Reading once: from the starting to the ending offsets, as they are when planned."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.spark.options import ReadOptions
from headrace.spark.planning import Planner, batch_ranges, connect
from headrace.spark.rows import read_range
from headrace.spark.schema import arrow_schema
from headrace.spark.splits import Split, cut


class HeadraceReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(options.shape, schema)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with connect(options) as cluster:
            ranges = batch_ranges(Planner(options, cluster), options)
        return [
            Split(each)
            for each in cut(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there is nothing to read, Spark makes up one empty partition.
        if isinstance(partition, Split):
            yield from read_range(self._options, self._schema, partition.range)
