"""`headrace serve`: a node that programs written for Kafka talk to."""

from __future__ import annotations

import gc
import os
import sys
import tomllib
from typing import Any

import click

from headrace.cli.command import command
from headrace.cli.logs import set_up_logging
from headrace.core.errors import InvalidArgument
from headrace.core.node_settings import Sourced, sourced_settings


def settings_options(function: Any) -> Any:
    """The flags that every command about a node's settings takes."""
    for option in reversed(
        (
            click.option("--config", type=click.Path(), help="A TOML file with settings."),
            click.option("--kafka", metavar="HOST:PORT", help="Where Kafka clients connect."),
            click.option("--kafka-advertised", metavar="HOST:PORT", help="What they are told."),
            click.option("--http", metavar="HOST:PORT", help="Where HTTP clients connect."),
            click.option("--http-hosts", metavar="NAMES", help="Names that the node goes by."),
            click.option("--http-origins", metavar="ORIGINS", help="Whose pages may use it."),
            click.option("--dashboard", type=click.Choice(("off", "read-only", "full"))),
            click.option("--grpc", metavar="HOST:PORT", help="Where gRPC clients connect."),
            click.option("--insecure", is_flag=True, default=None, help="Listen beyond loopback."),
            click.option("--auto-create-topics/--no-auto-create-topics", default=None),
            click.option("--partitions", type=int, help="Of topics that do not say."),
            click.option("--slow-request-ms", type=int, help="Requests slower than it are logged."),
            click.option("--access-log", is_flag=True, default=None, help="Log every request."),
            click.option("--otlp-endpoint", metavar="URL", help="Where metrics and spans go."),
            click.option("--log-level", type=click.Choice(("debug", "info", "warning", "error"))),
            click.option("--log-format", type=click.Choice(("text", "json"))),
        )
    ):
        function = option(function)
    return function


def read_settings(config: str | None, directory: str, flags: dict[str, Any]) -> Sourced:
    """From the file, the environment and the flags, to be called in a command."""
    file: dict[str, Any] = {}
    path = config or os.environ.get("HEADRACE_CONFIG") or ""
    if path:
        try:
            with open(path, "rb") as stream:
                file = tomllib.load(stream)
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"cannot read {path}: {error}") from error
    if _data_was_typed():
        flags = {**flags, "data": directory}
    return sourced_settings(file, os.environ, flags, file_name=path)


def _data_was_typed() -> bool:
    """--data has a default, which a file may overrule; typed, it has the last word."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    return any(
        each.get_parameter_source("directory") is typed for each in (context, context.find_root())
    )


@command(
    None,
    "serve",
    on_files=True,
    examples="""
    headrace serve --data data/
    headrace serve --kafka 127.0.0.1:0 --log-format json
    HEADRACE_KAFKA=127.0.0.1:19092 headrace serve --config headrace.toml
    """,
)
@settings_options
def serve(directory: str, config: str | None, **flags: Any) -> None:
    """Run a node until it is told to stop (Ctrl-C or SIGTERM)."""
    from headrace.core.extras import require
    from headrace.node.serving import Ready
    from headrace.node.serving import serve as run

    settings, sources = read_settings(config, directory, flags)
    given = frozenset(name for name, source in sources.items() if source != "default")
    set_up_logging(settings.log_level, as_json=settings.log_format == "json")
    # grpc would write lines of its own between ours, whenever a client leaves.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # Threads open large batches and delete files while the loop serves. It lets go of the
    # interpreter many times in a turn, and each time waits so long to have it back; the
    # default is 5 ms.
    sys.setswitchinterval(0.0001)

    # What a start makes stays, so looking at it for garbage again and again is work
    # for nothing; and requests make many objects and few cycles. Nobody is served while
    # garbage is looked for: so not too much at once.
    gc.disable()

    def on_ready(ready: Ready) -> None:
        gc.freeze()
        gc.enable()
        gc.set_threshold(5_000, 5, 100)
        doors = ", ".join(f"{name} on {address}" for name, address in ready.doors.items())
        click.echo(f"ready: {doors}, data in {os.path.abspath(settings.data)}")
        sys.stdout.flush()

    if sys.platform == "win32":
        import asyncio

        asyncio.run(run(settings, on_ready, given))
    else:
        require("uvloop", "server").run(run(settings, on_ready, given))
