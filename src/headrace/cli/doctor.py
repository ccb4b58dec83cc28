"""`headrace doctor`: what is wrong with a directory or a node, and what to do about it.

    directory    files: format, lock, permissions, leftovers, catalog, segments, contents, disk,
                 writing, limits
                 then, if it can be opened read-only, topics and groups
    node         its process, disk and doors, then topics and groups

It changes nothing, also where everything is broken. Each finding says what is wrong, why
it matters and what to type; the exit code says how bad it is:

    0    nothing to see to
    1    something that will hurt if it is left alone
    2    something is broken
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import click

from headrace.cli import doctor_contents as contents
from headrace.cli import doctor_files as files
from headrace.cli import doctor_state as state
from headrace.cli.command import Place, check_exists, command, json_option
from headrace.cli.findings import Checked, Finding, Outcome, carry_out, exit_code
from headrace.cli.output import (
    progress,
    shown_bytes,
    shown_duration,
    stdout_is_terminal,
    write_json,
)
from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.node_settings import Address
from headrace.core.overview_values import NodeFigures, Overview
from headrace.core.wording import counted

if TYPE_CHECKING:
    from headrace.client.backend import Backend
    from headrace.client.remote import RemoteBackend
    from headrace.engine.catalog import Catalog

# Between two looks at the same groups.
BETWEEN_LOOKS_SECONDS = 0.5
OPEN_FILES_MIN = 1_024
OPEN_FILES_SHARE = 0.9
MEMORY_BYTES_MIN = 256 * 1024 * 1024
MEMORY_SHARE = 0.8
CLOCK_MS = 5_000

MARKS = {"ok": "green", "warn": "yellow", "bad": "red"}


@command(
    None,
    "doctor",
    examples="""
    headrace doctor
    headrace doctor --data ./data --full
    headrace doctor --server 127.0.0.1:9092 --json
    """,
)
@click.option("--full", is_flag=True, help="Read every byte of every segment.")
@json_option
def doctor(full: bool, as_json: bool, place: Place) -> int:
    """Look for everything that is wrong with a directory or a node, and change nothing.

    Exit code 0 when all is well, 1 when something should be seen to, 2 when something is
    broken.
    """
    if place.server:
        if full:
            raise click.UsageError("--full reads files; run it where they are, with --data DIR")
        checks = list(_examine_node(place.server))
    else:
        check_exists(place.directory)
        checks = list(_examine_directory(place.directory, full))
    if as_json:
        write_json(_document(place, checks))
    else:
        _print(checks)
    return exit_code(checks)


# A directory.


def _examine_directory(root: str, full: bool) -> Iterator[Checked]:
    from headrace.inspect import log_folders, size_of_logs
    from headrace.platform.holder import find_holder

    now_ms = _now_ms()
    holder = find_holder(root)
    entries = list(files.entries_of(root))
    catalog = files.catalog_of(root, now_ms)
    yield carry_out("format", lambda: files.check_format(root))
    yield carry_out("lock", lambda: files.check_lock(root))
    yield carry_out("binding", lambda: files.check_binding(holder))
    yield carry_out("permissions", lambda: files.check_permissions(entries))
    yield carry_out("leftovers", lambda: files.check_leftovers(entries, catalog, holder))
    yield carry_out("catalog", lambda: files.check_catalog(root, catalog))
    total = size_of_logs(root, log_folders(root)) if full else None
    with progress("reading", total, in_bytes=True) as bar:
        yield carry_out(
            "segments",
            lambda: files.check_segments(root, catalog, now_ms, full=full, advance=bar.advance),
        )
    yield carry_out("contents", lambda: _check_contents(root, catalog, now_ms, full=full))
    yield carry_out("disk", lambda: _check_disk(root))
    yield carry_out("writing", lambda: files.check_writable(root))
    yield carry_out("syncs", lambda: files.check_sync_speed(root))
    yield carry_out("open files", _check_own_files)
    yield carry_out("memory", _check_own_memory)
    yield from _examine_opened(root, now_ms)


def _check_contents(root: str, catalog: Catalog | None, now_ms: int, *, full: bool) -> Outcome:
    found = list(contents.unreadable_in(root, catalog, now_ms, full=full))
    which = "every batch" if full else "batches of small logs, and the first of each segment,"
    return contents.check_contents(found, f"{which} can be opened")


def _check_disk(root: str) -> Outcome:
    disk = shutil.disk_usage(root)
    return files.check_space(disk.free, disk.total, files.floor_bytes(), root)


def _check_own_files() -> Outcome:
    try:
        import resource
    except ImportError:
        return "this system has no such limit", []
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return "no limit", []
    return f"a process may open {hard:,}", few_files(hard)


def few_files(allowed: int) -> list[Finding]:
    if allowed >= OPEN_FILES_MIN:
        return []
    return [
        Finding(
            "warn",
            "open files",
            f"a process may open {counted(allowed, 'file')}",
            "connections are refused, and files are closed and opened again all the time",
            "raise the hard limit: ulimit -Hn 65536, or LimitNOFILE= of the service",
        )
    ]


def _check_own_memory() -> Outcome:
    from headrace.platform.process import memory_bytes_max

    allowed = memory_bytes_max()
    if allowed is None:
        return "not known on this system", []
    return f"{shown_bytes(allowed)} in all", little_memory(allowed)


def little_memory(allowed: int) -> list[Finding]:
    if allowed >= MEMORY_BYTES_MIN:
        return []
    return [
        Finding(
            "warn",
            "memory",
            f"there are {shown_bytes(allowed)} in all",
            "a node takes about 60 MB and a byte for each message that a queue still has",
            "give the machine or the container more memory",
        )
    ]


def _examine_opened(root: str, now_ms: int) -> Iterator[Checked]:
    from headrace.node import Node

    try:
        node = Node.open(root, read_only=True)
    except (HeadraceError, OSError, LookupError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        finding = Finding(
            "bad",
            "directory",
            f"cannot be opened: {text}",
            "no process can serve it as it is",
            "see to what the checks above have found",
        )
        yield Checked("opening", "", (finding,))
        return
    try:
        yield Checked("opening", "it can be opened")
        yield carry_out("messages", lambda: state.check_messages(node.stopped_partitions()))
        yield carry_out("queues", lambda: state.check_queues(node.stopped_queues()))
        overview = node.overview()
        yield from _examine_state(node, overview, overview, now_ms, knows_members=False)
    finally:
        node.close()


# A node.


def _examine_node(server: str) -> Iterator[Checked]:
    from headrace.client.connecting import open_backend

    try:
        backend = open_backend(server, retry=0)
    except HeadraceError as error:
        finding = Finding(
            "bad",
            server,
            " ".join(str(error).split()),
            "nobody can publish or consume there",
            "start it: headrace serve; or look at its log",
        )
        yield Checked("node", "", (finding,))
        return
    try:
        figures = backend.figures()
        if figures is not None:
            yield carry_out("node", lambda: check_version(figures))
            yield carry_out("clock", lambda: check_clock(figures, _now_ms()))
            yield carry_out("binding", lambda: check_doors(figures))
            yield carry_out("disk", lambda: check_node_disk(figures))
            yield carry_out("syncs", lambda: check_node_syncs(figures))
            yield carry_out("open files", lambda: check_node_files(figures))
            yield carry_out("memory", lambda: check_node_memory(figures))
        yield carry_out("contents", lambda: check_node_contents(backend))
        before = backend.overview()
        time.sleep(BETWEEN_LOOKS_SECONDS)
        after = backend.overview()
        yield from _examine_state(backend, before, after, after.at_ms, knows_members=True)
    finally:
        backend.close()


def check_version(figures: NodeFigures) -> Outcome:
    ours = version("headrace")
    started = figures.started_at_ms
    up = "" if started is None else f", up {shown_duration(figures.now_ms - started)}"
    if figures.version == ours:
        return f"version {ours}{up}, {counted(figures.connections, 'connection')}", []
    return "", [
        Finding(
            "warn",
            "version",
            f"the node is {figures.version} and this command {ours}",
            "they may not understand each other",
            f"pip install headrace=={figures.version}",
        )
    ]


def check_clock(figures: NodeFigures, now_ms: int) -> Outcome:
    apart = abs(figures.now_ms - now_ms)
    if apart <= CLOCK_MS:
        return "the node and this machine agree", []
    return "", [
        Finding(
            "warn",
            "clock",
            f"the node's clock is {shown_duration(apart)} from this machine's",
            "delays, times to live and retention go by the node's clock, timestamps by clients'",
            "see which one is wrong: timedatectl status",
        )
    ]


def check_doors(figures: NodeFigures) -> Outcome:
    found = []
    for door, text in sorted(figures.doors.items()):
        if Address.parse(door, text).is_loopback:
            continue
        found.append(
            Finding(
                "warn",
                f"{door} {text}",
                "can be reached from other machines",
                "whoever reaches it reads, writes and deletes everything, without a password",
                f"headrace serve --{door} 127.0.0.1:{text.rpartition(':')[2]}, or let a firewall "
                "admit only machines that you trust",
            )
        )
    return f"{', '.join(sorted(figures.doors))}: only from this machine", found


def check_node_disk(figures: NodeFigures) -> Outcome:
    if figures.disk_free_bytes is None or figures.disk_total_bytes is None:
        return "not known", []
    return files.check_space(
        figures.disk_free_bytes, figures.disk_total_bytes, figures.disk_floor_bytes, figures.data
    )


def check_node_syncs(figures: NodeFigures) -> Outcome:
    if figures.sync_ms is None:
        return "there was none yet", []
    return f"{figures.sync_ms:.1f} ms on average", files.slow_syncs(figures.sync_ms, figures.data)


def check_node_files(figures: NodeFigures) -> Outcome:
    opened, allowed = figures.open_files, figures.open_files_max
    if opened is None or not allowed:
        return "not known", []
    found = few_files(allowed)
    if opened >= OPEN_FILES_SHARE * allowed:
        found.append(
            Finding(
                "warn",
                "open files",
                f"{opened:,} of {allowed:,} are in use",
                "connections are refused when none is left",
                "raise its limit: LimitNOFILE= of the service, or ulimit -n before it starts",
            )
        )
    return f"{opened:,} of {allowed:,} are in use", found


def check_node_memory(figures: NodeFigures) -> Outcome:
    used, allowed = figures.memory_bytes, figures.memory_bytes_max
    if used is None or not allowed:
        return "not known", []
    found = little_memory(allowed)
    if used >= MEMORY_SHARE * allowed:
        found.append(
            Finding(
                "warn",
                "memory",
                f"it uses {shown_bytes(used)} of {shown_bytes(allowed)}",
                "the system ends a process for which there is no memory left",
                "see which queues are deep: headrace queue list; give it more memory",
            )
        )
    return f"{shown_bytes(used)} of {shown_bytes(allowed)}", found


def check_node_contents(backend: RemoteBackend) -> Outcome:
    try:
        found = backend.unreadable_batches()
    except InvalidArgument:
        return "an older node does not say", []
    return contents.check_contents(found, "every batch that the node has met can be opened")


# Both.


def _examine_state(
    backend: Backend, before: Overview, after: Overview, now_ms: int, *, knows_members: bool
) -> Iterator[Checked]:
    topics = backend.topics()
    groups = backend.groups()
    questions: Sequence[tuple[str, Callable[[], Outcome]]] = (
        ("partitions", lambda: state.check_stopped(after)),
        ("dead letters", lambda: state.check_letters(after)),
        ("transactions", lambda: state.check_transactions(after)),
        ("cursors", lambda: state.check_cursors(backend, groups, topics)),
        ("lag", lambda: state.check_lag(before, after, knows_members=knows_members)),
        ("waiting", lambda: state.check_oldest(after)),
        ("retention", lambda: state.check_retention(topics)),
        ("timestamps", lambda: state.check_future(backend, topics, now_ms)),
    )
    for name, question in questions:
        yield carry_out(name, question)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# The report.


def _print(checks: Sequence[Checked]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        if not check.findings:
            click.echo(f"{_mark('ok')}  {check.name.ljust(width)}  {check.summary}")
        for finding in check.findings:
            head = f"{_mark(finding.level)}  {check.name.ljust(width)}  "
            click.echo(f"{head}{finding.about}: {finding.what}")
            indent = " " * (4 + 2 + width + 2)
            click.echo(f"{indent}why: {finding.why}")
            click.echo(f"{indent}do:  {finding.do}")
    levels = [finding.level for check in checks for finding in check.findings]
    broken, worth = levels.count("bad"), levels.count("warn")
    verdict = f"{broken} broken, {worth} to see to" if levels else "all is well"
    click.echo(f"\n{counted(len(checks), 'check')}: {verdict}")


def _mark(level: str) -> str:
    text = level.ljust(4)
    if stdout_is_terminal() and not os.environ.get("NO_COLOR"):
        return click.style(text, fg=MARKS[level], bold=True)
    return text


def _document(place: Place, checks: Sequence[Checked]) -> dict[str, Any]:
    code = exit_code(checks)
    return {
        "place": place.server or place.directory,
        "verdict": ("well", "warn", "bad")[code],
        "checks": [
            {
                "name": check.name,
                "summary": check.summary or None,
                "findings": [finding._asdict() for finding in check.findings],
            }
            for check in checks
        ],
    }
