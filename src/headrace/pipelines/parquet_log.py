"""The log of a plain Parquet table: one small JSON file for each commit.

    table/
      date=2026-11-15/part-<batch>-<writer>-<unique>.parquet
      _headrace_log/00000000000000000007.json     {"add": [...], "remove": [...],
                                                   "writer": "...", "batch": 42,
                                                   "schema": {...}}

The schema, as Spark writes it in JSON, is in commits that change it: the first, and those
that add columns or write files anew for other ones.

A commit file appears under its number at once and whole, or not at all: it is
written aside, synced, and linked to its name, which fails when that exists.
Then the files that it removes are deleted, and leftovers of earlier attempts at
the same batch too, so that tools which know nothing of the log and read the
folder see each row once, except between a crash and the restart after it. The price:
a reader that is in the middle of a table while it is compacted has to begin anew.

Rejected: Spark's own `_spark_metadata`. It is written by Spark's file sink only,
which writes one table in a batch and not several.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.core.errors import InvalidArgument
from headrace.pipelines.datafiles import DataFile, Shape, prefix_of
from headrace.pipelines.evolution import check_columns, evolve
from headrace.pipelines.store import Store
from headrace.pipelines.table_log import Vacuumed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

LOG_FOLDER = "_headrace_log"


class ParquetLog:
    def __init__(self, store: Store) -> None:
        check_has_links(store.uri, store)
        self._store = store
        self._root = Path(store.uri)
        self._folder = self._root / LOG_FOLDER
        # What is known so far; commits are only ever added.
        self._next = 0
        self._files: dict[str, DataFile] = {}
        self._batches: dict[str, int] = {}
        self._schema: StructType | None = None

    def exists(self) -> bool:
        return self._folder.is_dir()

    def create(self, schema: pa.Schema, shape: Shape) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def partition_by(self) -> tuple[str, ...] | None:
        # Every file says it, and without one nothing depends on it.
        return next((tuple(file.partition) for file in self.files()), None)

    def files(self) -> list[DataFile]:
        self._catch_up()
        return list(self._files.values())

    def last_batch(self, writer: str) -> int | None:
        self._catch_up()
        return self._batches.get(writer)

    def schema(self) -> StructType | None:
        self._catch_up()
        return self._schema

    def commit(
        self,
        add: Sequence[DataFile],
        remove: Sequence[DataFile],
        *,
        transaction: tuple[str, int] | None,
        data_change: bool,
        columns: StructType | None = None,
    ) -> bool:
        document: dict[str, Any] = {
            "add": [file._asdict() for file in add],
            "remove": [file.path for file in remove],
            "writer": transaction[0] if transaction else None,
            "batch": transaction[1] if transaction else None,
            "data_change": data_change,
        }
        while True:
            self._catch_up()
            was_there = transaction and self._batches.get(transaction[0], -1) >= transaction[1]
            if was_there or not self._has(remove):
                # Another driver was first; our files are not needed.
                self._delete(file.path for file in add)
                return False
            if columns is not None and self._schema is not None:
                check_columns(self._schema, columns, str(self._root))
            elif columns is not None and not self._files:
                document["schema"] = columns.jsonValue()
            if self._write(document):
                break
        self._catch_up()
        self._delete(document["remove"])
        if transaction:
            self._delete_leftovers(add)
        return True

    def replace(
        self,
        add: Sequence[DataFile],
        remove: Sequence[DataFile],
        *,
        seen: Mapping[str, int],
        schema: StructType,
    ) -> bool:
        document: dict[str, Any] = {
            "add": [file._asdict() for file in add],
            "remove": [file.path for file in remove],
            "writer": None,
            "batch": None,
            "batches": dict(seen),
            "data_change": True,
            "schema": schema.jsonValue(),
        }
        while True:
            self._catch_up()
            late = any(self._batches.get(each, -1) > batch for each, batch in seen.items())
            # Another replacement may have taken the new files for leftovers.
            gone = not all((self._root / file.path).exists() for file in add)
            if late or gone or not self._has(remove) or not self._may_become(schema, add, remove):
                return False
            if self._write(document):
                break
        self._catch_up()
        self._delete(document["remove"])
        self._delete_leftovers(add)
        return True

    def clean(self) -> None:
        """Nothing is left: files are deleted when they are taken out."""

    def vacuum(self, retention_hours: int, *, dry_run: bool) -> Vacuumed:
        """Delete what killed tasks left. A file may lie there before its commit does, so
        only what is older than the retention is taken for left behind."""
        before_ns = time.time_ns() - retention_hours * 3_600_000_000_000
        items = self._store.items(recursive=True)
        self._catch_up()
        gone = [
            item
            for item in items
            if item.path.endswith(".parquet")
            and item.path not in self._files
            and item.changed_ns is not None
            and item.changed_ns < before_ns
        ]
        if not dry_run:
            self._store.delete(item.path for item in gone)
        return Vacuumed([item.path for item in gone], sum(item.size for item in gone))

    def _catch_up(self) -> None:
        while (path := self._path(self._next)).exists():
            self._apply(json.loads(path.read_text(encoding="utf-8")))
            self._next += 1

    def _apply(self, document: dict[str, Any]) -> None:
        for path in document["remove"]:
            self._files.pop(path, None)
        for each in document["add"]:
            self._files[each["path"]] = DataFile(**each)
        if document["writer"] is not None:
            self._batches[document["writer"]] = document["batch"]
        self._batches |= document.get("batches", {})
        if "schema" in document:
            from pyspark.sql.types import StructType

            self._schema = StructType.fromJson(document["schema"])

    def _may_become(
        self, schema: StructType, add: Sequence[DataFile], remove: Sequence[DataFile]
    ) -> bool:
        """Whether the files that stay, and those that come, are right by this schema."""
        if self._schema is None or schema == self._schema:
            return True
        if not add and not remove:
            # Another driver may have added columns meanwhile.
            found = evolve(self._schema, schema)
            return not (found.unused or found.rewritten or found.problems)
        return len(remove) == len(self._files)

    def _has(self, files: Sequence[DataFile]) -> bool:
        return all(file.path in self._files for file in files)

    def _write(self, document: dict[str, Any]) -> bool:
        """False when the number was taken meanwhile."""
        aside = self._folder / f".{uuid.uuid4().hex}.tmp"
        try:
            with open(aside, "w", encoding="utf-8") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            os.link(aside, self._path(self._next))
        except FileExistsError:
            # NFS may ask again for a link whose answer was lost, and meet this one.
            return os.stat(aside).st_nlink > 1
        finally:
            aside.unlink(missing_ok=True)
        return True

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:020d}.json"

    def _delete(self, paths: Any) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                (self._root / path).unlink()

    def _delete_leftovers(self, add: Sequence[DataFile]) -> None:
        """Files of earlier attempts lie in the folders of this one: a batch that
        is repeated has the same rows."""
        places = {((self._root / file.path).parent, prefix_of(file.path)) for file in add}
        for folder, prefix in places:
            for path in folder.glob(f"part-{prefix}-*.parquet"):
                if str(path.relative_to(self._root)) not in self._files:
                    path.unlink(missing_ok=True)


def check_has_links(location: str, store: Store) -> None:
    """InvalidArgument where a commit file cannot appear at once and only if there is none
    of its name."""
    if not store.is_local:
        raise InvalidArgument(
            f'lake {location!r} is no path of a file system; format = "parquet" needs one that '
            "every executor sees, since its commits are links, which object stores do not have; "
            'format = "delta" takes object stores'
        )
