"""Answers look right to people, to pipes and to programs."""

from __future__ import annotations

import base64
import json
import sys

import pytest

from headrace.cli import output


def test_a_piped_table_is_aligned_with_numbers_on_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_table(["name", "count"], [["a", 1], ["longer", 12_345]])
    assert capsys.readouterr().out == ("NAME    COUNT\na           1\nlonger  12345\n")


def test_an_absent_value_is_a_dash_and_keeps_a_column_numeric(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_table(["lag"], [[None], [12]])
    assert capsys.readouterr().out == "LAG\n  -\n 12\n"


def test_a_table_without_rows_still_has_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["name", "count"], [])
    assert capsys.readouterr().out == "NAME  COUNT\n"


def test_a_table_on_a_terminal_shows_brackets_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "stdout_is_terminal", lambda: True)
    output.print_table(["value"], [["[red]not markup[/red]"]])
    assert "[red]not markup[/red]" in capsys.readouterr().out


def test_a_piped_table_has_no_colour_and_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_table(["value"], [["\x1b[31mred\x07\nline"]])
    assert capsys.readouterr().out == "VALUE\n\\x1b[31mred\\x07\\nline\n"


def test_fields_stand_under_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_fields([("id", "orders:0:1"), ("attempts", 3), ("dead", True)])
    assert capsys.readouterr().out == "id:       orders:0:1\nattempts: 3\ndead:     yes\n"


def test_bytes_in_json_are_text_when_they_can_be() -> None:
    assert output.json_bytes(None) is None
    assert output.json_bytes("grüezi".encode()) == "grüezi"


def test_bytes_in_json_that_are_not_text_can_be_had_back() -> None:
    shown = output.json_bytes(b"\xff\x00")
    assert isinstance(shown, dict)
    assert base64.b64decode(shown["base64"]) == b"\xff\x00"


def test_headers_in_json_keep_their_order_and_their_repeats() -> None:
    headers = (("a", b"1"), ("b", None), ("a", b"2"))
    assert output.json_headers(headers) == [["a", "1"], ["b", None], ["a", "2"]]


def test_a_json_document_is_one_line_when_piped(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output.write_json({"name": "grüezi", "list": [1, 2]})
    written = capsysbinary.readouterr().out
    assert written.count(b"\n") == 1
    assert json.loads(written) == {"name": "grüezi", "list": [1, 2]}


def test_a_time_is_iso_in_utc_with_milliseconds() -> None:
    assert output.iso_time(1_500) == "1970-01-01T00:00:01.500Z"
    assert output.iso_time(None) is None
    assert output.iso_time(-1) is None
    assert output.iso_time(2**62) is None


def test_text_for_a_terminal_cannot_command_it() -> None:
    assert output.shown_text(b"\x1b]0;owned\x07") == "\\x1b]0;owned\\x07"
    assert output.shown_text(b"\xff") == "\\xff"
    assert output.shown_text(None) == "(null)"
    assert output.shown_text(b"abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (-5, "0ms"),
        (40, "40ms"),
        (2_500, "2.5s"),
        (60_000, "1m"),
        (65_000, "1m 5s"),
        (3_600_000, "1h"),
        (90_061_000, "1d 1h"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(milliseconds: int, text: str) -> None:
    assert output.shown_duration(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (5 * 1024**4, "5.0 TB")]
)
def test_a_size_is_shown_in_its_largest_unit(size: int, text: str) -> None:
    assert output.shown_bytes(size) == text


def test_progress_stays_silent_unless_a_terminal_looks_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not sys.stdout.isatty()
    with output.progress("working", 10) as bar:
        bar.advance(5)
        bar.reach(10)
    assert capsys.readouterr() == ("", "")
