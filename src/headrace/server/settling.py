"""Settling by receipts alone, as the doors do it whose clients hold tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument, InvalidReceipt
from headrace.core.values import Receipt
from headrace.server.loop_calls import Calls


async def settle(
    calls: Calls, act: Any, tokens: Sequence[str], group: str | None, options: dict[str, Any]
) -> list[HeadraceError | None]:
    """One call for each group that the receipts are of; an outcome for each."""
    if len(tokens) > limits.LEASE_MESSAGES_MAX:
        raise InvalidArgument(f"settle at most {limits.LEASE_MESSAGES_MAX} receipts at once")
    outcomes: list[HeadraceError | None] = [None] * len(tokens)
    by_group: dict[str, list[tuple[int, Receipt]]] = {}
    groups = calls.service.broker.topics.catalog.groups_by_id
    for number, token in enumerate(tokens):
        try:
            receipt = Receipt.parse(token)
        except InvalidReceipt as error:
            outcomes[number] = error
            continue
        found = groups.get(receipt.group_id)
        if found is None:
            outcomes[number] = InvalidReceipt("this receipt is of a group that is gone")
        elif group is not None and found.name != group:
            outcomes[number] = InvalidReceipt(
                f"this receipt is of group {found.name!r}, not of {group!r}"
            )
        else:
            by_group.setdefault(found.name, []).append((number, receipt))
    for name, numbered in by_group.items():
        results = await calls.run(act, name, [receipt for _, receipt in numbered], **options)
        for (number, _), outcome in zip(numbered, results, strict=True):
            outcomes[number] = outcome
    return outcomes
