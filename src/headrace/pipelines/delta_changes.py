"""Changes of a Delta table's columns and files in one version, by delta-rs.

    files for files            an append with remove actions
    files and other columns    an overwrite: delta-rs removes all files and writes the
                               metadata, in one version
    new columns alone          ALTER TABLE ADD COLUMNS

What else is committed at the same time meets these in the log: a batch of a writer that
is named by its application transaction, whatever removes files by one that all such
commits share, and any append by the metadata. One of the two is then refused.

Rejected: to leave it to delta-rs that two commits which remove the same file meet. It
(1.6) lets the second one pass when the first was a compaction, and rows are there twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from headrace.pipelines.datafiles import DataFile

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql.types import StructType

# The application transaction of every commit that takes files out.
_REMOVALS = "headrace-removals"


def schema_of_table(table: DeltaTable) -> StructType:
    from pyspark.sql.types import StructType

    # Delta Lake writes schemas as Spark does.
    return StructType.fromJson(json.loads(table.schema().to_json()))


def has_files(table: DeltaTable, files: Sequence[DataFile]) -> bool:
    return not files or {file.path for file in files} <= _paths(table)


def replace(
    table: DeltaTable,
    add: Sequence[Any],
    remove: Sequence[DataFile],
    remove_actions: Sequence[Any],
    *,
    seen: Mapping[str, int],
    schema: StructType,
) -> bool:
    """`TableLog.replace` for a table that was just loaded."""
    from deltalake.exceptions import CommitFailedError

    if any((table.transaction_version(each) or 0) > batch for each, batch in seen.items()):
        return False
    try:
        if schema == schema_of_table(table):
            return _replace_files(table, add, remove, remove_actions, seen)
        if not add and not remove:
            return _add_columns(table, schema)
        return _overwrite(table, add, remove, seen, schema)
    except CommitFailedError:
        # It may be this commit itself that was met, where its answer was lost and the store
        # was asked again. No other one adds these files.
        table.update_incremental()
        return not _paths(table).isdisjoint(each.path for each in add)


def _replace_files(
    table: DeltaTable,
    add: Sequence[Any],
    remove: Sequence[DataFile],
    remove_actions: Sequence[Any],
    seen: Mapping[str, int],
) -> bool:
    if not has_files(table, remove):
        return False
    _commit(table, [*add, *remove_actions], "append", table.schema(), seen)
    return True


def _overwrite(
    table: DeltaTable,
    add: Sequence[Any],
    remove: Sequence[DataFile],
    seen: Mapping[str, int],
    schema: StructType,
) -> bool:
    from deltalake import Schema

    if {file.path for file in remove} != _paths(table):
        return False
    _commit(table, list(add), "overwrite", Schema.from_json(schema.json()), seen)
    return True


def _add_columns(table: DeltaTable, schema: StructType) -> bool:
    """Also fields of structs: delta-rs merges the columns with those that are there."""
    from deltalake import Schema

    table.alter.add_columns(list(Schema.from_json(schema.json()).fields))
    return True


def _commit(
    table: DeltaTable, actions: list[Any], mode: str, schema: Any, seen: Mapping[str, int]
) -> None:
    table.create_write_transaction(
        actions,
        mode,
        schema,
        partition_by=table.metadata().partition_columns,
        commit_properties=properties(table, seen, removes=True),
    )


def properties(table: DeltaTable, batches: Mapping[str, int], *, removes: bool) -> CommitProperties:
    """Each writer has this batch in the table from now on."""
    from deltalake import CommitProperties, Transaction

    transactions = [Transaction(*each) for each in sorted(batches.items())]
    if removes:
        count = (table.transaction_version(_REMOVALS) or 0) + 1
        transactions.append(Transaction(_REMOVALS, count))
    return CommitProperties(
        app_transactions=transactions or None,
        # delta-rs puts a commit behind others that came since without a look at what they
        # took out, so with files to remove the table has to be as it was seen.
        max_commit_retries=0 if removes else None,
    )


def _paths(table: DeltaTable) -> set[str]:
    import pyarrow as pa

    paths = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
    # The log has paths as URIs.
    return {unquote(path) for path in paths}
