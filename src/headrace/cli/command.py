"""The shape that all commands share: examples in the help, and a place to work on.

    @command(topic, "list", examples="headrace topic list --json")
    @json_option
    def list_topics(place: Place, as_json: bool) -> int | None: ...

A place is a directory (`--data`) or a running node (`--server`), and a command does
the same on both. It takes the two after its name as well as before it, since nobody
remembers where they belong. Commands that only look open a directory read-only, so
that they work beside a process that has it open for writing.

    typed            before what the environment says
    environment      HEADRACE_DATA or HEADRACE_URL
    nothing said     ./data
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from headrace.cli.arguments import DURATION
from headrace.cli.completing import folders
from headrace.core.errors import Disconnected, InvalidArgument, Unreachable

if TYPE_CHECKING:
    from headrace.client.asynchronous import AsyncHeadrace, Opening
    from headrace.client.backend import Backend
    from headrace.client.handle import Headrace

EXIT_FAILED = 1
# The same that click ends with.
EXIT_TYPED_WRONG = 2
EXIT_NOTHING_FOUND = 3
# A signal that arrives just before a thread blocks is noticed when it wakes up,
# so no command blocks for longer than this without looking.
BLOCK_SECONDS_MAX = 0.5

Found = TypeVar("Found")
Function = TypeVar("Function", bound=Callable[..., Any])


class WrongData(InvalidArgument):
    """The command may be right: what it was to read is not there, or is something else."""


class _WithExamples(click.Command):
    """Help that ends with commands to copy. They are printed as they are."""

    examples: str = ""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            formatter.write_paragraph()
            formatter.write("Examples:\n")
            for line in self.examples.strip().splitlines():
                formatter.write(f"  {line.strip()}\n")


class Command(_WithExamples):
    pass


class Group(_WithExamples, click.Group):
    command_class = Command

    def spelled_out(self, words: list[str]) -> list[str]:
        """What was typed, with the command that it leaves out."""
        return words

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added: what comes first is used first."""
        return list(self.commands)


def noun(name: str, summary: str, *, examples: str) -> Group:
    """A group of commands about one thing."""
    group = Group(name, help=summary)
    group.examples = examples
    return group


class Place(NamedTuple):
    """What a command works on: a node, where `server` is not empty."""

    directory: str
    server: str


def command(
    parent: click.Group | None, name: str, *, examples: str, on_files: bool = False
) -> Callable[[Callable[..., int | None]], Command]:
    """Make the function a command, of `parent` if there is one. It gets `place`
    besides its own options; one that needs the files themselves gets `directory`."""

    def decorate(function: Callable[..., int | None]) -> Command:
        @wraps(function)
        def call(directory: str | None, server: str | None, **options: Any) -> int | None:
            if on_files:
                return function(directory=_directory(directory, server), **options)
            return function(place=_place(directory, server), **options)

        made = click.command(name, cls=Command)(call)
        made.params += [_directory_option(), _server_option(is_hidden=on_files)]
        made.examples = examples
        if parent is not None:
            parent.add_command(made)
        return made

    return decorate


def _directory_option() -> click.Option:
    return click.Option(
        ["--data", "directory"],
        metavar="DIR",
        shell_complete=folders,
        help="The directory that holds everything.  [default: HEADRACE_DATA or ./data]",
    )


def _server_option(*, is_hidden: bool) -> click.Option:
    return click.Option(
        ["--server"],
        metavar="HOST:PORT",
        hidden=is_hidden,
        help="A running node, instead of a directory.  [default: HEADRACE_URL]",
    )


def _place(directory: str | None, server: str | None) -> Place:
    """From what was typed, here or before the command, and from the environment."""
    root = click.get_current_context().find_root()
    said: dict[ParameterSource, dict[str, str]] = {
        ParameterSource.COMMANDLINE: {},
        ParameterSource.ENVIRONMENT: {},
    }
    for name, here in (("directory", directory), ("server", server)):
        source = root.get_parameter_source(name)
        if source in said:
            said[source][name] = root.params[name]
        if here is not None:
            said[ParameterSource.COMMANDLINE][name] = here
    for values, names in zip(
        said.values(), ("--data and --server", "HEADRACE_DATA and HEADRACE_URL"), strict=True
    ):
        if len(values) == 2:
            raise click.UsageError(f"{names} are both given; a command works on one of them")
        if values:
            return Place(values.get("directory", ""), values.get("server", ""))
    return Place(root.params["directory"], "")


def place_of(context: click.Context) -> Place:
    """What a command that is being typed will work on."""
    given = context.params.get("directory"), context.params.get("server")
    # Where it is hidden: see `command`.
    on_files = any(getattr(each, "hidden", False) for each in context.command.params)
    with context.scope(cleanup=False):
        return Place(_directory(*given), "") if on_files else _place(*given)


