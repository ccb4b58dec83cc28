"""`headrace work MODULE:APP`: run the workers of an app until told to stop.

On Ctrl-C or SIGTERM nothing more is leased, and what runs may end within the grace;
a second one does not wait for that. A node that is away, or hangs, is not waited for then:
what could not be settled comes again. With --reload the app runs in a process of its
own, which is ended and started again when a Python file below the current directory
changes.

When more than half of the slots are lost to functions that hang, the process replaces
itself by a new one, after a pause that doubles each time (1 s to 1 minute): only that gets
rid of their threads. It keeps its number, its output and its parent, so that whatever
supervises it, or nothing, sees one process.

Rejected: a parent that starts it again. It would be one more process to stop, to signal
and to pay for, whether or not anything ever hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.logs import set_up_logging
from headrace.core.errors import InvalidArgument, WorkersHung

if TYPE_CHECKING:
    from headrace.client.app import App
    from headrace.client.asynchronous import AsyncHeadrace, Opening
    from headrace.client.crew import Crew

WATCH_SECONDS = 0.5
# How long a child may take to end before it is told again.
END_SECONDS = 5.0
# What is left at the end of the grace is settled or given back within this.
LAST_SECONDS = 2.0
PROGRAM = "from headrace.cli.main import main; main()"
# Set for the process that a watching one has started.
RELOADED = "HEADRACE_RELOADED"
# How often in a row a process has replaced itself; over after this much time without.
REPLACED = "HEADRACE_REPLACED"
REPLACED_SECONDS = 300.0
PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 60.0


def load_app(place: str) -> App:
    """The app that `module:name` names; InvalidArgument says what is not there."""
    from headrace.client.app import App

    module_name, _, attribute = place.partition(":")
    if not module_name or not attribute:
        raise InvalidArgument(f"name an app as MODULE:APP, as in shop.workers:app, not {place!r}")
    # As `python -m` does it: what lies here can be imported.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InvalidArgument(
            f"there is no module {error.name!r} here; run this where it can be imported from"
        ) from error
    for name in attribute.split("."):
        found = getattr(found, name, None)  # type: ignore[assignment]
    if not isinstance(found, App):
        raise InvalidArgument(f"{attribute!r} in {module_name} is not a headrace.App")
    return found


def run_app(app: App, opening: Opening[AsyncHeadrace], grace_seconds: float) -> None:
    """Until SIGINT or SIGTERM."""
    set_up_logging("info")
    begun = time.monotonic()
    try:
        asyncio.run(_run(app, opening, grace_seconds))
    except WorkersHung:
        # Said by the crew.
        _replace(time.monotonic() - begun)
    names = tuple(f"{worker.name}_" for worker in app.workers)
    left = [each for each in threading.enumerate() if each.name.startswith(names)]
    if any(each.is_alive() for each in left):
        click.echo("headrace: a function did not end in time and is left alone", err=True)
        sys.stderr.flush()
        # Whatever it is at, it cannot hold up the end.
        os._exit(0)


def _replace(ran_seconds: float) -> None:
    """Run this very command again, in the place of this process. Returns when a signal
    says that it is to end instead."""
    times = int(os.environ.get(REPLACED, "0")) if ran_seconds < REPLACED_SECONDS else 0
    pause = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * 2**times)
    click.echo(f"headrace: starting again in {pause:g} s", err=True)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    if stopping.wait(pause):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[REPLACED] = str(times + 1)
    os.execv(sys.executable, [sys.executable, "-c", PROGRAM, *sys.argv[1:]])


async def _run(app: App, opening: Opening[AsyncHeadrace], grace_seconds: float) -> None:
    from headrace.client.crew import Crew

    loop = asyncio.get_running_loop()
    opening_task = asyncio.current_task()
    assert opening_task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, opening_task.cancel)
    async with contextlib.AsyncExitStack() as stack:
        try:
            handle = await stack.enter_async_context(opening)
        except asyncio.CancelledError:
            # Told to end while there was no node.
            return
        crew = Crew(app, handle)
        running = asyncio.create_task(crew.run(grace=grace_seconds))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _stop, crew, running, handle, grace_seconds)
        try:
            await running
        except asyncio.CancelledError:
            # Told twice: whatever runs was given back.
            return


def _stop(
    crew: Crew, running: asyncio.Task[None], handle: AsyncHeadrace, grace_seconds: float
) -> None:
    if crew.is_stopping:
        running.cancel()
        grace_seconds = 0
    crew.stop()
    loop = asyncio.get_running_loop()
    loop.call_later(grace_seconds + LAST_SECONDS, handle.give_up)


# Reloading.


def is_reloaded() -> bool:
    return RELOADED in os.environ


def run_and_reload() -> None:
    """Run this very command again, as a child, whenever a file changes."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    while not stopping.is_set():
        before = _stamps()
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *sys.argv[1:]], env={**os.environ, RELOADED: "1"}
        )
        while not stopping.wait(WATCH_SECONDS):
            # A child that failed is started again when somebody has changed something.
            if _stamps() != before:
                click.echo("headrace: files changed, starting again", err=True)
                break
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    while child.poll() is None:
        child.terminate()
        # A signal can be lost while Python imports; a second one ends what runs.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(END_SECONDS)


def _stamps() -> dict[str, float]:
    """When each Python file below here was last changed."""
    found = {}
    for folder, folders, files in os.walk("."):
        folders[:] = [each for each in folders if not each.startswith((".", "__pycache__"))]
        for name in files:
            if name.endswith(".py"):
                path = Path(folder, name)
                try:
                    found[str(path)] = path.stat().st_mtime
                except FileNotFoundError:
                    continue
    return found
