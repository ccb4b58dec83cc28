"""`headrace`: the command line's root, and how every command ends.

    exit code   means
    0           done
    1           the operation failed; stderr has one line, `error: <what> [code]`
    2           the command was typed wrong: an option, or a value that it cannot have
    3           nothing was found, where a script wants to know
    130         interrupted (Ctrl-C); leases were given back
    143         terminated (SIGTERM); leases were given back

A command returns its exit code, or None for 0. Errors of the product are caught
here and nowhere else, so that no command prints a traceback for something that
its user can repair. A traceback is a bug of ours.

Rejected: catching every exception. It would make bugs look like bad input.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import UserDict
from importlib import import_module
from types import FrameType
from typing import Any

import click

from headrace.cli.command import EXIT_FAILED, EXIT_TYPED_WRONG, Group, WrongData
from headrace.cli.completing import folders
from headrace.compiled import is_compiled
from headrace.core.environment import RETIRED, URL_VARIABLE, check_environment
from headrace.core.errors import (
    HeadraceError,
    InvalidArgument,
    OffsetOutOfRange,
    RecordTooLarge,
)
from headrace.core.system_errors import is_pipe_broken

EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_TERMINATED = 128 + signal.SIGTERM
AGAIN_SECONDS = 0.001

# Invalid by what is read or stored, not by what was typed.
OF_THE_DATA = (WrongData, OffsetOutOfRange, RecordTooLarge)

# The first that is set.
SERVER_VARIABLES = [URL_VARIABLE, *(old for old, new in RETIRED.items() if new == URL_VARIABLE)]


# In the order of the help: what comes first is used first. Each is a name in the module of
# that name, which is imported when the command is used: a start uses one, and all of them
# take three times as long.
COMMANDS = (
    "serve",
    "config",
    "topic",
    "publish",
    "consume",
    "work",
    "queue",
    "group",
    "dlq",
    "delayed",
    "txn",
    "pipeline",
    "lake",
    "status",
    "top",
    "doctor",
    "repair",
    "trace",
    "log",
    "bench",
    "demo",
    "completion",
)


class _Commands(UserDict[str, Any]):
    """The commands by name. All names are known, also to click where it looks for the one
    that was meant; a command is imported when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        found: click.Command | None = self.data[name]
        return found or getattr(import_module(f"headrace.cli.{name}"), name)


class Program(Group):
    """The root: everything that a command may raise ends here."""

    def invoke(self, ctx: click.Context) -> Any:
        code = 0
        try:
            check_environment(os.environ)
            code = super().invoke(ctx) or 0
            sys.stdout.flush()
        except HeadraceError as error:
            click.echo(f"error: {_one_line(error)} [{error.code}]", err=True)
            code = EXIT_TYPED_WRONG if _is_typed_wrong(error) else EXIT_FAILED
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        except click.Abort as error:
            # A question that got no, or no answer: the end of the input or Ctrl-C.
            if isinstance(error.__context__, KeyboardInterrupt):
                code = EXIT_INTERRUPTED
            else:
                click.echo("error: not confirmed, so nothing was done [not-confirmed]", err=True)
                code = EXIT_FAILED
        except BrokenPipeError:
            _leave_broken_pipe()
        except OSError as error:
            if error.errno is None or is_pipe_broken(error):
                raise
            # The directory or a file that the user named: missing, not ours, full.
            click.echo(f"error: {_one_line(error)} [os-error]", err=True)
            code = EXIT_FAILED
        ctx.exit(code)


def _is_typed_wrong(error: HeadraceError) -> bool:
    """Whether another command line would do, whatever the data is."""
    return isinstance(error, InvalidArgument) and not isinstance(error, OF_THE_DATA)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _leave_broken_pipe() -> None:
    """The reader has what it wanted, as in `| head`. The interpreter would
    complain when it flushes at exit, so what is left goes nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        # Not a real file, so there is nothing that could complain.
        pass


def _on_terminate(signal_number: int, frame: FrameType | None) -> None:
    # An exception unwinds through every `with`, so that leases are given back
    # and files are closed, as for Ctrl-C.
    raise SystemExit(EXIT_TERMINATED)


def _on_unraisable(ignored: sys.UnraisableHookArgs) -> None:
    """A Ctrl-C that comes while Python runs a `__del__` is printed there and forgotten, and
    the command would go on: it is raised again, a moment later and elsewhere."""
    error = ignored.exc_value
    if not isinstance(error, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(ignored)
        return

    def raise_again(signal_number: int, frame: FrameType | None) -> None:
        raise error

    signal.signal(signal.SIGALRM, raise_again)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)


def _print_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        # Read here: it takes as long as everything else that a short command imports.
        from importlib.metadata import version

        code = "compiled" if is_compiled() else "plain Python"
        click.echo(f"headrace {version('headrace')} ({code})")
        ctx.exit()


@click.group(
    cls=Program,
    commands=_Commands(dict.fromkeys(COMMANDS)),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, and whether the compiled parts are in use.",
)
@click.option(
    "--data",
    "directory",
    metavar="DIR",
    shell_complete=folders,
    envvar="HEADRACE_DATA",
    default="./data",
    show_default=True,
    show_envvar=True,
    help="The directory that holds everything. Every command takes it too.",
)
@click.option(
    "--server",
    metavar="HOST:PORT",
    envvar=SERVER_VARIABLES,
    show_envvar=True,
    help="A running node, instead of a directory. Every command takes it too.",
)
def cli(directory: str, server: str | None) -> None:
    """A durable message queue: a log that is read as a stream or leased as a queue.

    Exit codes: 0 done, 1 failed, 2 typed wrong, 3 nothing found, 130 interrupted.
    """


cli.examples = """
headrace topic create orders
headrace publish orders 'hello'
headrace work orders --group billing --count 1
"""


def main() -> None:
    """The entry point of the `headrace` script."""
    signal.signal(signal.SIGTERM, _on_terminate)
    sys.unraisablehook = _on_unraisable
    cli(prog_name="headrace")
