"""The head of a classic consumer's metadata."""

from __future__ import annotations

import pytest
from tests.unit.engine.coordinator.conftest import subscription

from headrace.engine.coordinator.subscription import same_subscription, subscribed_topics


def test_the_topics_are_read_and_the_rest_is_left_alone() -> None:
    metadata = subscription("orders", "grüße", owned=b"rest")
    assert subscribed_topics(metadata) == frozenset({"orders", "grüße"})
    assert subscribed_topics(subscription()) == frozenset()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        b"\xff\xff\0\0\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\5abc",
        b"\0\0\0\0\0\1\0\1\xff",
    ],
)
def test_other_bytes_are_no_subscription(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


def test_the_same_topics_in_the_same_protocols_are_the_same_work() -> None:
    before = (("range", subscription("a", "b")), ("sticky", subscription("a", "b")))
    owning = (("range", subscription("b", "a")), ("sticky", subscription("a", "b", owned=b"x")))
    assert same_subscription(before, before)
    assert same_subscription(before, owning)
    assert not same_subscription(before, before[:1])
    assert not same_subscription(before, before[::-1])
    assert not same_subscription(before, (before[0], ("sticky", subscription("a"))))
    assert not same_subscription((("x", b"\xff"),), (("x", b"\xfe"),))
