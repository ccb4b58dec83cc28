"""Programs in tests/ecosystem/beside/<name>/, each run by the Python of its framework."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.kafka.brokers import Broker
from benchmarks.maven import NoJars
from tests.ecosystem.environments import PROGRAMS, NoEnvironment, python_of
from tests.ecosystem.programs import Program
from tests.ecosystem.tools import BROKERS


@pytest.fixture(params=sorted(BROKERS))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A node, and Apache Kafka: what is so with both is the framework's own doing."""
    try:
        broker = BROKERS[request.param](tmp_path / "broker")
    except NoJars as error:
        pytest.skip(str(error))
    broker.start()
    yield broker
    broker.stop()


class Supervised(Program):
    """Is started again when it ends by itself, as by systemd or Kubernetes."""

    ends = 0

    def check(self, seconds: float = 0) -> None:
        try:
            super().check(seconds)
        except AssertionError:
            self.ends += 1
            self.start()


def framework(
    name: str, broker: Broker, state: Path, *arguments: str, log: str = "program", **variables: str
) -> Supervised:
    """`python <arguments>` of the framework, where its program is."""
    words = command(name, broker, state, *arguments, **variables)
    return Supervised(words, state.parent / f"{log}.log")


def command(name: str, broker: Broker, state: Path, *arguments: str, **variables: str) -> list[str]:
    """The program finds the broker's address and a folder for its state in its environment.
    Skips the test if the framework cannot be installed."""
    try:
        python = python_of(name)
    except NoEnvironment as error:
        pytest.skip(str(error))
    state.mkdir(exist_ok=True)
    given = {"BOOTSTRAP": broker.bootstrap, "STATE": str(state), **variables}
    environment = [f"{key}={value}" for key, value in given.items()]
    return ["env", "--chdir", str(PROGRAMS / name), *environment, python, *arguments]
