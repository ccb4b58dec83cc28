"""The choice between twins: the compiled one, unless it is unwanted or outdated."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from headrace.compiled import is_compiled, twins

ASK = "from headrace.engine.partitioner import murmur2; print(type(murmur2).__name__)"


def asked(**environment: str) -> str:
    ours = {name: value for name, value in os.environ.items() if name != "HEADRACE_PURE"}
    return subprocess.run(
        [sys.executable, "-c", ASK],
        env=ours | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.strip()


@pytest.mark.process
@pytest.mark.skipif(not is_compiled(), reason="not compiled: run hatch_build.py")
def test_the_compiled_twin_is_chosen_unless_the_environment_says_pure() -> None:
    assert asked() == "cython_function_or_method"
    assert asked(HEADRACE_PURE="0") == "cython_function_or_method"
    assert asked(HEADRACE_PURE="1") == "function"


@pytest.mark.process
@pytest.mark.skipif(not is_compiled(), reason="not compiled: run hatch_build.py")
def test_a_compiled_twin_that_is_older_than_its_source_is_left_alone(tmp_path: Path) -> None:
    found = find_spec("headrace.engine.partitioner_compiled")
    assert found is not None and found.origin is not None
    built = Path(found.origin)
    package = tmp_path / "headrace"
    (package / "engine").mkdir(parents=True)
    for name in ("__init__.py", "compiled.py", "engine/partitioner.py", "engine/__init__.py"):
        (package / name).symlink_to(built.parent.parent / name)
    (package / "core").symlink_to(built.parent.parent / "core")
    module = package / "engine" / built.name
    module.write_bytes(built.read_bytes())
    assert asked(PYTHONPATH=str(tmp_path)) == "cython_function_or_method"
    source = package / "engine" / "partitioner_compiled.pyx"
    source.touch()
    os.utime(module, (0, 0))
    assert asked(PYTHONPATH=str(tmp_path)) == "function"


def test_the_plain_twin_can_always_be_asked_for() -> None:
    plain, _ = twins("headrace.engine.partitioner.murmur2")
    assert plain.__module__ == "headrace.engine.partitioner"
    assert plain(b"21") == -973932308 & 0xFFFFFFFF
