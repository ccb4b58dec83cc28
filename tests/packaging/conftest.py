"""Small runs of pytest, each in an empty folder that holds a copy of our conftest and what it
imports, because a rule about a whole run cannot be seen from within it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
RULES = ("conftest.py", "scheduling.py", "second_try.py", "short_tests.py")

# What these runs have no use for, and would import each time, a second try too.
PLAIN = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:anyio")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run_pytest(
        body: str,
        *arguments: str,
        files: Mapping[str, str] = {},
        before: Sequence[str] = (),
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "tests"
        folder.mkdir()
        for rules in RULES:
            (folder / rules).write_text((TESTS / rules).read_text())
        for name, text in {"test_case.py": body, **files}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE_", "PYTEST_"))}
        return subprocess.run(
            [*before, sys.executable, "-m", "pytest", "-q", *arguments, folder],
            cwd=tmp_path,
            env=ours | {"PYTEST_ADDOPTS": " ".join(PLAIN)} | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run_pytest
