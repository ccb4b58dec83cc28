"""Reading once: from the starting to the ending offsets, as they are when planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from headrace.client.kafka.cluster import KafkaCluster
from headrace.spark.filters import Narrowing, narrow
from headrace.spark.options import ReadOptions
from headrace.spark.plain_errors import told_plainly
from headrace.spark.planning import Planner, batch_ranges, connect, narrowed
from headrace.spark.rows import read_range
from headrace.spark.schema import arrow_schema
from headrace.spark.splits import Split, cut


class HeadraceReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(options.shape, schema)
        self._narrowing = Narrowing()

    @told_plainly
    def partitions(self) -> list[InputPartition]:
        options = self._options
        with connect(options) as cluster:
            planner = Planner(options, cluster)
            ranges = narrowed(planner, batch_ranges(planner, options), self._narrowing)
            if options.decoding is not None and options.decoding.to_dead_letters:
                from headrace.spark.letters import ensure_letters

                assert isinstance(cluster, KafkaCluster)
                topics = planner.existing_topics()
                ensure_letters(cluster, {n: len(t.partitions) for n, t in topics.items()})
        return [
            Split(each)
            for each in cut(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there is nothing to read, Spark makes up one empty partition.
        if isinstance(partition, Split):
            yield from read_range(self._options, self._schema, partition.range)


class PushingReader(HeadraceReader):
    """Looks at filters, which a session has to allow."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._narrowing = narrow(filters)
        return filters
