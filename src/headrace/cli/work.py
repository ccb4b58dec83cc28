"""`headrace work`: lease messages, do something with them, settle them.

    MODULE:APP       the workers of an app: see `work_app`
    --exec COMMAND   the value goes to the command's stdin
                         exit 0      ack: done
                         exit 100    reject: to the dead letters at once
                         any other   nack: again later, the last line of stderr as its error
    without          the value is printed, then acked (or --nack, --reject, --peek)

On Ctrl-C or SIGTERM nothing more is leased, and commands that run may end within the
grace; what is left then, or at a second signal, is ended and its messages given back at
once, without costing an attempt. A node that is away is not waited for beyond that. With
--concurrency each command has a thread that waits for it: only one process may have a
directory open for writing, so more workers have to be in here.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from headrace.cli import work_app
from headrace.cli.arguments import DURATION, settings_of, settings_option
from headrace.cli.command import (
    EXIT_NOTHING_FOUND,
    Place,
    command,
    json_option,
    open_async_handle,
    open_handle,
    retry_option,
    stay_connected,
    wait_in_slices,
)
from headrace.cli.completing import queue_names, topic_names
from headrace.cli.output import (
    flush_lines,
    iso_moment,
    json_bytes,
    json_headers,
    say,
    shown_text,
    stdout_is_terminal,
    write_json_line,
    write_line,
)
from headrace.cli.runner import Runner
from headrace.core.errors import Disconnected, Unreachable
from headrace.core.settings import GroupSettings
from headrace.core.wording import counted, shown_duration

if TYPE_CHECKING:
    from headrace.client.handle import Headrace
    from headrace.client.message import Message
    from headrace.client.queue import Queue

LEASE_MESSAGES = 500
GRACE_SECONDS = 30.0


@command(
    None,
    "work",
    examples="""
    headrace work orders --group billing --exec ./bill.sh
    headrace work orders --group billing --exec 'jq .total' --concurrency 4
    headrace work orders --group billing --count 1 --wait 5s
    headrace work orders --group billing --peek --count 10 --json
    headrace work shop.workers:app --reload
    """,
)
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names)
@click.option("--group", default="default", show_default=True, shell_complete=queue_names)
@click.option("--exec", "shell_command", metavar="COMMAND", help="Run it for each message.")
@click.option("--ack", is_flag=True, help="Print and ack. (default)")
@click.option("--nack", is_flag=True, help="Print and nack: again later.")
@click.option("--reject", is_flag=True, help="Print; to the dead letters.")
@click.option("--peek", is_flag=True, help="Print and give back unchanged.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("--wait", "wait_ms", type=DURATION, help="End when none came for so long.")
@click.option("--visibility", type=DURATION, help="How long a lease lasts.  [default: the group's]")
@click.option("--concurrency", type=click.IntRange(1, 256), default=1, show_default=True)
@settings_option(GroupSettings().to_mapping(), help="A setting of a new group.")
@click.option("--grace", type=DURATION, help="How long what runs may take to end.  [default: 30s]")
@click.option("--reload", "reloads", is_flag=True, help="Of an app: again when a file changes.")
@retry_option
@json_option
def work(
    topics: tuple[str, ...],
    group: str,
    shell_command: str | None,
    ack: bool,
    nack: bool,
    reject: bool,
    peek: bool,
    count: int | None,
    wait_ms: int | None,
    visibility: int | None,
    concurrency: int,
    settings: tuple[tuple[str, str | int], ...],
    grace: int | None,
    reloads: bool,
    retry_ms: int | None,
    as_json: bool,
    place: Place,
) -> int | None:
    """Lease messages of one or more topics and settle them, or run the workers
    of an app that is named as MODULE:APP.

    Runs until Ctrl-C, --count or --wait. Exit code 3 when no message came. An app, and
    what runs commands, ends with 0 when it is told to stop. A node that is away is
    waited for.
    """
    connection = stay_connected(place, retry_ms)
    grace_seconds = GRACE_SECONDS if grace is None else grace / 1000
    if any(":" in topic for topic in topics):
        _work_for_app(topics, grace_seconds, reloads, place, connection)
        return None
    if reloads:
        raise click.UsageError("--reload is for an app: headrace work MODULE:APP")
    if grace is not None and shell_command is None:
        raise click.UsageError("--grace is for --exec, and for an app: headrace work MODULE:APP")
    if ack + nack + reject + peek > 1:
        raise click.UsageError("--ack, --nack, --reject and --peek exclude each other")
    settle = "nack" if nack else "reject" if reject else "release" if peek else "ack"
    if shell_command is not None and settle != "ack":
        raise click.UsageError("with --exec the command's exit code settles the message")
    if settle == "release" and count is None:
        raise click.UsageError("--peek needs --count: what is given back comes again")
    wait_seconds = None if wait_ms is None else wait_ms / 1000
    endures = connection.get("reconnect", False)
    options: dict[str, Any] = settings_of(settings)
    if visibility is not None:
        options["visibility"] = visibility / 1000
    try:
        with (
            open_handle(place, **connection) as handle,
            handle.queue(list(topics), group=group, **options) as queue,
        ):
            if shell_command is None:
                done = _print_messages(queue, settle, count, wait_seconds, as_json, endures)
            else:
                runner = Runner(shell_command, endures=endures)
                grace_at_end = _Grace(handle, grace_seconds)
                done = _run_commands(
                    queue, runner, grace_at_end, count, wait_seconds, concurrency, endures
                )
    except (KeyboardInterrupt, SystemExit):
        if shell_command is None:
            raise
        # It runs until it is told to stop, as an app does, and has stopped.
        return None
    return None if done else EXIT_NOTHING_FOUND


def _work_for_app(
    places: tuple[str, ...],
    grace_seconds: float,
    reloads: bool,
    place: Place,
    connection: dict[str, Any],
) -> None:
    given = click.get_current_context().get_parameter_source
    options = ("shell_command", "count", "wait_ms", "visibility", "concurrency", "settings")
    typed = [name for name in options if given(name) is ParameterSource.COMMANDLINE]
    if len(places) > 1 or typed:
        raise click.UsageError("an app says itself what it works on; give MODULE:APP alone")
    if reloads and not work_app.is_reloaded():
        work_app.run_and_reload()
        return
    app = work_app.load_app(places[0])
    work_app.run_app(app, open_async_handle(place, **connection), grace_seconds)


def _receive(
    queue: Queue[Any], most: int, wait_seconds: float | None, endures: bool
) -> list[Message[Any]]:
    return wait_in_slices(
        lambda wait: queue.receive(max=most, wait=wait), wait_seconds, endures=endures
    )


# Printing.


def _print_messages(
    queue: Queue[Any],
    settle: str,
    count: int | None,
    wait_seconds: float | None,
    as_json: bool,
    endures: bool,
) -> int:
    done = 0
    peeked: list[Message[Any]] = []
    while count is None or done < count:
        most = LEASE_MESSAGES if count is None else min(LEASE_MESSAGES, count - done)
        messages = _receive(queue, most, wait_seconds, endures)
        if not messages:
            break
        for message in messages:
            _print_message(message, as_json)
        # Settled only once it is out of our hands.
        flush_lines()
        done += len(messages)
        if settle == "release":
            # Given back at the end: given back now they would come again.
            peeked += messages
            continue
        try:
            outcomes = getattr(queue, settle)(messages)
        except (Unreachable, Disconnected) as error:
            say(f"{len(messages):,} of them could not be settled and come again: {error}")
            continue
        lost = sum(outcome is not None for outcome in outcomes)
        if lost:
            say(f"{lost:,} of them could not be settled: their leases were over")
    if peeked:
        queue.release(peeked)
    return done


def _print_message(message: Message[Any], as_json: bool) -> None:
    if as_json:
        write_json_line(message_document(message))
    elif stdout_is_terminal():
        write_line(shown_text(message.raw or b"").encode())
    else:
        write_line(message.raw or b"")


def message_document(message: Message[Any]) -> dict[str, Any]:
    return {
        "id": str(message.id),
        "attempt": message.attempt,
        "max_attempts": message.max_attempts,
        "priority": message.priority,
        "created_at": iso_moment(message.created_at),
        "deadline": iso_moment(message.deadline),
        "error": message.error,
        "key": json_bytes(message.key),
        "value": json_bytes(message.raw),
        "headers": json_headers(message.all_headers),
    }


# Running commands.


class _Grace:
    """How long what runs may take to end, once we are told to."""

    def __init__(self, handle: Headrace, seconds: float) -> None:
        self._handle = handle
        self._seconds = seconds

    def wait(self, runner: Runner) -> None:
        """Another signal ends the wait by raising, as the first one did."""
        self._give_up_after(self._seconds)
        # The runner is asked, and not the futures: a signal can come when a command was
        # started and nobody was given its future yet.
        running = runner.unsettled()
        if not running or not self._seconds:
            return
        commands = counted(running, "command")
        grace = shown_duration(round(1000 * self._seconds))
        say(f"waiting up to {grace} for {commands} to end; the next signal ends them now")
        try:
            wait_in_slices(
                lambda seconds: [True] if runner.wait_all_settled(seconds) else [], self._seconds
            )
        except BaseException:
            self._give_up_after(0)
            raise

    def _give_up_after(self, seconds: float) -> None:
        """A node that is away keeps nobody waiting for longer."""
        timer = threading.Timer(seconds + work_app.LAST_SECONDS, self._handle.give_up)
        timer.daemon = True
        timer.start()


def _run_commands(
    queue: Queue[Any],
    runner: Runner,
    grace: _Grace,
    count: int | None,
    wait_seconds: float | None,
    concurrency: int,
    endures: bool,
) -> int:
    done = 0
    running: set[Future[None]] = set()
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="work")
    try:
        while count is None or done < count:
            if len(running) == concurrency:
                _collect(running)
            free = concurrency - len(running)
            most = free if count is None else min(free, count - done)
            messages = _receive(queue, most, wait_seconds, endures)
            if not messages and not running:
                break
            if not messages:
                # Whatever runs may still come back as a retry.
                _collect(running)
            for message in messages:
                running.add(pool.submit(runner.run, message))
            done += len(messages)
        while running:
            _collect(running)
    except (KeyboardInterrupt, SystemExit):
        grace.wait(runner)
        raise
    finally:
        runner.stop()
        pool.shutdown()
    return done


def _collect(running: set[Future[None]]) -> None:
    """Wait until at least one has ended; what went wrong in it is raised."""
    ended = wait_in_slices(
        lambda seconds: list(wait(running, seconds, return_when=FIRST_COMPLETED).done), None
    )
    for future in ended:
        running.discard(future)
        future.result()
