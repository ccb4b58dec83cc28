"""`headrace top`: a node or a directory at work, live.

    looker (a thread) --- look every two seconds ---> main thread: keys, drawing

A look may take long, on a directory with many partitions or over a slow network; keys
are answered meanwhile, and the next look waits at least as long as the last one took.
Without a terminal, and with --once, two looks are taken and printed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from headrace.cli.arguments import DURATION
from headrace.cli.attention import Remark, remarks
from headrace.cli.command import Place, command, json_option
from headrace.cli.output import (
    flush_lines,
    iso_time,
    stdout_is_terminal,
    write_json,
    write_json_line,
)
from headrace.cli.top_keys import View
from headrace.cli.top_look import Frame, GroupRow, History, Look, Source, TopicRow
from headrace.cli.top_screen import draw, plain, styled
from headrace.core.errors import HeadraceError

PIPE_COLUMNS = 120
SORTS = {"name": "n", "in": "i", "out": "o", "size": "s", "lag": "l", "oldest": "t", "dead": "d"}


@command(
    None,
    "top",
    examples="""
    headrace top --server 127.0.0.1:9092
    headrace top --data ./data --every 5s --sort lag
    headrace top --once --json
    """,
)
@click.option("--every", type=DURATION, default="2s", show_default=True, help="From look to look.")
@click.option("--once", is_flag=True, help="Print two looks' worth, and end.")
@click.option("--sort", type=click.Choice(list(SORTS)), default="in", show_default=True)
@click.option("--filter", "text", default="", help="Only names that have these letters.")
@json_option
def top(every: int, once: bool, sort: str, text: str, as_json: bool, place: Place) -> None:
    """Watch a node, or a directory that somebody has open: throughput, topics, groups,
    and what needs attention. Press ? for the keys.

    Without a terminal, and with --once, it prints what there is and ends; --json without
    --once prints a line for each look, until Ctrl-C, and waits for a node that is away.
    """
    view = View(sort=SORTS[sort], filter=text)
    is_live = not (as_json or once) and stdout_is_terminal() and sys.stdin.isatty()
    source = Source(place, is_live=is_live, is_patient=as_json and not once)
    try:
        if is_live:
            _watch(source, every / 1000, view)
        elif as_json and not once:
            _write_lines(source, every / 1000, view)
        else:
            _print_once(source, every / 1000, view, as_json)
    finally:
        source.close()


def has_colours() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


# Once, and line by line.


def _print_once(source: Source, seconds: float, view: View, as_json: bool) -> None:
    history = History()
    history.add(source.look())
    time.sleep(seconds)
    frame = history.add(source.look())
    noted = remarks(history.looks)
    if as_json:
        write_json(document(frame, noted, source.name, view))
        return
    width = _columns() if stdout_is_terminal() else PIPE_COLUMNS
    for line in draw(frame, noted, view, source.name, width=width, height=None, is_live=False):
        shown = (
            styled(line, width) if stdout_is_terminal() and has_colours() else plain(line, width)
        )
        click.echo(shown.rstrip())


def _columns() -> int:
    return os.get_terminal_size(sys.stdout.fileno()).columns


def _write_lines(source: Source, seconds: float, view: View) -> None:
    history = History()
    while True:
        frame = history.add(source.look())
        write_json_line(document(frame, remarks(history.looks), source.name, view))
        flush_lines()
        time.sleep(seconds)


def document(frame: Frame, noted: Sequence[Remark], place: str, view: View) -> dict[str, Any]:
    figures = frame.figures
    # Counts by bucket are for the rule about what needs attention.
    hidden = {"syncs", "loop_lag"}
    return {
        "at": iso_time(frame.at_ms),
        "place": place,
        "node": None
        if figures is None
        else {name: each for name, each in figures._asdict().items() if name not in hidden}
        | {"cpu_share": _rounded(frame.cpu_share)},
        "rate_in": _rounded(frame.rate_in),
        "rate_out": _rounded(frame.rate_out),
        "open_transactions": frame.open_transactions,
        "topics": [_row(row) for row in frame.topics if view.filter in row.totals.name],
        "groups": [
            _row(row) | {"behind_ms": row.behind_ms}
            for row in frame.groups
            if view.filter in row.totals.name
        ],
        "attention": [remark._asdict() for remark in noted],
    }


def _row(row: TopicRow | GroupRow) -> dict[str, Any]:
    rates = {"rate_in": _rounded(row.rate_in), "rate_out": _rounded(row.rate_out)}
    return row.totals._asdict() | rates


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


# Live.


class Looker(threading.Thread):
    """Looks again and again, and says when there is something new."""

    def __init__(self, source: Source, seconds: float, on_new: Callable[[], None]) -> None:
        super().__init__(name="headrace-top", daemon=True)
        self._source = source
        self._seconds = seconds
        self._on_new = on_new
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._new: list[Look | HeadraceError | OSError] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                found: Look | HeadraceError | OSError = self._source.look()
            except (HeadraceError, OSError) as error:
                # A node that is started anew comes back.
                found = error
            with self._lock:
                self._new.append(found)
            self._on_new()
            took = time.monotonic() - began
            self._stopping.wait(max(self._seconds - took, took, 0.05))

    def take(self) -> list[Look | HeadraceError | OSError]:
        with self._lock:
            new, self._new = self._new, []
        return new

    def stop(self) -> None:
        self._stopping.set()


def _watch(source: Source, seconds: float, view: View) -> None:
    from headrace.cli.terminal import Terminal

    history = History()
    # The first look is taken before the screen is: what is wrong with the place is said
    # as every command says it.
    frame = history.add(source.look())
    colours = has_colours()
    with Terminal() as terminal:
        looker = Looker(source, seconds, terminal.wake)
        looker.start()
        try:
            while True:
                width, height = terminal.size
                lines = draw(
                    frame, remarks(history.looks), view, source.name, width=width, height=height
                )
                terminal.draw(
                    [styled(line, width) if colours else plain(line, width) for line in lines]
                )
                for key in terminal.wait(seconds):
                    if view.on_key(key):
                        return
                for new in looker.take():
                    if isinstance(new, Look):
                        view.trouble = ""
                        latest = history.add(new)
                        frame = frame if view.is_paused else latest
                    else:
                        view.trouble = " ".join(str(new).split()) or type(new).__name__
        finally:
            looker.stop()
