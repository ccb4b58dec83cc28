"""What `headrace work --exec` says and waits for when it is told to end."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from headrace.cli import work


@pytest.fixture
def grace(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(work._Grace, "_give_up_after", lambda self, seconds: None)
    return work._Grace(handle=None, seconds=30)  # type: ignore[arg-type]


def ended() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def test_nothing_is_said_where_every_command_has_ended(
    grace: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    grace.wait({ended(), ended(), ended()})
    assert capsys.readouterr().err == ""


def test_only_commands_that_run_are_counted(grace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    running: Future[None] = Future()
    said = []

    def say(line: str) -> None:
        said.append(line)
        running.set_result(None)

    monkeypatch.setattr(work, "say", say)
    grace.wait({ended(), running, ended()})
    assert said == ["waiting up to 30s for 1 command to end; the next signal ends them now"]
