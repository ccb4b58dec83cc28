"""How many messages an iterator leases ahead."""

from __future__ import annotations

from headrace.client.prefetch import Prefetch, is_late
from headrace.core.values import Delivery

LEASED = Delivery(
    "t", 0, 0, None, b"x", (), 0, 2, 1, 3, 10_000, 40_000, None, None, bytes(16), 0, 0
)


def test_quick_handlers_get_more_ahead_up_to_the_limit() -> None:
    prefetch = Prefetch(5)
    sizes = []
    for _ in range(4):
        sizes.append(prefetch.size)
        prefetch.on_batch_handled(LEASED, now_ms=10_100)
    assert sizes == [1, 2, 4, 5]


def test_a_slow_batch_ends_the_growth() -> None:
    prefetch = Prefetch(16)
    prefetch.on_batch_handled(LEASED, now_ms=13_000)
    assert prefetch.size == 2
    prefetch.on_batch_handled(LEASED, now_ms=13_001)
    assert prefetch.size == 1


def test_a_message_is_late_when_half_of_its_lease_is_gone() -> None:
    assert not is_late(LEASED, now_ms=24_999)
    assert is_late(LEASED, now_ms=25_000)
