"""How answers look: tables for people, aligned text for pipes, JSON for programs.

    stdout is        a table becomes            a stream becomes
    a terminal       a rich table               one line a message, made harmless
    a pipe or file   aligned text, no colour    the values' own bytes, one a line
    --json           one JSON document          JSON Lines

Bytes in JSON are a string when they are UTF-8 and {"base64": "..."} when they
are not, so that nothing is lost. Times in JSON are ISO 8601 in UTC with
milliseconds.

A terminal obeys escape sequences, and values come from anybody: control
characters are shown escaped there. A pipe gets every byte as it was published.

rich takes longer to import than most commands take to run, so it is imported
only when a terminal looks on.
"""

from __future__ import annotations

import base64
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import click

from headrace.core.values import Headers, RedriveResult
from headrace.core.wording import counted as counted
from headrace.core.wording import shown_bytes as shown_bytes
from headrace.core.wording import shown_duration as shown_duration

# Where a cell of a table is cut; the whole value is one `show` or `--json` away.
CELL_CHARACTERS_MAX = 60


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()


# Lines.


def write_line(data: bytes) -> None:
    sys.stdout.buffer.write(data + b"\n")


def flush_lines() -> None:
    """Let a reader at the other end of a pipe have what was written so far."""
    sys.stdout.buffer.flush()


def say(text: str) -> None:
    """A sentence for whoever ran the command. It goes to stderr, so that stdout
    holds answers only."""
    click.echo(text, err=True)


# JSON.


def write_json(document: Any) -> None:
    """One document; indented for the eye only where an eye looks on."""
    indent = 2 if stdout_is_terminal() else None
    write_line(json.dumps(document, ensure_ascii=False, indent=indent).encode())
    flush_lines()


def write_json_line(document: Any) -> None:
    write_line(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode())


def json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def json_headers(headers: Headers) -> list[list[Any]]:
    """Pairs and no mapping, since a name may come twice."""
    return [[name, json_bytes(value)] for name, value in headers]


def iso_time(timestamp_ms: int | None) -> str | None:
    """None for no time, and for one that no calendar holds."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        return iso_moment(datetime.fromtimestamp(timestamp_ms / 1000, UTC))
    except (OverflowError, ValueError, OSError):
        return None


def iso_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Text.


def shown_text(data: bytes | None, characters_max: int | None = None) -> str:
    """Bytes as something a terminal can be given: one line, no control characters."""
    if data is None:
        return "(null)"
    return shown_string(data.decode(errors="backslashreplace"), characters_max)


def typed(name: str) -> str:
    """A name as one types it in a shell. Kafka's groups and transactional ids are called
    whatever their clients like."""
    return shlex.quote(shown_string(name))


def shown_string(text: str, characters_max: int | None = None) -> str:
    if not text.isprintable():
        text = "".join(
            character
            if character.isprintable()
            else character.encode("unicode_escape").decode("ascii")
            for character in text
        )
    if characters_max is not None and len(text) > characters_max:
        return text[: characters_max - 1] + "…"
    return text


def ways_of(result: RedriveResult) -> str:
    """How many of what was redriven came back in which way, to be put behind it."""
    copies = "1 as a copy" if result.copied == 1 else f"{result.copied:,} as copies"
    ways = [f"{result.in_place:,} in place"] if result.in_place else []
    ways += [copies] if result.copied else []
    return f" ({', '.join(ways)})" if ways else ""


# Tables.


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers stand on the right, everything else on the left; None is a dash."""
    numeric = [
        bool(rows) and all(_is_numeric(row[column]) for row in rows)
        for column in range(len(headings))
    ]
    cells = [[_cell(value) for value in row] for row in rows]
    if stdout_is_terminal():
        _print_rich_table(headings, cells, numeric)
    else:
        _print_plain_table(headings, cells, numeric)


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """A list of names and values, one a line."""
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        label = f"{name}:".ljust(width + 2)
        if stdout_is_terminal():
            label = click.style(label, bold=True)
        click.echo(f"{label}{_cell(value)}")


def _is_numeric(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}" if stdout_is_terminal() else f"{value:.2f}"
    if isinstance(value, int):
        return f"{value:,}" if stdout_is_terminal() else str(value)
    return shown_string(str(value))


def _print_plain_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    lines = [[heading.upper() for heading in headings], *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        padded = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _print_rich_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for heading, right in zip(headings, numeric, strict=True):
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        # Text and no string: a value with [brackets] is not markup.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


# Progress.


class Progress(Protocol):
    def advance(self, amount: int) -> None:
        """So much more is done."""

    def reach(self, amount: int) -> None:
        """So much is done in all."""


class _NoProgress:
    def advance(self, amount: int) -> None:
        pass

    def reach(self, amount: int) -> None:
        pass


@contextmanager
def status(title: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr that says how far something came of which nobody knows how long it
    will be, shown and erased as `progress` is. Call what is given with the words."""
    if not (stdout_is_terminal() and sys.stderr.isatty()):
        yield lambda words: None
        return
    from rich.console import Console

    with Console(stderr=True).status(title) as line:
        yield lambda words: line.update(f"{title} {words}")


@contextmanager
def progress(title: str, total: int | None, *, in_bytes: bool = False) -> Iterator[Progress]:
    """A bar on stderr while both stdout and stderr are terminals, else nothing.

    It erases itself at the end, so that what stays on the screen is the answer.
    """
    if not (stdout_is_terminal() and sys.stderr.isatty()):
        yield _NoProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    with RichProgress(
        TextColumn(title), BarColumn(), amount, console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(title, total=total)

        class _Bar:
            def advance(self, amount: int) -> None:
                bar.advance(task, amount)

            def reach(self, amount: int) -> None:
                bar.update(task, completed=amount)

        yield _Bar()
