"""Where a lake is: a folder, or a bucket of an object store.

    lake/orders   file:///lake/orders          files of this machine, by pyarrow
    hdfs://name/lake                           by pyarrow, as Hadoop is set up
    s3://  gs://  az://  abfss://              by delta-rs, on the driver and in tasks

All that knows the difference is here: tables, logs and readers ask a Store for a
file system, for paths below it and for what Spark or delta-rs is to be told. A
Store is a value that travels to executors with the options that it has, so they
need no configuration of their own. What is secret among them is in no text.

Rejected: Spark's own connectors for object stores. Their jars are not on PyPI.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.extras import require
from headrace.pipelines.store_errors import explain, without_secrets
from headrace.pipelines.store_options import SCHEMES, checked_options

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# How long the first look may take; what follows has delta-rs's own patience, or that
# which the options ask for.
_LOOK = {"connect_timeout": "5s", "timeout": "10s", "max_retries": "2", "retry_timeout": "10s"}


class Item(NamedTuple):
    """A file or a folder below a store."""

    path: str
    is_folder: bool
    size: int
    # None where the file system does not say.
    changed_ns: int | None


class Store:
    def __init__(
        self,
        location: str,
        options: Mapping[str, str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """InvalidArgument when nothing can be at this location, or an option is wrong."""
        self.uri, self.provider = _placed(location)
        given = dict(options or {})
        if self.provider:
            known = os.environ if environment is None else environment
            given = checked_options(self.provider, given, known)
        elif given:
            raise InvalidArgument(
                f"storage options are given ({', '.join(sorted(given))}), but {location!r} is no "
                "object store; remove them, or name a bucket, as in: s3://bucket/lake"
            )
        self.options = given

    def __repr__(self) -> str:
        return f"Store({self.uri!r})"

    @property
    def is_object_store(self) -> bool:
        return bool(self.provider)

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    def below(self, name: str) -> Store:
        found: Store = object.__new__(Store)
        found.uri = f"{self.uri.rstrip('/')}/{name}"
        found.provider, found.options = self.provider, self.options
        return found

    def delta_options(self) -> dict[str, str] | None:
        """What delta-rs is told besides the URI."""
        return dict(self.options) if self.provider else None

    def filesystem(self) -> tuple[FileSystem, str]:
        """pyarrow's view, and the path of this store in it."""
        return self._filesystem(self.options)

    def _filesystem(self, options: dict[str, str]) -> tuple[FileSystem, str]:
        from pyarrow import fs

        if self.provider:
            require("deltalake", "pipelines")
            from deltalake.fs import DeltaStorageHandler

            return fs.PyFileSystem(DeltaStorageHandler(self.uri, options)), ""
        if self.is_local:
            return fs.LocalFileSystem(), os.path.abspath(self.uri)
        found: tuple[FileSystem, str] = fs.FileSystem.from_uri(self.uri)
        return found

    def items(self, *, recursive: bool = False) -> list[Item]:
        """What is there, by its path below this store; nothing when it does not exist."""
        from pyarrow import fs

        filesystem, root = self.filesystem()
        with self.explained():
            return _items(filesystem, root, fs.FileSelector(root, True, recursive))

    def delete(self, paths: Iterable[str]) -> None:
        """Files that are gone already are no error."""
        filesystem, root = self.filesystem()
        with self.explained():
            for path in paths:
                try:
                    filesystem.delete_file(posixpath.join(root, path))
                except FileNotFoundError:
                    continue

    def check(self) -> None:
        """One short look, so that a wrong name, key or address is told in a few seconds
        and in words. Of files there is nothing to tell beforehand."""
        if not self.provider:
            return
        with self.explained():
            filesystem, root = self._filesystem(_LOOK | self.options)
            # Listing asks for the bucket too; asking for one file would not tell a bucket
            # that is not there from a file that is not.
            from pyarrow import fs

            filesystem.get_file_info(fs.FileSelector(root, allow_not_found=False))

    def error(self, error: Exception) -> HeadraceError | None:
        """What is wrong in words, or None when it is not about the store."""
        return explain(self.uri, self.provider, self.options, error) if self.provider else None

    @contextmanager
    def explained(self, *passed: type[Exception]) -> Iterator[None]:
        """Turns errors of an object store into errors that say what to do. `passed`: kinds
        that the caller handles itself."""
        ours: tuple[type[Exception], ...] = (HeadraceError, *passed)
        try:
            yield
        except ours:
            raise
        except Exception as error:
            found = self.error(error)
            if found is None:
                raise
            # Not `from error`: the text of the first may hold what must not be shown.
            raise found from None

    def shown(self, text: str) -> str:
        return without_secrets(text, self.options)

    def spark_paths(self, paths: Iterable[str]) -> tuple[str, list[str]] | None:
        """The root and the files as Spark's own reader takes them; None where it cannot
        read and `datafiles.read_tasks` has to."""
        if self.provider:
            return None
        root = self.uri.rstrip("/")
        return root, [f"{root}/{path}" for path in paths]


def _items(filesystem: Any, root: str, selector: Any) -> list[Item]:
    found = []
    for info in filesystem.get_file_info(selector):
        path = info.path[len(root) :].strip("/") if root else info.path.strip("/")
        is_folder = info.type.name == "Directory"
        changed_ns = None if info.mtime_ns is None else int(info.mtime_ns)
        found.append(Item(path, is_folder, 0 if is_folder else info.size, changed_ns))
    return found


def _placed(location: str) -> tuple[str, str]:
    """The location as all of us write it, and the provider of an object store or ""."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        if location.startswith("file:/"):
            return unquote(location.removeprefix("file:")), ""
        return location, ""
    scheme = scheme.lower()
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            raise InvalidArgument(
                f"{location!r} names the machine {host!r}; a file URI has three slashes, as in: "
                "file:///srv/lake"
            )
        return unquote(f"/{path}"), ""
    if scheme in ("hdfs", "viewfs"):
        return location, ""
    if scheme not in SCHEMES:
        raise InvalidArgument(
            f"{scheme}:// is not a store that can hold a lake; use a path, or one of "
            f"{', '.join(f'{each}://' for each in (*SCHEMES, 'hdfs', 'file'))}"
        )
    canonical, provider = SCHEMES[scheme]
    _check_bucket(location, canonical, rest)
    return f"{canonical}://{rest}", provider


def _check_bucket(location: str, scheme: str, rest: str) -> None:
    host = rest.partition("/")[0]
    user, at, _ = host.rpartition("@")
    if ":" in user or (at and not scheme.startswith("abfs")):
        # It may be a key, so the location is not repeated.
        raise InvalidArgument(
            f"keys do not belong into a {scheme}:// location, which everybody sees; give them as "
            "storage options or in the environment"
        )
    if not host:
        raise InvalidArgument(f"{location!r} names no bucket; write: {scheme}://bucket/lake")
    if urlsplit(location).query or urlsplit(location).fragment:
        raise InvalidArgument(
            f"a {scheme}:// location has no '?' and no '#'; give options as storage options"
        )
