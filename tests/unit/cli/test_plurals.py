"""One message, two messages: texts for people count as people do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.core.wording import counted

SOURCE = Path(headrace.__file__).parent
# What is said to people in whole sentences.
FOLDERS = ("cli", "pipelines", "client")
# What there is one of at times. Never of bytes: those of a batch are many.
NOUNS = (
    "batches|copies|duplicates|entries|events|files|findings|functions|groups|kinds|leases|"
    "letters|logs|members|messages|metrics|orders|partitions|problems|records|rows|seconds|"
    "segments|slots|topics|traces|transactions"
)
_PLURAL = re.compile(rf" (?:(?!has |consume |as )[a-z]+ )?({NOUNS})\b")
# Constants, and rates with a fraction, are never one.
_NEVER_ONE = re.compile(r"[A-Z_.a-z]*\b[A-Z][A-Z_]+|.* / .*|counted\(.*|figures\.open_files_max")


@pytest.mark.parametrize(
    ("count", "word", "text"),
    [
        (0, "message", "0 messages"),
        (1, "message", "1 message"),
        (1234, "dead letter", "1,234 dead letters"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
        (3, "query", "3 queries"),
        (2, "day", "2 days"),
        (1.0, "second", "1 second"),
        (0.5, "second", "0.5 seconds"),
        (30.0, "second", "30 seconds"),
    ],
)
def test_a_word_agrees_with_its_number(count: float, word: str, text: str) -> None:
    assert counted(count, word) == text


def test_every_text_counts_by_the_one_function() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {text}"
        for folder in FOLDERS
        for path in sorted((SOURCE / folder).rglob("*.py"))
        for line, text in plurals_in(ast.parse(path.read_text()))
    ]
    assert not wrong, "use headrace.core.wording.counted:\n" + "\n".join(wrong)


def plurals_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Numbers in f-strings with a plural behind them."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, behind in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(behind, ast.Constant):
                continue
            name, text = ast.unparse(value.value), str(behind.value)
            if _PLURAL.match(text) and not _NEVER_ONE.fullmatch(name):
                yield node.lineno, f"{{{name}}}{text}"
