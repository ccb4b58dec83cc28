"""`headrace trace`: where a message is, and how it came there.

    headrace trace orders:0:42         by its id
    headrace trace 4711                by its key
    headrace trace AfS1yP...           by a receipt
    headrace trace --outcome leased    a search
    headrace trace export              the same as JSON Lines

What is found alone is told in full; of several there is a line each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.arguments import HEADER, MOMENT
from headrace.cli.command import (
    EXIT_NOTHING_FOUND,
    Group,
    Place,
    command,
    json_option,
    open_backend,
)
from headrace.cli.completing import queue_names, topic_names
from headrace.cli.output import (
    flush_lines,
    iso_time,
    json_bytes,
    json_headers,
    print_fields,
    print_table,
    say,
    shown_duration,
    shown_text,
    status,
    write_json,
    write_json_line,
)
from headrace.core.errors import InvalidArgument
from headrace.core.trace_values import (
    TRACE_STATES,
    GroupTrace,
    MessageTrace,
    TraceEvent,
    TraceQuery,
    parse_traced,
)
from headrace.core.wording import counted

if TYPE_CHECKING:
    from headrace.client.backend import Backend

Function = TypeVar("Function", bound=Callable[..., Any])

LOOKING = "looking"


class _ShowByDefault(Group):
    """A word that is no command of ours is what to show."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.spelled_out(args))

    def spelled_out(self, words: list[str]) -> list[str]:
        if words and words[0] not in (*self.commands, "-h", "--help"):
            return ["show", *words]
        return words


trace = _ShowByDefault(
    "trace",
    help="Where a message is: its state in every group, and what happened to it.",
    options_metavar="",
    subcommand_metavar="[ID | KEY | RECEIPT] [OPTIONS]",
)
trace.examples = """
headrace trace orders:0:42
headrace trace customer-7 --topic orders
headrace trace --topic orders --group billing --outcome dead-lettered
headrace trace export --topic orders --since 2027-01-31
"""


def _choice(function: Function) -> Function:
    for option in (
        click.option("--until", type=MOMENT, help="Published before this moment."),
        click.option("--since", type=MOMENT, help="Published at this moment or later."),
        click.option(
            "--outcome", type=click.Choice(TRACE_STATES), help="The state that it has now."
        ),
        click.option(
            "--group",
            shell_complete=queue_names,
            help="A group that sees it; --outcome is the state there.",
        ),
        click.option("--header", type=HEADER, help="A header that it has, as name=value."),
        click.option("--key", "key_text", help="The key that it was published with."),
        click.option(
            "--topic", shell_complete=topic_names, help="The topic; all of them when left out."
        ),
    ):
        function = option(function)
    return function


@command(
    trace,
    "show",
    examples="""
    headrace trace orders:0:42
    headrace trace show customer-7 --topic orders --json
    """,
)
@click.argument("what", metavar="[ID | KEY | RECEIPT]", required=False)
@_choice
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@json_option
def show(
    what: str | None, limit: int, as_json: bool, place: Place, key_text: str | None, **choice: Any
) -> int | None:
    """Where a message is now, and everything that is known to have happened to it.

    Exit code 3 when nothing matches.
    """
    with open_backend(place, read_only=True) as backend:
        if what is not None and not _is_key(what):
            found = [backend.trace(what)]
        else:
            if what is not None and key_text is not None:
                raise InvalidArgument("a key was given twice; leave one of them out")
            query = _query(what if key_text is None else key_text, choice)
            # One more, to know whether that is all.
            with status(LOOKING) as tell:
                found = list(islice(_search(backend, query, tell), limit + 1))
    is_all, found = len(found) <= limit, found[:limit]
    if as_json:
        is_one = what is not None and not _is_key(what)
        write_json(document(found[0]) if is_one else [document(each) for each in found])
    elif len(found) == 1:
        _print_trace(found[0])
    elif found:
        _print_list(found)
    else:
        say("no message matches")
    if not is_all:
        say(f"the first {limit}; --limit shows more, and `headrace trace export` all of them")
    return None if found else EXIT_NOTHING_FOUND


@command(
    trace, "export", examples="headrace trace export --topic orders --output orders-traces.jsonl"
)
@_choice
@click.option("--output", type=click.Path(dir_okay=False), help="A file instead of stdout.")
def export(output: str | None, place: Place, key_text: str | None, **choice: Any) -> None:
    """Every trace that matches, as JSON Lines."""
    with (
        open_backend(place, read_only=True) as backend,
        _lines(output) as write,
        # Lines that go to a terminal are progress enough.
        nullcontext(_say_nothing) if output is None else status(LOOKING) as tell,
    ):
        count = 0
        for each in _search(backend, _query(key_text, choice), tell):
            write(document(each))
            count += 1
    say(counted(count, "trace"))


@contextmanager
def _lines(output: str | None) -> Iterator[Callable[[object], None]]:
    if output is None:
        yield write_json_line
        flush_lines()
        return
    import json

    with open(output, "w", encoding="utf-8") as file:
        yield lambda each: print(
            json.dumps(each, ensure_ascii=False, separators=(",", ":")), file=file
        )


def _is_key(what: str) -> bool:
    """Whatever is neither an id nor a receipt."""
    try:
        parse_traced(what)
    except InvalidArgument:
        return True
    return False


