"""The log of a Delta table, kept by delta-rs on the driver.

A commit is one version of the table: the files that executors wrote, the files
that they replace, and the writer's batch as an application transaction. Two
drivers that commit the same batch meet in the log, where one of them loses.

Rejected: delta-spark. Its wheel has no jar, so it needs Maven at run time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headrace.core.errors import TableChanged
from headrace.core.extras import require
from headrace.pipelines import delta_changes
from headrace.pipelines.datafiles import DataFile, Shape
from headrace.pipelines.evolution import check_columns
from headrace.pipelines.partitioning import partition_text
from headrace.pipelines.store import Store
from headrace.pipelines.table_log import Vacuumed

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_1_US = -62_135_596_800_000_000
_YEAR_10000_US = 253_402_300_800_000_000
# How often a commit is tried that met another one in the log. One that takes files out
# meets any other.
_TRIES = 20


class DeltaLog:
    def __init__(self, store: Store, time_column: str) -> None:
        require("deltalake", "pipelines")
        self._store = store
        self._time_column = time_column
        self._table: DeltaTable | None = None

    def exists(self) -> bool:
        from deltalake import DeltaTable

        if self._table is not None:
            return True
        with self._store.explained():
            return DeltaTable.is_deltatable(self._store.uri, self._store.delta_options())

    def create(self, schema: pa.Schema, shape: Shape) -> None:
        from deltalake import DeltaTable

        if self.exists():
            return
        with self._store.explained():
            self._table = DeltaTable.create(
                self._store.uri,
                schema,
                mode="ignore",
                partition_by=list(shape.partition_by),
                storage_options=self._store.delta_options(),
            )

    def partition_by(self) -> tuple[str, ...] | None:
        # It never changes, so no look at the log is needed.
        table = self._table or self._latest()
        return tuple(table.metadata().partition_columns)

    def files(self) -> list[DataFile]:
        import pyarrow as pa

        actions = pa.table(self._latest().get_add_actions(flatten=True)).to_pylist()
        return [_data_file(action, self._time_column) for action in actions]

    def last_batch(self, writer: str) -> int | None:
        return self._latest().transaction_version(writer)

    def schema(self) -> StructType | None:
        return delta_changes.schema_of_table(self._latest())

    def commit(
        self,
        add: Sequence[DataFile],
        remove: Sequence[DataFile],
        *,
        transaction: tuple[str, int] | None,
        data_change: bool,
        columns: StructType | None = None,
    ) -> bool:
        from deltalake.exceptions import CommitFailedError

        batches = dict([transaction] if transaction else [])
        for left in reversed(range(_TRIES)):
            table = self._latest()
            if transaction and _is_in(table, transaction):
                return False
            if not delta_changes.has_files(table, remove):
                return False
            if columns is not None:
                check_columns(delta_changes.schema_of_table(table), columns, self._store.uri)
            try:
                with self._store.explained(CommitFailedError):
                    table.create_write_transaction(
                        [*self._adds(add, data_change), *_removes(remove, data_change)],
                        "append",
                        table.schema(),
                        partition_by=table.metadata().partition_columns,
                        commit_properties=delta_changes.properties(
                            table, batches, removes=bool(remove)
                        ),
                    )
                break
            except CommitFailedError as error:
                # Another driver of this writer was first, or files or columns were
                # replaced: what is there now says which.
                if not left:
                    reason = self._store.shown(str(error))
                    raise TableChanged(
                        f"{self._store.uri} changes faster than it can be written: {reason}"
                    ) from None
        return True

    def replace(
        self,
        add: Sequence[DataFile],
        remove: Sequence[DataFile],
        *,
        seen: Mapping[str, int],
        schema: StructType,
    ) -> bool:
        table = self._latest()
        with self._store.explained():
            return delta_changes.replace(
                table,
                self._adds(add, True),
                remove,
                _removes(remove, True),
                seen=seen,
                schema=schema,
            )

    def _adds(self, files: Sequence[DataFile], data_change: bool) -> list[Any]:
        from deltalake.transaction import AddAction

        return [
            AddAction(
                file.path,
                file.size,
                file.partition,
                _now_ms(),
                data_change,
                _statistics(file, self._time_column),
            )
            for file in files
        ]

    def clean(self) -> None:
        # Whoever began to read before may still do so: delta's own week.
        with self._store.explained():
            self._latest().vacuum(dry_run=False)

    def vacuum(self, retention_hours: int, *, dry_run: bool) -> Vacuumed:
        """Delete what no version of the last hours has, also what killed tasks left."""
        table = self._latest()
        with self._store.explained():
            paths = table.vacuum(
                retention_hours, dry_run=True, enforce_retention_duration=False, full=True
            )
            sizes = {item.path: item.size for item in self._store.items(recursive=True)}
            gone = [(path, sizes.get(path, 0)) for path in paths]
            if gone and not dry_run:
                table.vacuum(
                    retention_hours, dry_run=False, enforce_retention_duration=False, full=True
                )
        return Vacuumed([path for path, _ in gone], sum(size for _, size in gone))

    def _latest(self) -> DeltaTable:
        from deltalake import DeltaTable

        with self._store.explained():
            if self._table is None:
                self._table = DeltaTable(
                    self._store.uri, storage_options=self._store.delta_options()
                )
            else:
                self._table.update_incremental()
        return self._table


def _removes(files: Sequence[DataFile], data_change: bool) -> list[Any]:
    from deltalake.transaction import RemoveAction

    return [
        RemoveAction(file.path, data_change, _now_ms(), file.size, dict(file.partition))
        for file in files
    ]


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _is_in(table: DeltaTable, transaction: tuple[str, int]) -> bool:
    last = table.transaction_version(transaction[0])
    return last is not None and last >= transaction[1]


def _statistics(file: DataFile, time_column: str) -> str:
    statistics: dict[str, Any] = {"numRecords": file.rows}
    if file.low_us is not None and file.high_us is not None and _are_years(file):
        statistics["minValues"] = {time_column: _iso(file.low_us)}
        statistics["maxValues"] = {time_column: _iso(file.high_us)}
    return json.dumps(statistics)


def _are_years(file: DataFile) -> bool:
    """Whether the times can be written as dates. A record may bear any time; a file
    without statistics is read by everybody, so leaving them out loses nothing."""
    assert file.low_us is not None and file.high_us is not None
    return _YEAR_1_US <= file.low_us and file.high_us < _YEAR_10000_US


def _iso(time_us: int) -> str:
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _data_file(action: dict[str, Any], time_column: str) -> DataFile:
    prefix = "partition."
    return DataFile(
        # The log has paths as URIs.
        unquote(action["path"]),
        action["size_bytes"],
        action["num_records"] or 0,
        {
            name[len(prefix) :]: partition_text(action[name])
            for name in action
            if name.startswith(prefix)
        },
        _microseconds(action.get(f"min.{time_column}")),
        _microseconds(action.get(f"max.{time_column}")),
        {},
    )


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // timedelta(microseconds=1)
