"""`headrace log`: the files themselves.

    verify   reads every byte and says what is not as it was written
    dump     shows batches and records where they lie
    export   writes a topic as JSON Lines

All of them look at the files from outside, beside a process that writes or after
a crash, and repair nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.command import (
    EXIT_FAILED,
    EXIT_NOTHING_FOUND,
    Place,
    WrongData,
    check_exists,
    command,
    json_option,
    noun,
    open_backend,
)
from headrace.cli.completing import topic_names
from headrace.cli.consume import partition_records, record_document, start_positions
from headrace.cli.output import (
    flush_lines,
    iso_time,
    json_bytes,
    json_headers,
    print_table,
    progress,
    say,
    shown_bytes,
    shown_text,
    write_json,
    write_json_line,
    write_line,
)
from headrace.core.errors import HeadraceError, UnknownPartition, UnknownTopic
from headrace.core.wording import counted

if TYPE_CHECKING:
    from headrace.engine.catalog import Catalog, Topic
    from headrace.inspect import Batch, Damage

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

log = noun(
    "log",
    "Verify, dump and export the files themselves.",
    examples="""
    headrace log verify
    headrace log dump orders 0
    headrace log export orders > orders.jsonl
    """,
)


@command(
    log,
    "verify",
    on_files=True,
    examples="""
    headrace log verify
    headrace log verify orders --json
    """,
)
@click.argument("topic", required=False, shell_complete=topic_names)
@json_option
def verify(topic: str | None, as_json: bool, directory: str) -> int | None:
    """Read every file, or those of one topic, and say what is wrong and where.

    Exit code 1 when anything is. Works beside a process that writes; what a crash
    left unfinished at the end of a log is not wrong, and is cut at the next open.
    """
    from headrace.inspect import (
        Checked,
        log_folders,
        missing_partitions,
        size_of_logs,
        verify_format,
        verify_log,
    )

    check_exists(directory)
    folders = log_folders(directory)
    wrong_format = verify_format(directory)
    if wrong_format is not None and not folders:
        raise WrongData(f"{directory!r} is not a data directory: {wrong_format.reason}")
    found: list[Damage] = [] if wrong_format is None else [wrong_format]
    catalog, fault = _catalog(directory)
    if topic is not None:
        if fault is not None:
            raise fault
        folder = _topic_of(catalog, topic).folder
        folders = [one for one in folders if one.startswith(f"{folder}/")]
    missing = set(missing_partitions(directory, catalog))
    if missing:
        # A topic may have been deleted since the catalog was read.
        missing &= set(missing_partitions(directory, _catalog(directory)[0]))
    found += [one for one in sorted(missing) if topic is None or one.file.startswith(f"{folder}/")]
    size_bytes = batches = 0
    with progress("verifying", size_of_logs(directory, folders), in_bytes=True) as bar:
        for folder in folders:
            for result in verify_log(directory, folder, _now_ms()):
                if isinstance(result, Checked):
                    bar.advance(result.size_bytes)
                    size_bytes += result.size_bytes
                    batches += result.batches
                else:
                    found.append(result)
    if as_json:
        write_json(
            {
                "logs": len(folders),
                "batches": batches,
                "size_bytes": size_bytes,
                "damage": [_damage_document(one, catalog) for one in found],
            }
        )
    else:
        _print_damage(found, catalog)
        verdict = counted(len(found), "problem") if found else "everything is as it was written"
        read = f"{counted(len(folders), 'log')}, {counted(batches, 'batch')}"
        say(f"{read}, {shown_bytes(size_bytes)}: {verdict}")
    return EXIT_FAILED if found else None


@command(
    log,
    "dump",
    on_files=True,
    examples="""
    headrace log dump orders 0
    headrace log dump orders 0 --records
    headrace log dump --file data/topics/5f0c.../0/00000000000000000000.log --records
    """,
)
@click.argument("topic", required=False, shell_complete=topic_names)
@click.argument("partition", type=int, required=False)
@click.option("--file", "path", type=click.Path(dir_okay=False), help="One .log file.")
@click.option("--records", is_flag=True, help="Show the records in each batch too.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many batches.")
@json_option
def dump(
    topic: str | None,
    partition: int | None,
    path: str | None,
    records: bool,
    count: int | None,
    as_json: bool,
    directory: str,
) -> int | None:
    """Show a partition's batches as they lie in its files.

    Needs no more than the file with --file. Exit code 1 at a damaged batch, 3
    when there is none at all.
    """
    from headrace.inspect import dump_file, dump_log

    if (path is None) == (topic is None) or (topic is not None and partition is None):
        raise click.UsageError("give TOPIC and PARTITION, or --file")
    if path is not None:
        batches = dump_file(path)
    else:
        assert topic is not None and partition is not None
        check_exists(directory)
        batches = dump_log(directory, _partition_folder(directory, topic, partition))
    shown = 0
    for batch in batches:
        if as_json:
            write_json_line(_batch_document(batch, records))
        else:
            for line in _batch_lines(batch, records):
                write_line(line.encode())
        shown += 1
        if batch.fault is not None:
            flush_lines()
            return EXIT_FAILED
        if shown == count:
            break
    flush_lines()
    return None if shown else EXIT_NOTHING_FOUND


@command(
    log,
    "export",
    on_files=True,
    examples="""
    headrace log export orders > orders.jsonl
    headrace log export orders --partition 0 | jq .value
    """,
)
@click.argument("topic", shell_complete=topic_names)
@click.option("--partition", type=int, help="This one alone.")
def export(topic: str, partition: int | None, directory: str) -> int | None:
    """Write a topic's records as JSON Lines, partition by partition.

    Bytes that are not UTF-8 become {"base64": "..."}. Exit code 3 when there is
    no record.
    """
    written = 0
    with open_backend(Place(directory, ""), read_only=True) as backend:
        positions = start_positions(backend, topic, partition, "earliest")
        for one, offset in positions.items():
            for record in partition_records(backend, topic, one, offset):
                write_json_line(record_document(record))
                written += 1
    flush_lines()
    return None if written else EXIT_NOTHING_FOUND


# Names for what the files are called.


def _catalog(directory: str) -> tuple[Catalog, HeadraceError | None]:
    """The catalog; or one without names and why, since verifying goes on."""
    from headrace.engine.catalog import Catalog
    from headrace.inspect import read_catalog

    try:
        return read_catalog(directory, _now_ms()), None
    except HeadraceError as error:
        return Catalog(), error


def _topic_of(catalog: Catalog, name: str) -> Topic:
    found = catalog.topics.get(name)
    if found is None:
        raise UnknownTopic(f"there is no topic {name!r}; `headrace topic list` shows all")
    return found


def _partition_folder(directory: str, topic: str, partition: int) -> str:
    catalog, fault = _catalog(directory)
    if fault is not None:
        raise fault
    found = _topic_of(catalog, topic)
    if not 0 <= partition < found.partitions:
        raise UnknownPartition(
            f"topic {topic} has partitions 0 to {found.partitions - 1}, not {partition}"
        )
    return f"{found.folder}/{partition}"


def _belongs_to(file: str, catalog: Catalog) -> str | None:
    """`topics/5f0c.../0/state/...` becomes `orders 0`, if the catalog knows it."""
    parts = file.split("/")
    if parts[0] != "topics" or len(parts) < 3:
        return None
    for topic in catalog.topics.values():
        if topic.folder == "/".join(parts[:2]):
            return f"{topic.name} {parts[2]}"
    return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# How damage and batches look.


def _print_damage(found: list[Damage], catalog: Catalog) -> None:
    if not found:
        return
    print_table(
        ["file", "byte", "belongs to", "lost", "what is wrong"],
        [
            [one.file, one.position, _belongs_to(one.file, catalog), one.is_data, one.reason]
            for one in found
        ],
    )


def _damage_document(one: Damage, catalog: Catalog) -> dict[str, Any]:
    return one._asdict() | {"belongs_to": _belongs_to(one.file, catalog)}


def _batch_lines(batch: Batch, records: bool) -> Iterator[str]:
    name = os.path.basename(batch.file)
    header = batch.header
    if header is None:
        yield f"{name} byte {batch.position}: damaged: {batch.fault}"
        return
    kind = "control" if header.is_control else "transactional" if header.is_transactional else ""
    producer = f"producer {header.producer_id}" if header.producer_id >= 0 else ""
    parts = [
        f"{name} byte {batch.position}: offsets {header.base_offset} to {header.last_offset}",
        counted(header.count, "record"),
        f"{header.size_bytes} bytes",
        f"epoch {header.leader_epoch}",
        f"codec {CODECS[header.codec]}",
        f"crc {header.crc:08x}",
        iso_time(header.max_timestamp_ms) or "no time",
        kind,
        producer,
    ]
    yield ", ".join(part for part in parts if part)
    if records:
        for record in batch.records:
            key = "" if record.key is None else f"key {shown_text(record.key)!r} "
            yield f"  {record.offset}: {key}value {shown_text(record.value)}"
            for header_name, value in record.headers:
                yield f"      {header_name}: {shown_text(value)}"


def _batch_document(batch: Batch, records: bool) -> dict[str, Any]:
    header = batch.header
    if header is None:
        return {"file": batch.file, "position": batch.position, "fault": batch.fault}
    document: dict[str, Any] = {
        "file": batch.file,
        "position": batch.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "size_bytes": header.size_bytes,
        "leader_epoch": header.leader_epoch,
        "codec": CODECS[header.codec],
        "crc": header.crc,
        "max_timestamp": iso_time(header.max_timestamp_ms),
        "is_control": header.is_control,
        "is_transactional": header.is_transactional,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
    }
    if records:
        document["records"] = [
            {
                "offset": record.offset,
                "timestamp": iso_time(record.timestamp_ms),
                "key": json_bytes(record.key),
                "value": json_bytes(record.value),
                "headers": json_headers(record.headers),
            }
            for record in batch.records
        ]
    return document
