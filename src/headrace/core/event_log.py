"""One event, one record, whose text says everything.

    log_event(logger, logging.WARNING, "sync failed", error=error)

    under ordinary logging     sync failed error=[Errno 5] Input/output error
    as JSON                    {"event": "sync failed", "error": "[Errno 5] ..."}

The fields are in the text, for whoever has set logging up to show that, and attributes of
the record, for whoever collects fields. What people read is better a sentence: then the
event says all of it, and `in_text` is False.

Texts of strangers become part of records: names, errors, what a worker function raised. A
line break in one would look like a record of its own, and a terminal obeys an escape
sequence, so the text of a record has neither.
"""

from __future__ import annotations

import logging
from typing import Any


def log_event(
    logger: logging.Logger,
    level: int,
    event: str,
    *,
    exc_info: Any = None,
    in_text: Any = True,
    **fields: object,
) -> None:
    if not logger.isEnabledFor(level):
        return
    shown = "".join(f" {name}={value}" for name, value in fields.items()) if in_text else ""
    logger.log(
        level,
        "%s",
        one_line(event + shown),
        exc_info=exc_info,
        extra={"event": event, **fields},
        stacklevel=2,
    )


def one_line(text: str, kept: str = "") -> str:
    """The text with control characters written as escapes, but for those in `kept`."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
        for each in text
    )
