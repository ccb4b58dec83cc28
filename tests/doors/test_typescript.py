"""The TypeScript client: made from the .proto, compiled strictly, and at work on a node.

Everything happens in a copy, as in a fresh clone: what npm installs and the compiler
writes is nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.generate_typescript import CLIENT, TARGET, generate
from tests.doors.conftest import DoorsProcess

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
# One installation serves all of them.

_EXAMPLE = re.compile(r"^```ts\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(*command: str, folder: Path, **environment: str) -> str:
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client with what it needs, and the example of its page beside its tests."""
    folder = tmp_path_factory.mktemp("typescript") / "client"
    shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    examples = _EXAMPLE.findall((folder / "README.md").read_text())
    assert examples
    (folder / "test" / "readme.ts").write_text("\n".join(examples))
    run("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline", folder=folder)
    run("npm", "run", "build", folder=folder)
    return folder


@needs_npm
def test_the_generated_code_is_what_the_proto_says(client: Path) -> None:
    assert TARGET.read_text() == generate(client), "run: python -m scripts.generate_typescript"


@needs_npm
def test_the_client_passes_its_own_tests_on_a_real_node(client: Path, tmp_path: Path) -> None:
    start = tmp_path / "headrace"
    start.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -c '
        "'from headrace.cli.main import main; main()' \"$@\"\n"
    )
    start.chmod(0o755)
    environment = {
        "HEADRACE_COMMAND": str(start),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TMPDIR": str(tmp_path),
    }
    tests = sorted(str(path) for path in (client / "dist" / "test").glob("*.test.js"))
    shown = run("node", "--test", "--test-reporter=tap", *tests, folder=client, **environment)
    counts = dict(re.findall(r"^# (tests|pass|skipped) (\d+)$", shown, re.MULTILINE))
    assert int(counts["tests"]) > 10
    assert (counts["pass"], counts["skipped"]) == (counts["tests"], "0")
    # What the nodes logged is in there too: clients that come and go are no news.
    assert "GOAWAY" not in shown


@needs_npm
def test_the_example_of_its_page_runs(client: Path, doors: DoorsProcess) -> None:
    script = client / "dist" / "test" / "readme.js"
    address = doors.doors["grpc"]
    script.write_text(script.read_text().replace("127.0.0.1:9081", address))
    shown = run("node", str(script), folder=client)
    assert re.fullmatch(r"orders:\d:\d+\n12.5 1\n", shown)


def test_versions_are_exact_and_the_lock_names_no_place() -> None:
    package = json.loads((CLIENT / "package.json").read_text())
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values())
    lock = (CLIENT / "package-lock.json").read_text()
    assert "resolved" not in lock and "://" not in lock
    assert all(each.get("version") for each in json.loads(lock)["packages"].values())
