"""Connections that always have some of their share of the loop left, or never any: for tests
that feed one by hand, on a machine of whatever speed. What shares do is test_shares.py's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.server import shares


class _Rich(shares.Account):
    is_spent = False

    def turn_end(self, began: float) -> float:
        return float("inf")


class _RichShares(shares.Shares):
    def open_account(self) -> shares.Account:
        return _Rich(self.line)


class _Poor(shares.Account):
    is_spent = True
    seconds_of_turn = float("inf")

    def served(self, began: float) -> bool:
        super().served(began)
        return False

    def turn_end(self, began: float) -> float:
        return began + self.seconds_of_turn

    def lines_up(self, begin: Callable[[], None]) -> bool:
        self.line_up(begin)
        return True


class _Poorest(_Poor):
    seconds_of_turn = 0


class _PoorShares(shares.Shares):
    def open_account(self) -> shares.Account:
        return _Poor(self.line)


class _PoorestShares(shares.Shares):
    def open_account(self) -> shares.Account:
        return _Poorest(self.line)


def make_rich() -> None:
    """Whoever connects on the running loop."""
    _make(_RichShares)


def make_poor() -> None:
    """Whoever connects on the running loop stands in line when what it sent was read."""
    _make(_PoorShares)


def make_poorest() -> None:
    """Likewise, and after each single request."""
    _make(_PoorestShares)


def _make(kind: type[shares.Shares]) -> None:
    shares.SHARES_OF_LOOPS[asyncio.get_running_loop()] = kind()
