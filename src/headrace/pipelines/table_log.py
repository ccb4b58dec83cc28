"""What a table asks of its log: which files count, and what each writer did last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.pipelines.datafiles import DataFile, Shape

if TYPE_CHECKING:
    import pyarrow as pa


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
    ) -> bool:
        """All of it or nothing. False when the writer's batch was there already; TableChanged
        when one of the files to remove is not there any more."""

    def clean(self) -> None:
        """Delete files that were taken out long ago."""

    def vacuum(self, retention_hours: int, *, dry_run: bool) -> Vacuumed:
        """Delete files that are part of nothing, and have not been for so long."""
