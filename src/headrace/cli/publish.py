"""`headrace publish`: words, files and pipes become messages.

    headrace publish orders one two          two messages
    headrace publish orders --file lines.txt one message a line
    producer | headrace publish orders -     the same, from a pipe

Lines are published in batches of what has arrived, at most 1,000, so that a fast
pipe is fast and a slow one, such as `tail -f`, waits for nobody. A batch that was
reported is durable as its topic says; when one fails, the error comes with the
number of messages that were published before it.

A value is published as what it is, which its header `content-type` says: an object or array
of JSON as application/json, other text as text/plain, other bytes without. --header
content-type=... has the last word.

Rejected: every value that parses as JSON. Of the words `7`, `null` and `x7` two would come
back as something else than text.

Rejected: reading ahead in a thread. The disk is faster than the pipe.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any

import click
import msgspec

from headrace.cli.arguments import DURATION, HEADER, MOMENT
from headrace.cli.command import (
    Place,
    WrongData,
    command,
    json_option,
    open_handle,
)
from headrace.cli.completing import topic_names, words
from headrace.cli.output import (
    Progress,
    flush_lines,
    progress,
    say,
    shown_text,
    write_json_line,
    write_line,
)
from headrace.core.errors import HeadraceError, RecordTooLarge
from headrace.core.limits import RECORD_BYTES_MAX
from headrace.core.wording import counted

if TYPE_CHECKING:
    from headrace.client.handle import Headrace

_decode_json = msgspec.json.Decoder().decode

BATCH_MESSAGES_MAX = 1_000
CHUNK_BYTES = 1024 * 1024


@command(
    None,
    "publish",
    examples="""
    headrace publish orders '{"id": 7}'
    headrace publish orders hello --key customer-1 --header trace=abc --priority high
    headrace publish orders 'remember me' --delay 1h30m --ttl 1d
    headrace publish orders --file orders.jsonl
    seq 1000000 | headrace publish numbers -
    """,
)
@click.argument("topic", shell_complete=topic_names)
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("--file", "path", type=click.Path(dir_okay=False), help="Publish a file's lines.")
@click.option("--whole", is_flag=True, help="The file or stdin is one message, line ends and all.")
@click.option("--key", help="Messages with one key keep to one partition.")
@click.option("--key-separator", metavar="TEXT", help="Each line is KEY, this text, VALUE.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="May be repeated.")
@click.option(
    "--priority",
    shell_complete=words("critical", "high", "normal", "low", "background"),
    help="critical, high, normal, low or background.",
)
@click.option("--delay", type=DURATION, help="Deliver it after this long: 250ms, 5s, 2m, 1h, 3d.")
@click.option("--at", "deliver_at", type=MOMENT, help="Deliver it at this moment, in ISO 8601.")
@click.option("--ttl", type=DURATION, help="Forget it when it was not delivered within this time.")
@click.option("--max-attempts", type=int, help="Deliveries before it goes to the dead letters.")
@click.option("--dedup-id", help="A second message with this id is dropped, if the topic says so.")
@click.option("--partition", type=int, help="Instead of the one that the key chooses.")
@json_option
def publish(
    topic: str,
    values: tuple[str, ...],
    path: str | None,
    whole: bool,
    key: str | None,
    key_separator: str | None,
    as_json: bool,
    place: Place,
    **attributes: Any,
) -> None:
    """Publish words, the lines of a file, or the lines of stdin (-).

    Words answer with a message id each, on stdout. Lines answer with their
    number, on stderr, unless --json asks for their ids.
    """
    from_stdin = values == ("-",)
    # The bytes that were typed, whether or not they are text.
    words = [] if from_stdin else [os.fsencode(value) for value in values]
    if bool(words) + bool(path) + from_stdin != 1:
        raise click.UsageError("give words to publish, or --file, or - for stdin: one of them")
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other")
    common = _common_attributes(attributes)
    if key is not None:
        common["key"] = os.fsencode(key)
    if attributes["dedup_id"] is not None and len(words) != 1 and not whole:
        raise click.UsageError("--dedup-id belongs to one message")
    with ExitStack() as stack:
        bar: Progress | None = None
        if words:
            batches: Iterator[list[bytes]] = iter([words])
        else:
            if path is None:
                source: IO[bytes] = sys.stdin.buffer
            else:
                source = stack.enter_context(open(path, "rb"))
                bar = stack.enter_context(
                    progress("publishing", os.path.getsize(path), in_bytes=True)
                )
            batches = iter([[source.read()]]) if whole else lines_in_batches(source)
        handle = stack.enter_context(open_handle(place))
        messages = (_messages_of(batch, key_separator, attributes["dedup_id"]) for batch in batches)
        publish_batches(handle, topic, messages, common, bool(words), as_json, bar)


def publish_batches(
    handle: Headrace,
    topic: str,
    batches: Iterator[Sequence[Any]],
    common: dict[str, Any],
    show_ids: bool,
    as_json: bool,
    bar: Progress | None,
) -> None:
    published, duplicates, started = 0, 0, time.monotonic()
    try:
        for batch in batches:
            for one in handle.publish_many(topic, batch, **common):
                duplicates += one.duplicate
                if as_json:
                    write_json_line({"id": str(one.id), "duplicate": one.duplicate})
                elif show_ids:
                    write_line(str(one.id).encode())
            if as_json or show_ids:
                flush_lines()
            published += len(batch)
            if bar is not None:
                bar.advance(sum(_line_bytes(item) for item in batch))
    except (HeadraceError, KeyboardInterrupt):
        if published:
            say(f"published {counted(published, 'message')} before this ended")
        raise
    if not (as_json or show_ids):
        seconds = time.monotonic() - started
        again = f", {duplicates:,} of them duplicates" if duplicates else ""
        say(f"published {counted(published, 'message')}{again} in {seconds:.2f} s")
    elif duplicates and not as_json:
        say(f"{duplicates:,} duplicate: published before under this id")


def lines_in_batches(source: IO[bytes]) -> Iterator[list[bytes]]:
    """Lines without their ends, as they arrive. The last one needs no end."""
    read = getattr(source, "read1", source.read)
    rest = b""
    while chunk := read(CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > RECORD_BYTES_MAX:
            raise RecordTooLarge(
                f"a line is longer than {RECORD_BYTES_MAX:,} bytes, which no record may be; "
                "is this a binary file? --whole publishes it as one message"
            )
        for start in range(0, len(lines), BATCH_MESSAGES_MAX):
            yield lines[start : start + BATCH_MESSAGES_MAX]
    if rest:
        yield [rest]


def typed_value(value: bytes) -> bytes | str | msgspec.Raw:
    """The same bytes, as the type whose content type they are published with."""
    if value.lstrip()[:1] in (b"{", b"["):
        try:
            _decode_json(value)
            return msgspec.Raw(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # It only looks like JSON.
            pass
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _messages_of(
    values: list[bytes], key_separator: str | None, dedup_id: str | None
) -> Sequence[Any]:
    """The values themselves when nothing sets one apart: that is the fast path."""
    if key_separator is None and dedup_id is None:
        return [typed_value(value) for value in values]
    from headrace import NewMessage

    if key_separator is None:
        return [NewMessage(typed_value(value), dedup_id=dedup_id) for value in values]
    separator = os.fsencode(key_separator)
    messages = []
    for value in values:
        line_key, found, rest = value.partition(separator)
        if not found:
            raise WrongData(f"no {key_separator!r} in the line {shown_text(value, 80)!r}")
        messages.append(NewMessage(typed_value(rest), key=line_key, dedup_id=dedup_id))
    return messages


def _common_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """The SDK's keyword arguments for what was given; nothing for the rest, so
    that plain values stay on the fast path."""
    common = {
        name: attributes[name]
        for name in ("priority", "max_attempts", "partition")
        if attributes[name] is not None
    }
    if attributes["headers"]:
        common["headers"] = attributes["headers"]
    for name in ("delay", "ttl"):
        if attributes[name] is not None:
            common[name] = timedelta(milliseconds=attributes[name])
    if attributes["deliver_at"] is not None:
        common["deliver_at"] = datetime.fromtimestamp(attributes["deliver_at"] / 1000, UTC)
    return common


def _line_bytes(item: Any) -> int:
    value = getattr(item, "value", item)
    return len(value.encode() if isinstance(value, str) else bytes(value)) + 1
