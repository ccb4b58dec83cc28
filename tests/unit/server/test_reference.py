"""The API reference: as its sources say, with a word for every field."""

from __future__ import annotations

import re

import pytest
from scripts.generate_reference.pages import FOLDER, generate

from headrace.server.http.openapi import document
from headrace.wire.http.meanings import MEANINGS

PAGES = ("http.md", "grpc.md")


def fields() -> set[tuple[str, str]]:
    schemas = document()["components"]["schemas"]
    return {(name, field) for name in schemas for field in schemas[name].get("properties", {})}


def test_the_reference_is_what_the_doors_are_made_from() -> None:
    for name, text in generate().items():
        assert (FOLDER / name).read_text() == text, "run: python -m scripts.generate_reference"


def test_every_field_of_every_body_says_what_it_means() -> None:
    schemas = document()["components"]["schemas"]
    silent = [
        f"{name}.{field}"
        for name, field in sorted(fields())
        if "description" not in schemas[name]["properties"][field]
    ]
    assert not silent, f"say in headrace/wire/http/meanings.py what they mean: {silent}"


@pytest.mark.parametrize("name", PAGES)
def test_no_row_of_the_reference_is_without_its_words(name: str) -> None:
    rows = re.findall(r"^\| `.*\|$", (FOLDER / name).read_text(), re.MULTILINE)
    assert len(rows) > 100
    assert not [row for row in rows if row.endswith("|  |")]


def test_nothing_is_explained_that_no_body_has() -> None:
    known = {field for _, field in fields()} | {f"{name}.{field}" for name, field in fields()}
    known |= {name for path in document()["paths"] for name in re.findall(r"{(\w+)}", path)}
    assert set(MEANINGS) <= known


@pytest.mark.parametrize("name", PAGES)
def test_every_link_within_a_page_leads_somewhere(name: str) -> None:
    text = (FOLDER / name).read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings]
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r"\(#([^)]*)\)", text)) <= set(anchors)
