"""The content type of a value: a plain record header, which foreign clients read and
set like any other."""

from __future__ import annotations

from typing import Final

from headrace.core.values import Headers

CONTENT_TYPE: Final = "content-type"
JSON: Final = b"application/json"
TEXT: Final = b"text/plain"


def content_type_of(headers: Headers) -> bytes | None:
    """What the headers say, in lower case and without parameters."""
    for name, value in headers:
        # Header names are matched as written, as everything Kafka does with them.
        if name == CONTENT_TYPE and value is not None:
            return value.split(b";", 1)[0].strip().lower()
    return None
