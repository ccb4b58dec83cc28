"""Every Python block of the pages for users runs.

A block that defines tests is given to pytest, as a reader would. The others of a
page are run from top to bottom in one namespace, in an empty directory.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROJECT = Path(__file__).parent.parent.parent
PAGES = ("sdk.md", "testing.md", "workers.md")

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    line: int
    source: str

    @property
    def is_test(self) -> bool:
        return "def test_" in self.source


def blocks_of(page: str) -> list[Block]:
    text = (PROJECT / "docs" / page).read_text()
    return [
        Block(text.count("\n", 0, found.start(1)), found.group(1))
        for found in _BLOCK.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in blocks_of(page) if not block.is_test]
    assert blocks
    # A dataclass looks its module up by name, so the page is one.
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        # Blank lines before it make a traceback point at the page's own line.
        source = "\n" * block.line + block.source
        exec(compile(source, f"docs/{page}", "exec", dont_inherit=True), namespace)


def test_every_test_on_a_page_passes_as_a_reader_would_run_it(tmp_path: Path) -> None:
    tests = [(page, block) for page in PAGES for block in blocks_of(page) if block.is_test]
    assert tests
    for number, (_, block) in enumerate(tests):
        (tmp_path / f"test_block_{number}.py").write_text(block.source)
    if not entry_points(group="pytest11", name="headrace"):
        (tmp_path / "conftest.py").write_text('pytest_plugins = ["headrace.testing.plugin"]\n')
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(tests)} passed" in run.stdout


@pytest.mark.parametrize("example", sorted((PROJECT / "examples").glob("*.py")), ids=str)
def test_every_example_runs_to_its_end(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(example), str(tmp_path / "data")]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout
