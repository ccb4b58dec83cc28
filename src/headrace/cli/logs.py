"""What a running command tells of itself, on stderr: one line an event."""

from __future__ import annotations

import json
import logging
from textwrap import indent

from headrace.core.event_log import one_line

NEWLINE = "\n"

# What every record has, whoever logs it.
_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "event",
}


def set_up_logging(level: str, *, as_json: bool = False) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(as_json=as_json))
    root = logging.getLogger("headrace")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False


class _Lines(logging.Formatter):
    """One line an event, with its fields: for people, or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        fields = {k: v for k, v in record.__dict__.items() if k not in _PLAIN}
        text = record.getMessage()
        # Where the text has the fields in it (`core/event_log.py`), this is without them.
        event = getattr(record, "event", None)
        error = self.formatException(record.exc_info) if record.exc_info else None
        at = self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}"
        if self._as_json:
            shown = text if event is None else event
            document = {"at": at, "level": record.levelname.lower(), "event": shown, **fields}
            if error:
                document["error"] = error
            return json.dumps(document, default=str)
        if event is None:
            text += "".join(f" {name}={value}" for name, value in fields.items())
        line = f"{at} {record.levelname.lower():7} {one_line(text)}"
        # Indented, so that no line of it looks like an event of its own.
        return f"{line}\n{indent(one_line(error, NEWLINE), '  ')}" if error else line
