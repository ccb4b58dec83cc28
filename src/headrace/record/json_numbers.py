"""Numbers that JSON has no word for: NaN and the infinities.

Encoders write null in their place, in silence. A value that comes back as another one is
worse than one that is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from headrace.core.errors import InvalidArgument

_CONTAINERS = (list, tuple, set, frozenset)


def check_numbers(plain: object) -> None:
    """InvalidArgument for a value with such a number in it. Only what became a null is
    worth the walk, so most values need never be looked at here."""
    containers: list[Iterable[object]] = [[plain]]
    for container in containers:
        for each in container:
            if isinstance(each, float):
                if not isfinite(each):
                    raise InvalidArgument(f"JSON has no number for {each}; give text or None")
            elif isinstance(each, dict):
                containers.append(each.values())
            elif isinstance(each, _CONTAINERS):
                containers.append(each)
