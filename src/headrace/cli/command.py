"""The shape that all commands share: examples in the help, and a directory.

    @command(topic, "list", examples="headrace topic list --json")
    @json_option
    def list_topics(directory: str, as_json: bool) -> int | None: ...

Every command takes `--data` after its name as well as before it, since nobody
remembers where it belongs. Commands that only look open it read-only, so that
they work beside a process that has it open for writing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.core.errors import InvalidArgument

if TYPE_CHECKING:
    from headrace.client.asynchronous import AsyncHeadrace, Opening
    from headrace.client.backend import Backend
    from headrace.client.handle import Headrace

EXIT_FAILED = 1
EXIT_NOTHING_FOUND = 3
# A signal that arrives just before a thread blocks is noticed when it wakes up,
# so no command blocks for longer than this without looking.
BLOCK_SECONDS_MAX = 0.5

Found = TypeVar("Found")
Function = TypeVar("Function", bound=Callable[..., Any])


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

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added: what comes first is used first."""
        return list(self.commands)


def noun(name: str, summary: str, *, examples: str) -> Group:
    """A group of commands about one thing."""
    group = Group(name, help=summary)
    group.examples = examples
    return group


def command(
    parent: click.Group | None, name: str, *, examples: str
) -> Callable[[Callable[..., int | None]], Command]:
    """Make the function a command, of `parent` if there is one; it gets
    `directory` besides its own options."""

    def decorate(function: Callable[..., int | None]) -> Command:
        made = click.command(name, cls=Command)(function)
        made.params.append(_directory_option())
        made.examples = examples
        if parent is not None:
            parent.add_command(made)
        return made

    return decorate


def _directory_option() -> click.Option:
    def fall_back(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
        return value if value is not None else str(ctx.find_root().obj)

    return click.Option(
        ["--data", "directory"],
        metavar="DIR",
        callback=fall_back,
        help="The directory that holds everything.  [default: HEADRACE_DATA or ./data]",
    )


def wait_in_slices(
    attempt: Callable[[float], list[Found]], wait_seconds: float | None
) -> list[Found]:
    """The first answer of `attempt` that is not empty, asked with a time to
    wait; empty when the whole wait is over, never when that is None."""
    end = None if wait_seconds is None else time.monotonic() + wait_seconds
    while True:
        left = BLOCK_SECONDS_MAX if end is None else max(0.0, end - time.monotonic())
        found = attempt(min(left, BLOCK_SECONDS_MAX))
        if found or (end is not None and time.monotonic() >= end):
            return found


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for programs.")(
        function
    )


def yes_option(function: Function) -> Function:
    return click.option("--yes", is_flag=True, help="Do it without asking.")(function)


def open_handle(directory: str, *, read_only: bool = False, create: bool = False) -> Headrace:
    """The SDK's handle on the directory; use it in a `with`.

    Only a command that makes something makes the directory: elsewhere a
    mistyped path would look like an empty queue.
    """
    import headrace

    if not create:
        check_exists(directory)
    return headrace.open(directory, read_only=read_only)


def open_async_handle(directory: str) -> Opening[AsyncHeadrace]:
    """As `open_handle`, for asyncio: use it by `async with`."""
    import headrace

    check_exists(directory)
    return headrace.open_async(directory)


@contextmanager
def open_backend(directory: str, *, read_only: bool = False) -> Iterator[Backend]:
    """What the SDK itself stands on, for commands that look at records as they
    are stored or that change what the SDK has no word for."""
    from headrace.node import Node

    check_exists(directory)
    node = Node.open(directory, read_only=read_only)
    try:
        yield node
    finally:
        node.close()


def check_exists(directory: str) -> None:
    if not os.path.isdir(directory):
        raise InvalidArgument(
            f"there is no directory {directory!r}; name yours with --data or HEADRACE_DATA, "
            "or make one with: headrace topic create NAME"
        )
