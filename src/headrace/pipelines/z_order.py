"""Rows in Z-order: near in one of several columns is near in the file.

    rank of each value in its column, as 16 bits
    x = a b c d     y = A B C D     ->  key = a A b B c C d D

Row groups then have a narrow range of each column, so that a condition on any of them
reads few. With one column it is that column's order.

Rejected: delta-rs's own z_order. See maintenance.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.core.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.pipelines.datafiles import Shape

_BITS = 16
# More columns would leave a key of 64 bits, and no order worth having.
COLUMNS_MAX = 4
_BATCH_ROWS = 100_000


def check_order(name: str, schema: pa.Schema, shape: Shape) -> None:
    """InvalidArgument when rows of a file cannot be ordered by this column."""
    import pyarrow as pa

    if name in shape.partition_by:
        raise InvalidArgument(
            f"{name!r} is the same in all rows of a file, since the table is partitioned by it"
        )
    if name not in schema.names:
        raise InvalidArgument(
            f"there is no column {name!r} to order by; there are: {', '.join(schema.names)}"
        )
    if pa.types.is_nested(schema.field(name).type):
        raise InvalidArgument(f"rows cannot be ordered by {name!r}, which has several values")


def in_z_order(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of one file, which are all in memory meanwhile."""
    import pyarrow as pa

    if len(columns) > COLUMNS_MAX:
        raise InvalidArgument(f"rows can be put in Z-order by up to {COLUMNS_MAX} columns")
    rows = pa.Table.from_batches(list(batches), schema=schema)
    if rows.num_rows:
        yield from rows.take(_order(rows, columns)).to_batches(max_chunksize=_BATCH_ROWS)


def _order(rows: pa.Table, columns: Sequence[str]) -> Any:
    import numpy
    import pyarrow.compute as pc

    if len(columns) == 1:
        return pc.sort_indices(rows, sort_keys=[(columns[0], "ascending")])
    key = numpy.zeros(rows.num_rows, dtype=numpy.uint64)
    for place, name in enumerate(columns):
        ranks = pc.rank(rows[name], sort_keys="ascending", tiebreaker="dense").to_numpy()
        spread = (ranks.astype(numpy.uint64) - 1) * (2**_BITS - 1) // max(1, int(ranks.max()) - 1)
        for bit in range(_BITS):
            value = (spread >> numpy.uint64(bit)) & numpy.uint64(1)
            key |= value << numpy.uint64(bit * len(columns) + len(columns) - 1 - place)
    return numpy.argsort(key, kind="stable")
