"""What a table asks of its log: which files count, and what each writer did last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.pipelines.datafiles import DataFile, Shape

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Vacuumed(NamedTuple):
    paths: list[str]
    size: int


class TableLog(Protocol):
    """Which files are part of the table, and what each writer committed last."""

    def create(self, schema: pa.Schema, shape: Shape) -> None:
        """Begin the table unless it exists."""

    def exists(self) -> bool: ...

    def partition_by(self) -> tuple[str, ...] | None:
        """The columns that the existing table is partitioned by; None when nothing says."""

    def files(self) -> list[DataFile]: ...

    def last_batch(self, writer: str) -> int | None: ...

    def commit(
        self,
        add: Sequence[DataFile],
        remove: Sequence[DataFile],
        *,
        transaction: tuple[str, int] | None,
        data_change: bool,
        columns: StructType | None = None,
    ) -> bool:
        """All of it or nothing. False when the writer's batch was there already, or a
        file to remove is no longer part of the table. InvalidArgument when rows of
        these columns do not fit the table."""

    def schema(self) -> StructType | None:
        """The table's columns; None when there is no table, or its log does not say."""

    def replace(
        self,
        add: Sequence[DataFile],
        remove: Sequence[DataFile],
        *,
        seen: Mapping[str, int],
        schema: StructType,
    ) -> bool:
        """Put files in the place of others, and the schema in the place of the table's,
        in one commit. Then each writer in `seen` has that batch in the table. False, and
        nothing has changed, when one of them has a later batch, or the table has not the
        files that it should have: those to remove, and no others when columns change
        that there are."""

    def clean(self) -> None:
        """Delete files that were taken out long ago."""

    def vacuum(self, retention_hours: int, *, dry_run: bool) -> Vacuumed:
        """Delete files that are part of nothing, and have not been for so long."""
