"""`headrace txn`: who has a transaction open, since when, and what it holds back."""

from __future__ import annotations

import time
from typing import Any

import click

from headrace.cli.command import (
    EXIT_NOTHING_FOUND,
    Place,
    command,
    json_option,
    noun,
    open_backend,
    yes_option,
)
from headrace.cli.completing import transaction_names
from headrace.cli.output import print_table, say, shown_duration, write_json
from headrace.core.values import TransactionInfo
from headrace.core.wording import counted

ENDED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")

txn = noun(
    "txn",
    "See transactions, and end one that is stuck.",
    examples="""
    headrace txn list
    headrace txn describe billing-1
    headrace txn abort billing-1
    """,
)


@command(txn, "list", examples="headrace txn list --all --json")
@click.option("--all", "all_of_them", is_flag=True, help="Also ids with nothing open.")
@json_option
def list_transactions(all_of_them: bool, as_json: bool, place: Place) -> int | None:
    """Transactions that are open or being ended, the oldest first.

    Exit code 3 when there is none.
    """
    with open_backend(place, read_only=True) as backend:
        found = [each for each in backend.transactions() if all_of_them or each.state not in ENDED]
    found.sort(key=lambda each: each.started_at_ms or 0)
    if as_json:
        write_json([_document(each) for each in found])
    else:
        print_table(
            ["id", "state", "open for", "partitions", "producer"],
            [
                [
                    each.name,
                    each.state,
                    _open_for(each),
                    len(each.places),
                    f"{each.producer_id}/{each.epoch}",
                ]
                for each in found
            ],
        )
    return None if found else EXIT_NOTHING_FOUND


@command(txn, "describe", examples="headrace txn describe billing-1")
@click.argument("name", metavar="ID", shell_complete=transaction_names)
@json_option
def describe_transaction(name: str, as_json: bool, place: Place) -> None:
    """One transactional id: its state, and the partitions that wait for its end.

    Behind the first offset that waits, nobody who reads committed records sees
    anything until it is ended.
    """
    with open_backend(place, read_only=True) as backend:
        found = backend.transaction(name)
    if as_json:
        write_json(_document(found))
        return
    print_table(
        ["", ""],
        [
            ["id", found.name],
            ["state", found.state],
            ["producer", f"{found.producer_id}, epoch {found.epoch}"],
            ["open for", _open_for(found)],
            ["timeout", shown_duration(found.timeout_ms)],
        ],
    )
    if found.places:
        print_table(
            ["topic", "partition", "waits from"],
            [[each.topic, each.partition, each.first_offset] for each in found.places],
        )


@command(txn, "abort", examples="headrace txn abort billing-1 --yes")
@click.argument("name", metavar="ID", shell_complete=transaction_names)
@yes_option
def abort_transaction(name: str, yes: bool, place: Place) -> None:
    """Abort what an id has open. Its producer is shut out and has to begin anew."""
    with open_backend(place) as backend:
        found = backend.transaction(name)
        if found.state in ENDED:
            say(f"{name} has nothing open")
            return
        if not yes:
            click.confirm(
                f"Abort the transaction of {name}, open for {_open_for(found)}, in "
                f"{counted(len(found.places), 'partition')}?",
                abort=True,
                err=True,
            )
        backend.abort_transaction(name)
        say(f"{name}: {backend.transaction(name).state}")


def _open_for(found: TransactionInfo) -> str | None:
    if found.started_at_ms is None or found.state in ENDED:
        return None
    return shown_duration(max(0, int(time.time() * 1000) - found.started_at_ms))


def _document(found: TransactionInfo) -> dict[str, Any]:
    return {
        "id": found.name,
        "state": found.state,
        "producer_id": found.producer_id,
        "epoch": found.epoch,
        "timeout_ms": found.timeout_ms,
        "started_at_ms": found.started_at_ms,
        "partitions": [each._asdict() for each in found.places],
    }
