"""`headrace config`: what a node would run with, and who said so."""

from __future__ import annotations

import json
from typing import Any

import click

from headrace.cli.command import command, json_option, noun
from headrace.cli.output import write_json
from headrace.cli.serve import read_settings, settings_options

config = noun(
    "config",
    "Look at a node's settings.",
    examples="headrace config show",
)


@command(
    config,
    "show",
    on_files=True,
    examples="""
    headrace config show > headrace.toml
    headrace config show --config headrace.toml --json
    HEADRACE_PARTITIONS=6 headrace config show
    """,
)
@settings_options
@json_option
def show(directory: str, config: str | None, as_json: bool, **flags: Any) -> None:
    """Print every setting as TOML, with where its value came from.

    It takes the flags of `serve` and reads the same file and environment, so it
    shows what `serve` would run with. The output can be given to --config.
    """
    settings, sources = read_settings(config, directory, flags)
    values = settings.to_mapping()
    if as_json:
        write_json(
            {name: {"value": value, "source": sources[name]} for name, value in values.items()}
        )
        return
    lines = {name: f"{name} = {_toml(value)}" for name, value in values.items()}
    width = max(map(len, lines.values()))
    for name, line in lines.items():
        click.echo(f"{line.ljust(width)}  # {sources[name]}")


def _toml(value: Any) -> str:
    # The strings, numbers and booleans of JSON are TOML's as well.
    return json.dumps(value, ensure_ascii=False)
