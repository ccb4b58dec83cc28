"""What every pipeline is told, and how a TOML file becomes it.

    pipeline = "rollup"            which one; `headrace pipeline list` names them
    servers  = "127.0.0.1:9092"    where the topic is: a node, or
    path     = "data/"             a directory that no process has open
    topic    = "metrics"
    lake     = "lake/metrics"      where the tables go

    [options]                      more options of the connector, as they are
    [spark]                        more settings of Spark, as they are
    [storage]                      options of the lake's object store; secret

Each job has one model, a frozen dataclass with a default for all that can have
one. A wrong file gives one error that names the key and says what to write.

Rejected: a section for each subject. A flat file has one place for each key, and
the same names work as flags.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from headrace.cli.arguments import parse_duration_ms
from headrace.core.errors import InvalidArgument
from headrace.core.settings import SettingsModel, check_between
from headrace.core.values import check_name
from headrace.pipelines.partitioning import PARTITIONINGS, partition_columns
from headrace.pipelines.schema import column_names
from headrace.pipelines.store import Store

# Keys that are tables of names and values: `--set storage.NAME=VALUE` sets one of them.
TABLES = ("options", "spark", "storage")
TableFormat = Literal["delta", "parquet"]


@dataclass(frozen=True, slots=True)
class PipelineSettings(SettingsModel):
    """The keys that all pipelines share."""

    pipeline: str = ""
    # Which instance this is: it names the progress group and the writer in the
    # tables. Two pipelines that write to one lake need two names.
    name: str = ""

    servers: str = ""
    path: str = ""
    topic: str = ""

    options: dict[str, str] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)
    # Keys are among them, so they are left out where settings are printed.
    storage: dict[str, str] = field(default_factory=dict, repr=False)
    master: str = ""

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        if not isinstance(values.get("storage", {}), Mapping):
            raise InvalidArgument(
                "storage must be a table of names and values, as in: "
                'storage.aws_region = "eu-central-1"'
            )
        settings = cls().changed(values)
        settings.check()
        return settings

    def check(self) -> None:
        """What only the whole can say; InvalidArgument names the key."""
        self.check_topic()
        self.check_place()

    def check_topic(self) -> None:
        if not self.topic:
            raise missing("topic", "which topic to read", "metrics")
        check_name("topic", self.topic)

    @property
    def subscription(self) -> dict[str, str]:
        """What is read, in the connector's words."""
        return {"subscribe": self.topic}

    def check_place(self) -> None:
        if self.servers and self.path:
            raise InvalidArgument(
                "servers and path are both given; keep servers to read from a node, or path to "
                "read a directory that no process has open"
            )
        if not self.servers and not self.path:
            raise missing("servers", "where the node is", "127.0.0.1:9092")

    def check_reach(self) -> None:
        """What only a look can say: whether the lake's object store answers and takes us."""

    @property
    def instance(self) -> str:
        return self.name or f"{self.pipeline}-{self.topic}"

    @property
    def bootstrap(self) -> tuple[str, ...]:
        """The servers one by one: several are written with commas."""
        return split_servers(self.servers)


@dataclass(frozen=True, slots=True)
class StreamSettings(PipelineSettings):
    """The keys of pipelines that follow a topic into tables."""

    lake: str = ""
    format: TableFormat = "delta"
    # The checkpoint owns progress; it belongs to the lake, so it lies in it. Of an object
    # store Spark knows nothing: there it has to be named.
    checkpoint: str = ""
    # How the archive's tables are put into folders: day, hour, none, or a column.
    partition_by: str = "day"
    starting_offsets: str = "earliest"
    # How often a batch is made of what came; "once" takes what is there and ends.
    trigger: str = "10s"
    rows_per_batch_max: int = 1_000_000
    # Small files are merged after so many batches; 0 leaves them alone.
    compact_every: int = 50
    # How often a query that failed is started again while it gets no further: a
    # node that is away for a moment should not end the pipeline.
    retries: int = 3

    def __post_init__(self) -> None:
        check_between("rows_per_batch_max", self.rows_per_batch_max, 1, None)
        check_between("compact_every", self.compact_every, 0, None)
        check_between("retries", self.retries, 0, None)
        if not self.partition_by:
            raise InvalidArgument("partition_by must be day, hour, none or a column of the table")
        if self.trigger != "once":
            duration_ms("trigger", self.trigger, "10s, or once")

    def check(self) -> None:
        # super() without arguments does not work in a dataclass with slots.
        PipelineSettings.check(self)
        if not self.lake:
            raise missing("lake", "where the tables go", "lake/metrics")
        self.check_lake()
        self.check_checkpoint()

    def check_lake(self) -> None:
        store = self.store()
        if self.format == "parquet":
            from headrace.pipelines.parquet_log import check_has_links

            check_has_links(self.lake, store)

    def check_checkpoint(self) -> None:
        """Of pipelines that follow a topic."""
        if not self.checkpoint and self.store().is_object_store:
            raise InvalidArgument(
                f"checkpoint is missing: the lake is {self.lake}, and Spark cannot keep its "
                "checkpoint in an object store without Hadoop's libraries for it; name a folder "
                "that every machine sees on which the pipeline may run, as in: "
                f'checkpoint = "/var/lib/headrace/{self.instance}"'
            )

    def check_reach(self) -> None:
        if self.lake:
            self.store().check()

    def store(self) -> Store:
        return Store(self.lake, self.storage)

    @property
    def checkpoint_path(self) -> str:
        return self.checkpoint or f"{self.store().uri.rstrip('/')}/_checkpoint"

    def table_path(self, table: str) -> str:
        return f"{self.lake.rstrip('/')}/{table}"

    def check_partition_by(self, *schemas: str) -> None:
        """InvalidArgument when `partition_by` names a column that none of these has."""
        name = self.partition_by
        columns = [column for each in schemas for column in column_names(each)]
        if name in {*PARTITIONINGS, *columns}:
            return
        for column in columns:
            if column.lower() == name.lower():
                raise InvalidArgument(
                    f"partition_by names the column {name!r}, and the table has {column!r}; "
                    "write it so"
                )
        raise InvalidArgument(
            f"partition_by names the column {name!r}, which no table of the pipeline has; say "
            "day, hour, none, or a column of the raw or the typed table"
        )

    def partition_columns(self, day: str, columns: Iterable[str]) -> tuple[str, ...]:
        """What `partition_by` means for a table with these columns, of which `day` is that
        of days. A table without the column that was asked for is partitioned by day."""
        if self.partition_by not in {*PARTITIONINGS, *columns}:
            return (day,)
        return partition_columns(self.partition_by, day)


def with_changes(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A file's values with those of `--set` in their places: `storage.aws_region` is the
    name `aws_region` in the table `storage`."""
    found = dict(values)
    for name, value in changes.items():
        table, _, inner = name.partition(".")
        if table in TABLES and inner and isinstance(found.get(table, {}), Mapping):
            found[table] = {**found.get(table, {}), inner: value}
        else:
            found[name] = value
    return found


def split_servers(servers: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in servers.split(",") if part.strip())


def missing(key: str, what: str, example: str) -> InvalidArgument:
    return InvalidArgument(f'{key} is missing; say {what}, as in: {key} = "{example}"')


def duration_ms(key: str, text: str, example: str = "10m") -> int:
    try:
        return parse_duration_ms(text)
    except ValueError:
        raise InvalidArgument(f"{key} must be a duration such as {example}, not {text!r}") from None


def read_toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as stream:
            return tomllib.load(stream)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read {path}: {error}") from error
