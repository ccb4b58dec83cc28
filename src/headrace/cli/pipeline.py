"""`headrace pipeline`: jobs on Spark that turn topics into tables and back.

    headrace pipeline list                                  which there are
    headrace pipeline run rollup --config rollup.toml       until Ctrl-C, or once
    headrace pipeline status --config rollup.toml           how far it is
    headrace pipeline rebuild --config archive.toml         typed tables anew from raw
    headrace pipeline init my-project                       a project of SQL pipelines

Spark is imported by `run` and `rebuild` alone: the other commands answer at once.
"""

from __future__ import annotations

import os
from typing import Any

import click

from headrace.cli.arguments import SETTING, settings_of
from headrace.cli.command import Place, command, json_option, noun
from headrace.cli.completing import pipeline_names, pipeline_settings, topic_names
from headrace.cli.output import iso_moment, iso_time, print_fields, print_table, say, write_json
from headrace.core.errors import InvalidArgument

DEFAULT_SERVER = "127.0.0.1:9092"

pipeline = noun(
    "pipeline",
    "Turn topics into tables and tables into topics, on Spark.",
    examples="""
    headrace pipeline list
    headrace pipeline run rollup --config rollup.toml
    """,
)


@command(pipeline, "list", examples="headrace pipeline list")
@json_option
def list_pipelines(as_json: bool, place: Place) -> None:
    """The pipelines there are, and what each does."""
    from headrace.pipelines.registry import PIPELINES

    if as_json:
        write_json([{"name": each.name, "summary": each.summary} for each in PIPELINES.values()])
        return
    print_table(["name", "what it does"], [[p.name, p.summary] for p in PIPELINES.values()])


@command(
    pipeline,
    "run",
    examples="""
    headrace pipeline run rollup --config rollup.toml
    headrace pipeline run archive --config archive.toml --once
    headrace pipeline run rollup --config rollup.toml --master spark://host:7077
    """,
)
@click.argument("name", shell_complete=pipeline_names)
@click.option("--config", required=True, type=click.Path(), help="A TOML file with settings.")
@click.option("--master", help="Spark's master; all cores of this machine unless given.")
@click.option("--once", is_flag=True, help="Take what is there now, then end.")
@click.option(
    "--set",
    "changes",
    type=SETTING,
    multiple=True,
    shell_complete=pipeline_settings,
    help="A setting that overrules the file.",
)
def run(
    name: str,
    config: str,
    master: str | None,
    once: bool,
    changes: tuple[tuple[str, str | int], ...],
    place: Place,
) -> int:
    """Run a pipeline with the settings of a file.

    Ended by Ctrl-C or SIGTERM it goes on from where it was when it is run again.
    Exit code 1 when the pipeline found something wrong, as an audit may.
    """
    from headrace.pipelines.registry import pipeline_named
    from headrace.pipelines.registry import settings_of as pipeline_settings

    if master and "PYSPARK_GATEWAY_PORT" in os.environ:
        raise InvalidArgument(
            "spark-submit has chosen the master already; give --master to spark-submit, before "
            "the file"
        )
    chosen = pipeline_named(name)
    values = _read_settings(config, changes, place)
    if once:
        values["trigger"] = "once"
    return chosen.run(pipeline_settings(name, values), master=master, say=say)


@command(
    pipeline,
    "status",
    examples="""
    headrace pipeline status --config rollup.toml
    headrace pipeline status --config rollup.toml --json
    """,
)
@click.option("--config", required=True, type=click.Path(), help="The pipeline's TOML file.")
@json_option
def status(config: str, as_json: bool, place: Place) -> int | None:
    """How far a pipeline is: its last batch, its rows, and what it has still to read.

    It reads the pipeline's tables and asks the node; Spark is not started.
    """
    from headrace.pipelines.settings import read_toml
    from headrace.pipelines.status import status_of

    found = status_of(read_toml(config))
    last = found.last
    document = {
        "pipeline": found.pipeline,
        "name": found.name,
        "batches": found.batches,
        "last_batch": last.batch if last else None,
        "done_at": iso_moment(last.done_at) if last else None,
        "seconds": round(last.seconds, 3) if last else None,
        # A clock that went back says nothing.
        "rows_per_second": round(last.rows_in / last.seconds)
        if last and last.seconds > 0
        else None,
        "watermark": iso_time(last.watermark_us // 1000) if last and last.watermark_us else None,
        "rows_in": found.rows_in,
        "rows_out": found.rows_out,
        "rows_late": found.rows_late,
        "rows_bad": found.rows_bad,
        "lag": found.lag,
    }
    if as_json:
        write_json(document)
    else:
        print_fields([(key.replace("_", " "), value) for key, value in document.items()])
        if found.unreachable:
            say(f"the lag is not known: {found.unreachable}")
    return None


@command(
    pipeline,
    "rebuild",
    examples="""
    headrace pipeline rebuild --config archive.toml
    headrace pipeline rebuild --config archive.toml --from 2026-11-15
    """,
)
@click.option("--config", required=True, type=click.Path(), help="The archive's TOML file.")
@click.option("--from", "start", default="", help="Only rows of this day (UTC) and later ones.")
@click.option("--master", help="Spark's master; all cores of this machine unless given.")
@click.option(
    "--set",
    "changes",
    type=SETTING,
    multiple=True,
    shell_complete=pipeline_settings,
    help="A setting that overrules the file.",
)
def rebuild(
    config: str,
    start: str,
    master: str | None,
    changes: tuple[tuple[str, str | int], ...],
    place: Place,
) -> int:
    """Make an archive's typed table anew from its raw one, with the file's value_schema.

    The archive may go on meanwhile, and readers see the old table until the new one is
    whole. Ended before that, it has changed nothing; run it again.
    """
    from headrace.pipelines.archive.rebuild import check_start, run
    from headrace.pipelines.archive.run import Settings
    from headrace.pipelines.registry import settings_of as pipeline_settings

    check_start(start)
    settings = pipeline_settings("archive", _read_settings(config, changes, place))
    assert isinstance(settings, Settings)
    return run(settings, start=start, master=master, say=say)


def _read_settings(
    config: str, changes: tuple[tuple[str, str | int], ...], place: Place
) -> dict[str, Any]:
    """The file's settings, those that overrule them, and the node of --server."""
    from headrace.pipelines.settings import read_toml, with_changes

    values = with_changes(read_toml(config), settings_of(changes))
    if place.server and "path" not in values:
        values.setdefault("servers", place.server)
    return values


@command(pipeline, "init", examples="headrace pipeline init my-project --topic orders")
@click.argument("folder", type=click.Path())
@click.option(
    "--topic",
    default="events",
    show_default=True,
    shell_complete=topic_names,
    help="The topic to read.",
)
def init(folder: str, topic: str, place: Place) -> None:
    """Begin a project of Spark Declarative Pipelines that reads a topic.

    Nothing that is there is overwritten.
    """
    from headrace.pipelines.template import write_project

    for path in write_project(folder, topic=topic, servers=place.server or DEFAULT_SERVER):
        click.echo(path)
    say(f"run it with: cd {folder} && spark-pipelines --properties-file spark.conf run")
