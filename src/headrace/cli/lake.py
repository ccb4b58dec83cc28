"""`headrace lake`: the tables that pipelines write, kept in shape.

    headrace lake tables lake/orders                        what is there
    headrace lake optimize --config archive.toml            small files become large ones
    headrace lake vacuum s3://bucket/orders --dry-run       what nobody needs any more

A lake is named by its place, or by the settings of a pipeline that writes to it. Spark
is not started, and pipelines may run on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.arguments import DURATION, SETTING, parse_size_bytes, settings_of
from headrace.cli.command import command, json_option, noun
from headrace.cli.output import print_table, progress, say, write_json
from headrace.core.errors import InvalidArgument
from headrace.core.wording import counted, shown_bytes

if TYPE_CHECKING:
    from headrace.pipelines.store import Store

Function = TypeVar("Function", bound=Callable[..., Any])
_HOUR_MS = 3_600_000

lake = noun(
    "lake",
    "Keep the tables that pipelines write in shape.",
    examples="""
    headrace lake tables lake/orders
    headrace lake optimize --config archive.toml
    headrace lake vacuum lake/orders --dry-run
    """,
)


def _lake_options(function: Function) -> Function:
    for option in (
        click.option("--table", "only", multiple=True, help="This table alone; may be repeated."),
        click.option(
            "--set",
            "changes",
            type=SETTING,
            multiple=True,
            help="A setting that overrules the file, such as storage.aws_region=eu-central-1.",
        ),
        click.option("--config", type=click.Path(), help="A pipeline's TOML file, for its lake."),
        click.argument("location", metavar="[LAKE]", required=False, default="", type=click.Path()),
    ):
        function = option(function)
    return function


def _store(location: str, config: str | None, changes: tuple[tuple[str, str | int], ...]) -> Store:
    from headrace.pipelines.settings import read_toml, with_changes
    from headrace.pipelines.store import Store

    values = with_changes(read_toml(config) if config else {}, settings_of(changes))
    if location:
        values["lake"] = location
    if not isinstance(values.get("lake"), str) or not values["lake"]:
        raise InvalidArgument(
            "no lake is named; write its place, as in: headrace lake optimize lake/orders, or "
            "the settings of a pipeline: --config archive.toml"
        )
    storage = values.get("storage", {})
    if not isinstance(storage, dict):
        raise InvalidArgument("storage must be a table of names and values")
    return Store(values["lake"], {str(name): str(value) for name, value in storage.items()})


@command(lake, "tables", examples="headrace lake tables lake/orders", on_files=True)
@_lake_options
@json_option
def tables(
    location: str,
    config: str | None,
    changes: tuple[tuple[str, str | int], ...],
    only: tuple[str, ...],
    as_json: bool,
    directory: str,
) -> None:
    """The tables of a lake, their rows and their files."""
    from headrace.pipelines.maintenance import tables_of

    found = [
        (table, table.log.files()) for table in tables_of(_store(location, config, changes), only)
    ]
    if as_json:
        write_json(
            [
                {
                    "table": table.name,
                    "format": table.format,
                    "partition_by": list(table.log.partition_by() or ()),
                    "rows": sum(file.rows for file in files),
                    "files": len(files),
                    "bytes": sum(file.size for file in files),
                }
                for table, files in found
            ]
        )
        return
    print_table(
        ["table", "format", "partitioned by", "rows", "files", "size"],
        [
            [
                table.name,
                table.format,
                ", ".join(table.log.partition_by() or ()) or "–",
                sum(file.rows for file in files),
                len(files),
                shown_bytes(sum(file.size for file in files)),
            ]
            for table, files in found
        ],
    )


@command(
    lake,
    "optimize",
    examples="""
    headrace lake optimize lake/orders
    headrace lake optimize --config archive.toml --table raw --dry-run
    headrace lake optimize lake/orders --table typed --z-order customer,id
    """,
    on_files=True,
)
@_lake_options
@click.option("--size", default="128MB", show_default=True, help="How large files may become.")
@click.option(
    "--z-order",
    metavar="COLUMNS",
    default="",
    help="Put all rows in an order that helps conditions on these columns; needs --table.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@json_option
def optimize(
    location: str,
    config: str | None,
    changes: tuple[tuple[str, str | int], ...],
    only: tuple[str, ...],
    size: str,
    z_order: str,
    dry_run: bool,
    as_json: bool,
    directory: str,
) -> None:
    """Merge the small files of a lake's tables, within each partition.

    Rows stay as they are, and a pipeline may run on meanwhile. The files that were merged
    are deleted later: see headrace lake vacuum.
    """
    from headrace.pipelines.maintenance import optimize as optimize_table
    from headrace.pipelines.maintenance import tables_of

    order_by = tuple(part.strip() for part in z_order.split(",") if part.strip())
    if order_by and not only:
        raise click.UsageError("--z-order names columns of a table; say which one with --table")
    try:
        size_max = parse_size_bytes(size)
    except ValueError as error:
        raise click.UsageError(f"--size: {error}") from None
    documents = []
    for table in tables_of(_store(location, config, changes), only):
        with progress(table.name, len(table.log.files())) as bar:
            done = optimize_table(
                table,
                size_max=size_max,
                order_by=order_by,
                dry_run=dry_run,
                advance=bar.advance,
            )
        documents.append(done._asdict())
        if not as_json:
            change = (
                f"{counted(done.files_before, 'file')} would be {done.files_after:,}"
                if dry_run
                else f"{counted(done.files_before, 'file')} became {done.files_after:,}, "
                f"{shown_bytes(done.size_before)} became {shown_bytes(done.size_after)}"
            )
            click.echo(f"{done.name}: {change}")
    if as_json:
        write_json(documents)


@command(
    lake,
    "vacuum",
    examples="""
    headrace lake vacuum lake/orders --dry-run
    headrace lake vacuum --config archive.toml
    headrace lake vacuum lake/orders --retention 30d
    """,
    on_files=True,
)
@_lake_options
@click.option(
    "--retention",
    "retention_ms",
    type=DURATION,
    default="7d",
    show_default=True,
    help="How long a file has to be of no use before it is deleted.",
)
@click.option("--force", is_flag=True, help="Take a retention of less than a week.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@json_option
def vacuum(
    location: str,
    config: str | None,
    changes: tuple[tuple[str, str | int], ...],
    only: tuple[str, ...],
    retention_ms: int,
    force: bool,
    dry_run: bool,
    as_json: bool,
    directory: str,
) -> None:
    """Delete files that no table has: replaced ones, and what killed tasks left.

    Younger ones stay, since a reader may have begun before they were replaced and a
    writer may be about to commit them.
    """
    from headrace.pipelines.maintenance import check_retention, tables_of
    from headrace.pipelines.maintenance import vacuum as vacuum_table

    hours = -(-retention_ms // _HOUR_MS)
    check_retention(hours, is_forced=force)
    documents = []
    for table in tables_of(_store(location, config, changes), only):
        done = vacuum_table(table, retention_hours=hours, dry_run=dry_run)
        documents.append(done._asdict())
        if not as_json:
            verb = "would be deleted" if dry_run else "deleted"
            files = counted(done.files, "file")
            click.echo(f"{done.name}: {files} {verb}, {shown_bytes(done.size)}")
    if as_json:
        write_json(documents)
    elif dry_run:
        say("nothing was deleted; it is done without --dry-run")
