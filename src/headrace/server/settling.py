"""Settling by receipts alone, as the doors do it whose clients hold tokens.

A receipt names its group. Of receipts that are settled each has an outcome of its own;
in a transaction the first that is wrong is the error for all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument, InvalidReceipt
from headrace.core.values import Acknowledged, Receipt
from headrace.server.loop_calls import Calls


async def settle(
    calls: Calls, act: Any, tokens: Sequence[str], group: str | None, options: dict[str, Any]
) -> list[HeadraceError | None]:
    """One call for each group that the receipts are of; an outcome for each."""
    outcomes: list[HeadraceError | None] = [None] * len(tokens)
    by_group: dict[str, list[tuple[int, Receipt]]] = {}
    for number, found in enumerate(_found(calls, tokens, group)):
        if isinstance(found, HeadraceError):
            outcomes[number] = found
        else:
            name, receipt = found
            by_group.setdefault(name, []).append((number, receipt))
    for name, numbered in by_group.items():
        results = await calls.run(act, name, [receipt for _, receipt in numbered], **options)
        for (number, _), outcome in zip(numbered, results, strict=True):
            outcomes[number] = outcome
    return outcomes


def acknowledged(calls: Calls, tokens: Sequence[str]) -> list[Acknowledged]:
    """What a transaction is to ack; raises what is wrong with the first that is."""
    by_group: dict[str, list[Receipt]] = {}
    for found in _found(calls, tokens, None):
        if isinstance(found, HeadraceError):
            raise found
        name, receipt = found
        by_group.setdefault(name, []).append(receipt)
    return [Acknowledged(name, receipts) for name, receipts in by_group.items()]


def _found(
    calls: Calls, tokens: Sequence[str], group: str | None
) -> Iterator[tuple[str, Receipt] | InvalidReceipt]:
    """The group and the receipt that each token stands for."""
    if len(tokens) > limits.LEASE_MESSAGES_MAX:
        raise InvalidArgument(f"settle at most {limits.LEASE_MESSAGES_MAX} receipts at once")
    groups = calls.service.broker.topics.catalog.groups_by_id
    for token in tokens:
        try:
            receipt = Receipt.parse(token)
        except InvalidReceipt as error:
            yield error
            continue
        known = groups.get(receipt.group_id)
        if known is None:
            yield InvalidReceipt("this receipt is of a group that is gone")
        elif group is not None and known.name != group:
            yield InvalidReceipt(f"this receipt is of group {known.name!r}, not of {group!r}")
        else:
            yield known.name, receipt
