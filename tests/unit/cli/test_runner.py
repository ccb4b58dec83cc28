"""What the runner of commands does when a command has ended and the node is away."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli.runner import Runner
from headrace.core.errors import Disconnected, HeadraceError, Unreachable


class Message:
    """A message whose node refuses so many acks first."""

    def __init__(self, *errors: HeadraceError) -> None:
        self.errors = list(errors)
        self.is_acked = False

    def ack(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.is_acked = True


def settle(runner: Runner, message: Message) -> None:
    settled: Any = message
    runner._settle_when_there(settled, 0, "")


def test_a_command_that_ended_while_the_node_was_away_is_acked_when_it_is_back() -> None:
    message = Message(Unreachable("away"), Unreachable("still away"))
    settle(Runner("true", endures=True), message)
    assert message.is_acked


def test_a_command_that_is_to_wait_for_so_long_only_does() -> None:
    message = Message(Unreachable("away"))
    with pytest.raises(Unreachable):
        settle(Runner("true"), message)


def test_a_runner_that_was_stopped_waits_for_no_node() -> None:
    runner = Runner("true", endures=True)
    runner.stop()
    with pytest.raises(Unreachable):
        settle(runner, Message(Unreachable("away")))


def test_what_may_have_been_settled_is_not_settled_again() -> None:
    with pytest.raises(Disconnected):
        settle(Runner("true", endures=True), Message(Disconnected("broken")))
