"""Outlived: messages of a partition whose TTL is over, and which of them end now."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.engine.queue import QueueView


def divide_outlived(
    views: Mapping[int, QueueView], outlived: set[int]
) -> tuple[dict[int, list[int]], set[int]]:
    """Offsets that end now, by group; and those that cannot yet. What is under lease may
    still be done, and ends when it comes back. What waits for a transaction was not seen."""
    found = {group: view.expirable(outlived) for group, view in views.items()}
    held = (
        view.held_in(outlived) | {offset for offset in outlived if offset >= view.window.end}
        for view in views.values()
    )
    left: set[int] = set().union(*held)
    return {group: offsets for group, offsets in found.items() if offsets}, left
