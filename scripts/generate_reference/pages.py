"""The pages by name, and what Markdown asks of both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"


def generate() -> dict[str, str]:
    """The text of each page, by its name."""
    from scripts.generate_reference import grpc, http

    return {"http.md": http.page(), "grpc.md": grpc.page()}


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell(each) for each in line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Nothing in it ends the cell or the line."""
    return " ".join(text.split()).replace("|", "\\|")


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    kept = "".join(each for each in heading.lower() if each.isalnum() or each in " -_")
    return kept.replace(" ", "-")
