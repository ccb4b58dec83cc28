"""Replicas that a request places by hand: a node alone can only have them here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.core.errors import InvalidArgument


def check_replicas(replicas: Iterable[Sequence[int]], node_id: int) -> None:
    """InvalidArgument unless every partition is placed on this node alone."""
    for placed in replicas:
        if tuple(placed) != (node_id,):
            raise InvalidArgument(f"replicas on nodes {list(placed)}: there is only node {node_id}")
