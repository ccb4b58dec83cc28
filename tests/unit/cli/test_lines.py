"""Lines on their way into a topic: what arrived goes, and nothing is lost."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import publish
from headrace.cli.publish import BATCH_MESSAGES_MAX, lines_in_batches
from headrace.client.values import encode_value
from headrace.core.errors import RecordTooLarge


def test_the_last_line_needs_no_end() -> None:
    assert list(lines_in_batches(io.BytesIO(b"one\ntwo"))) == [[b"one"], [b"two"]]
    assert list(lines_in_batches(io.BytesIO(b"one\ntwo\n"))) == [[b"one", b"two"]]


def test_an_empty_line_is_an_empty_message() -> None:
    assert list(lines_in_batches(io.BytesIO(b"\n\n"))) == [[b"", b""]]


def test_nothing_is_no_message() -> None:
    assert list(lines_in_batches(io.BytesIO(b""))) == []


def test_no_batch_is_larger_than_its_limit() -> None:
    source = io.BytesIO(b"x\n" * (BATCH_MESSAGES_MAX * 2 + 1))
    assert [len(batch) for batch in lines_in_batches(source)] == [1_000, 1_000, 1]


def test_a_slow_pipe_is_not_waited_for() -> None:
    source = Arriving([b"one\ntw", b"o\nthree\n"])
    batches = lines_in_batches(source)
    assert next(batches) == [b"one"]
    assert source.chunks == [b"o\nthree\n"]
    assert next(batches) == [b"two", b"three"]


def test_a_line_that_no_record_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "RECORD_BYTES_MAX", 10)
    with pytest.raises(RecordTooLarge, match="--whole"):
        list(lines_in_batches(io.BytesIO(b"x" * 11)))


@given(st.lists(st.binary(max_size=8)), st.integers(1, 5))
def test_chunks_do_not_change_what_the_lines_are(parts: list[bytes], size: int) -> None:
    content = b"\n".join(parts)
    chunks = [content[start : start + size] for start in range(0, len(content), size)]
    lines = [line for batch in lines_in_batches(Arriving(chunks)) for line in batch]
    assert lines == content.removesuffix(b"\n").split(b"\n") if content else lines == []


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (b'{"id": 7, "note": null}', b"application/json"),
        (b" [1, 2]", b"application/json"),
        (b"{not json}", b"text/plain"),
        (b"[" * 100_000, b"text/plain"),
        ("caf\u00e9".encode(), b"text/plain"),
        (b"7", b"text/plain"),
        (b"null", b"text/plain"),
        (b"", b"text/plain"),
        (b"\xff\xfe", None),
        (b'{"a": "\xff"}', None),
    ],
)
def test_a_value_is_published_as_the_bytes_that_it_is_with_their_content_type(
    value: bytes, content_type: bytes | None
) -> None:
    assert encode_value(publish.typed_value(value)) == (value, content_type)


class Arriving(io.BytesIO):
    """A pipe in which one chunk arrives at a time."""

    def __init__(self, chunks: list[bytes]) -> None:
        super().__init__()
        self.chunks = chunks

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""
