"""Every page for users runs as it stands, block by block; see `blocks` for what that
means. A block that nobody runs says so in its first line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.blocks import PROJECT, are_shown, blocks_of
from tests.docs.running import PageRun, missing_programs, page_run

__all__ = ["page_run"]

RUN = ("python", "python theirs", "output", "console", "shell")
# Blocks that are there to be looked at.
SHOWN = ("", "text", "json", "javascript", "java", "sql", "toml", "yaml")
# Pages whose blocks need more than a node and a shell, and who runs or checks them.
ELSEWHERE = {
    "docs/spark.md": "tests/spark/test_pages.py",
    "docs/spark-kafka-source.md": "tests/spark/test_pages.py",
    "docs/pipelines.md": "tests/pipelines/test_lake_and_topic.py",
}
# For those who work on Headrace itself.
DRAWINGS = ("docs/formats/",)


def pages() -> list[str]:
    found = [
        "README.md",
        *(str(each.relative_to(PROJECT)) for each in PROJECT.glob("docs/**/*.md")),
    ]
    return sorted(each for each in found if not each.startswith(DRAWINGS))


RUN_HERE = [
    page
    for page in pages()
    if page not in ELSEWHERE and any(each.info in RUN for each in blocks_of(page))
]


@pytest.mark.parametrize("page", RUN_HERE)
def test_every_block_of_a_page_runs_as_it_stands(page: str, page_run: PageRun) -> None:
    blocks = blocks_of(page)
    for missing in missing_programs(blocks):
        pytest.skip(f"{missing} is not installed")
    for block in blocks:
        if not block.is_test:
            page_run.run(block)
    if tests := [block for block in blocks if block.is_test]:
        page_run.run_tests(tests)


@pytest.mark.parametrize("page", pages())
def test_every_block_says_whether_it_is_run(page: str) -> None:
    unclear = [
        f"{each} ```{each.info}"
        for each in blocks_of(page)
        if (each.info not in RUN + SHOWN and each.file is None)
        or (each.info == "" and each.text.startswith("$ "))
    ]
    assert not unclear, f"say what these are, as tests/docs/blocks.py has it: {unclear}"


@pytest.mark.parametrize("page", sorted(ELSEWHERE))
def test_whoever_runs_a_page_elsewhere_is_there(page: str) -> None:
    assert (PROJECT / page).is_file() and (PROJECT / ELSEWHERE[page]).is_file()


@pytest.mark.parametrize("page", pages())
def test_every_link_of_a_page_leads_to_a_file(page: str) -> None:
    folder = (PROJECT / page).parent
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (PROJECT / page).read_text())
    missing = [link for link in links if "://" not in link and not (folder / link).exists()]
    assert not missing


@pytest.mark.parametrize("example", sorted((PROJECT / "examples").glob("*.py")), ids=str)
def test_every_example_runs_to_its_end(example: Path, page_run: PageRun) -> None:
    assert page_run.printed_by(example)


def test_three_dots_stand_for_what_a_page_leaves_out() -> None:
    assert are_shown(["a", "...", "d"], ["a", "b", "c", "d"])
    assert are_shown(["took ...", "..."], ["took 7 s"])
    assert are_shown(["a  b", "0.37 s"], ["a b", "1.50 s"])
    assert not are_shown(["a", "..."], ["b"])
    assert not are_shown(["a"], ["a", "b"])