def _query(key: str | None, choice: dict[str, Any]) -> TraceQuery:
    return TraceQuery(
        topic=choice["topic"],
        key=None if key is None else key.encode(),
        header=choice["header"],
        group=choice["group"],
        outcome=choice["outcome"],
        since_ms=choice["since"],
        until_ms=choice["until"],
    )


def _search(
    backend: Backend, query: TraceQuery, tell: Callable[[str], None]
) -> Iterator[MessageTrace]:
    from headrace.client.traces import search

    return search(backend, query, lambda place: tell(f"at {place}"))


def _say_nothing(words: str) -> None:
    pass


# Out.


def document(trace: MessageTrace) -> dict[str, object]:
    return {
        "id": str(trace.id),
        "published_at": iso_time(trace.published_at_ms),
        "key": json_bytes(trace.key),
        "headers": json_headers(trace.headers),
        "value_bytes": trace.value_bytes,
        "producer": trace.producer,
        "traceparent": trace.traceparent,
        "transaction": trace.transaction,
        "sampled": trace.is_sampled,
        "cut": trace.is_cut,
        "groups": [_group_document(each) for each in trace.groups],
        "events": [_event_document(each) for each in trace.events],
        "links": [each._asdict() for each in trace.links],
    }


def _group_document(group: GroupTrace) -> dict[str, object]:
    return _present(
        group=group.group,
        kind=group.kind,
        state=group.state,
        attempts=group.attempts or None,
        consumer=group.consumer,
        due=iso_time(group.due_ms),
        cursor=group.cursor,
        committed_at=iso_time(group.at_ms),
    )


def _event_document(event: TraceEvent) -> dict[str, object]:
    return _present(
        at=iso_time(event.at_ms),
        event=event.kind,
        group=event.group,
        consumer=event.consumer,
        attempt=event.attempt,
        until=iso_time(event.until_ms),
        reason=event.reason,
        error=event.error,
        to=event.to,
    )


def _present(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _print_trace(trace: MessageTrace) -> None:
    fields: list[tuple[str, object]] = [("id", trace.id)]
    if trace.published_at_ms is None:
        fields.append(("record", "not retained any more"))
    else:
        fields.append(("published", iso_time(trace.published_at_ms)))
        fields.append(("size", counted(trace.value_bytes or 0, "byte")))
    for name, value in (
        ("producer", trace.producer),
        ("transaction", trace.transaction),
        ("key", None if trace.key is None else shown_text(trace.key, 100)),
    ):
        if value is not None:
            fields.append((name, value))
    for name, header in trace.headers:
        fields.append((f"header {name}", shown_text(header, 100)))
    for link in trace.links:
        fields.append((link.relation, link.id))
    print_fields(fields)
    click.echo()
    if trace.groups:
        print_table(["group", "kind", "state", "attempts", "details"], map_groups(trace))
        click.echo()
    print_table(["time", "after", "event", "group", "details"], list(_told(trace)))
    if trace.is_cut and not trace.is_sampled:
        say(
            "not sampled: of what happened before the state log was last cut, only failures "
            "are kept (see trace_sample in docs/tracing.md)"
        )


def map_groups(trace: MessageTrace) -> list[list[object]]:
    rows: list[list[object]] = []
    for each in trace.groups:
        details = ""
        if each.state == "leased" and each.consumer is not None:
            details = f"to {each.consumer} until {iso_time(each.due_ms)}"
        elif each.due_ms is not None:
            details = f"until {iso_time(each.due_ms)}"
        elif each.cursor is not None:
            details = f"cursor at {each.cursor}, committed {iso_time(each.at_ms)}"
        attempts = each.attempts if each.kind == "queue" else None
        rows.append([each.group, each.kind, each.state, attempts, details])
    return rows


def _told(trace: MessageTrace) -> Iterator[list[object]]:
    first_ms = trace.events[0].at_ms if trace.events else 0
    for event in trace.events:
        after = f"+{shown_duration(event.at_ms - first_ms)}"
        yield [iso_time(event.at_ms), after, event.kind, event.group, _details(event)]


def _details(event: TraceEvent) -> str:
    words = []
    if event.attempt is not None:
        words.append(f"attempt {event.attempt}")
    if event.consumer:
        words.append(f"{'to' if event.kind == 'leased' else 'by'} {event.consumer}")
    if event.until_ms is not None:
        words.append(f"{'retry at' if event.kind == 'nacked' else 'until'} "
                     f"{iso_time(event.until_ms)}")  # fmt: skip
    if event.to is not None:
        words.append(f"to {event.to}")
    why = ": ".join(text for text in (event.reason, event.error) if text)
    return " ".join(part for part in (", ".join(words), f"({why})" if why else "") if part)


def _print_list(traces: list[MessageTrace]) -> None:
    print_table(
        ["id", "published", "key", "state", "last event"],
        [
            [
                each.id,
                iso_time(each.published_at_ms),
                None if each.key is None else shown_text(each.key, 20),
                ", ".join(f"{group.group}: {group.state}" for group in each.groups) or None,
                f"{each.events[-1].kind} {iso_time(each.events[-1].at_ms)}",
            ]
            for each in traces
        ],
    )
