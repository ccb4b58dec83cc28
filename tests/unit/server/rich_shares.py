"""Connections that always have some of their share of the loop left: for tests that feed
one by hand, on a machine of whatever speed. What shares do is test_shares.py's."""

from __future__ import annotations

import asyncio

from headrace.server import shares


class _Rich(shares.Account):
    is_spent = False

    def turn_end(self, began: float) -> float:
        return float("inf")


class _RichShares(shares.Shares):
    def open_account(self) -> shares.Account:
        return _Rich(self.line)


def make_rich() -> None:
    """Whoever connects on the running loop."""
    loop = asyncio.get_running_loop()
    shares.SHARES_OF_LOOPS[loop] = _RichShares()