def _directory(directory: str | None, server: str | None) -> str:
    """For commands that know nothing but files; a node in the environment is not
    meant for them."""
    context = click.get_current_context()
    root = context.find_root()
    if server or root.get_parameter_source("server") is ParameterSource.COMMANDLINE:
        raise click.UsageError(
            f"{context.command_path} works on files, not on a node; run it where they are, "
            "with --data DIR"
        )
    return str(root.params["directory"]) if directory is None else directory


def wait_in_slices(
    attempt: Callable[[float], list[Found]],
    wait_seconds: float | None,
    *,
    endures: bool = False,
) -> list[Found]:
    """The first answer of `attempt` that is not empty, asked with a time to
    wait; empty when the whole wait is over, never when that is None. `endures`: a node
    that is away is waited for as a message is."""
    end = None if wait_seconds is None else time.monotonic() + wait_seconds
    while True:
        left = BLOCK_SECONDS_MAX if end is None else max(0.0, end - time.monotonic())
        try:
            found = attempt(min(left, BLOCK_SECONDS_MAX))
        except (Unreachable, Disconnected):
            # The calls themselves have paused between their attempts.
            if not endures:
                raise
            found = []
        if found or (end is not None and time.monotonic() >= end):
            return found


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for programs.")(
        function
    )


def yes_option(function: Function) -> Function:
    return click.option("--yes", is_flag=True, help="Do it without asking.")(function)


# For commands that go on until they are told to stop: a node that is away is waited for.
SETTLE_SECONDS = 30.0


def retry_option(function: Function) -> Function:
    return click.option(
        "--retry",
        "retry_ms",
        type=DURATION,
        help="How long to wait for a node that is away.  [default: as long as it takes]",
    )(function)


def stay_connected(place: Place, retry_ms: int | None) -> dict[str, Any]:
    """How such a command opens its place: options of `open_handle` and its like."""
    if not place.server:
        return {}
    seconds = None if retry_ms is None else retry_ms / 1000
    # What has to be settled is not tried for ever, or nothing could stop the command.
    retry = SETTLE_SECONDS if seconds is None else seconds
    return {"retry": retry, "wait": seconds, "reconnect": seconds is None}


def stay_looking(place: Place, retry_ms: int | None) -> dict[str, Any]:
    """How a command opens its place that only looks: every call can be sent again, for as
    long as it takes."""
    if not place.server:
        return {}
    seconds = None if retry_ms is None else retry_ms / 1000
    return {"retry": seconds, "wait": seconds}


def open_handle(
    place: Place, *, read_only: bool = False, create: bool = False, **connection: Any
) -> Headrace:
    """The SDK's handle on the place; use it in a `with`. `connection` says how to connect
    to a node.

    Only a command that makes something makes the directory: elsewhere a
    mistyped path would look like an empty queue.
    """
    import headrace

    if place.server:
        return headrace.connect(place.server, **connection)
    if not create:
        check_exists(place.directory)
    with _opening_files():
        return headrace.open(place.directory, read_only=read_only)


def open_async_handle(place: Place, **connection: Any) -> Opening[AsyncHeadrace]:
    """As `open_handle`, for asyncio: use it by `async with`."""
    import headrace

    if place.server:
        return headrace.connect_async(place.server, **connection)
    check_exists(place.directory)
    return headrace.open_async(place.directory)


@contextmanager
def open_backend(place: Place, *, read_only: bool = False, **connection: Any) -> Iterator[Backend]:
    """What the SDK itself stands on, for commands that look at records as they
    are stored or that change what the SDK has no word for."""
    backend = _open_backend(place, read_only, connection)
    try:
        yield backend
    finally:
        backend.close()


def _open_backend(place: Place, read_only: bool, connection: dict[str, Any]) -> Backend:
    if place.server:
        from headrace.client.connecting import open_backend

        return open_backend(place.server, **connection)
    from headrace.node import Node

    check_exists(place.directory)
    with _opening_files():
        return Node.open(place.directory, read_only=read_only)


@contextmanager
def _opening_files() -> Iterator[None]:
    """Where nothing but the directory itself can be invalid."""
    try:
        yield
    except InvalidArgument as error:
        raise WrongData(str(error)) from error


def check_exists(directory: str) -> None:
    if os.path.isdir(directory):
        return
    if os.path.exists(directory):
        raise WrongData(f"{directory!r} is a file; name a directory with --data")
    raise WrongData(
        f"there is no directory {directory!r}; name yours with --data or HEADRACE_DATA, "
        "or make one with: headrace topic create NAME"
    )
