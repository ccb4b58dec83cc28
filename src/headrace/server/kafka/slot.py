"""A slot: where the answer of a request goes."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.ports import Buffer


class Slot:
    """The place of one answer in the order of a connection's answers, or of the
    answers to a run of requests, which are known together."""

    __slots__ = ("count", "parts")

    def __init__(self, count: int = 1) -> None:
        self.count = count
        # None until it is known; empty for a request that gets no answer.
        self.parts: Sequence[Buffer] | None = None
