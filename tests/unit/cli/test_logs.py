"""What a running command says of itself: one event, one line, however it is shown."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path

import pytest

import headrace
from headrace.cli.logs import _Lines
from headrace.core.event_log import log_event

SOURCE = Path(headrace.__file__).parent


def record_of(caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    logger = logging.getLogger("headrace.test-logs")
    with caplog.at_level(logging.WARNING, logger.name):
        log_event(logger, logging.WARNING, "sync failed", error="no disk", attempt=2)
    [record] = caplog.records
    return record


def test_the_text_of_a_record_says_everything(caplog: pytest.LogCaptureFixture) -> None:
    record = record_of(caplog)
    assert record.getMessage() == "sync failed error=no disk attempt=2"
    assert (record.error, record.attempt) == ("no disk", 2)  # type: ignore[attr-defined]


def test_a_line_shows_each_field_once(caplog: pytest.LogCaptureFixture) -> None:
    line = _Lines(as_json=False).format(record_of(caplog))
    assert line.endswith(" warning sync failed error=no disk attempt=2")


def test_texts_of_strangers_make_no_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("headrace.test-logs")
    forged = "no\n2026-01-01T00:00:00.000 info    all is well\x1b[2J"
    with caplog.at_level(logging.WARNING, logger.name):
        try:
            raise ValueError(forged)
        except ValueError as error:
            log_event(logger, logging.WARNING, "it failed", exc_info=error, reason=forged)
        # By somebody else's logger, without our hand in it.
        logger.warning(forged)
    ours, other = caplog.records
    assert ours.getMessage() == "it failed reason=" + forged.encode("unicode_escape").decode()
    lines = _Lines(as_json=False).format(ours).splitlines()
    assert all(line.startswith("  ") for line in lines[1:])
    assert "all is well" in lines[0]
    [line] = _Lines(as_json=False).format(other).splitlines()
    assert "\x1b" not in "".join(lines) + line


def test_json_has_the_event_and_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    document = json.loads(_Lines(as_json=True).format(record_of(caplog)))
    assert document.pop("at")
    assert document == {
        "level": "warning",
        "event": "sync failed",
        "error": "no disk",
        "attempt": 2,
    }


def test_no_record_hides_what_happened_in_fields_that_ordinary_logging_does_not_show() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        # The last says the same twice: to who reads it, and to who asks Spark for a table.
        if path.name not in ("event_log.py", "reporting.py", "task_log.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and any(each.arg == "extra" for each in node.keywords)
    ]
    assert found == [], "use core.event_log.log_event"
