"""The wheel, as somebody who has only pip meets it.

Built here, with the compiled parts and without a compiler, installed into an empty
environment from wheels alone, and used there: not one line of this checkout is on
its path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

# One worker runs them all: building and installing once is enough.

PROJECT = Path(__file__).parent.parent.parent

USE_IT_EMBEDDED = """
import sys

import headrace

assert "site-packages" in headrace.__file__, headrace.__file__
hr = headrace.open(sys.argv[1])
hr.create_topic("t")
hr.publish("t", b"x")
q = hr.queue("t", group="g")
[m] = q.receive(max=1)
assert m.value == b"x", m.value
m.ack()
assert q.lease(1) == []
q.close()
hr.close()
"""


SAY_WHAT_RUNS = "from headrace.compiled import is_compiled; print(is_compiled())"


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    # Neither the checkout nor its environment may leak into what is tested.
    ours = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ours.pop("HEADRACE_PURE", None)
    return subprocess.run(
        command,
        cwd=cwd,
        env=ours | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def succeeded(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def build_wheel(folder: Path, **environment: str) -> tuple[Path, str]:
    """The wheel, and what was said while it was built."""
    said = succeeded(
        run(
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
            *("--outdir", folder, PROJECT),
            cwd=folder,
            **environment,
        )
    )
    [built] = folder.glob("*.whl")
    return built, said


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    # What is seen here is what a wheel holds. Optimised code is what all other tests run.
    compiler = tmp_path_factory.mktemp("compiler") / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)
    return build_wheel(tmp_path_factory.mktemp("dist"), CC=str(compiler))[0]


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The wheel of a machine without a compiler, and what was said as it was built."""
    return build_wheel(tmp_path_factory.mktemp("pure"), CC="false")


def pip(environment: Path) -> tuple[str | Path, ...]:
    return (sys.executable, "-m", "pip", "--python", environment / "python")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("environment")
    # The pip from outside does what one inside would, which has to be installed first.
    succeeded(run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder))
    installed = run(
        *(*pip(folder / "bin"), "install", "--quiet", "--retries", "1"),
        *("--only-binary", ":all:", "-c", PROJECT / "constraints.txt", wheel),
        cwd=folder,
    )
    if installed.returncode != 0 and "connection broken" in installed.stderr:
        pytest.skip("pip cannot reach its package index")
    succeeded(installed)
    return folder / "bin"


def test_the_wheel_holds_the_compiled_parts_and_is_marked_as_typed(wheel: Path) -> None:
    assert not wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for source in (PROJECT / "src").rglob("*.pyx"):
        stem = str(source.relative_to(PROJECT / "src").with_suffix(""))
        assert any(name.startswith(f"{stem}.") and name.endswith(".so") for name in names), stem
    for path in (PROJECT / "src" / "headrace" / "dashboard").rglob("*.*"):
        assert str(path.relative_to(PROJECT / "src")) in names, path
    assert "headrace/py.typed" in names
    assert "headrace/core/errors.py" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    packages = {top for top in tops if not top.endswith(".dist-info")}
    assert packages == {"headrace", "pyspark_headrace"}


def is_pure(wheel: Path) -> bool:
    names = zipfile.ZipFile(wheel).namelist()
    is_named_so = wheel.name.endswith("-py3-none-any.whl")
    return is_named_so and not [name for name in names if name.endswith(".so")]


def notes(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("headrace:")]


def test_a_build_without_a_compiler_is_pure_and_says_so_in_one_line(
    without_compiler: tuple[Path, str],
) -> None:
    built, said = without_compiler
    assert is_pure(built)
    assert len(notes(said)) == 1


def test_a_build_that_wants_no_compiler_is_pure_and_says_nothing(tmp_path: Path) -> None:
    built, said = build_wheel(tmp_path, HEADRACE_PURE="1")
    assert is_pure(built)
    assert notes(said) == []


def test_a_pure_install_publishes_leases_and_acks(
    environment: Path, without_compiler: tuple[Path, str], tmp_path: Path
) -> None:
    # What a pure wheel holds, put before the other one on the path: their
    # dependencies are the same, and installing them twice is slow.
    zipfile.ZipFile(without_compiler[0]).extractall(tmp_path / "site-packages")
    path = str(tmp_path / "site-packages")
    python = environment / "python"
    said = succeeded(run(python, "-c", SAY_WHAT_RUNS, cwd=tmp_path, PYTHONPATH=path))
    assert said.strip() == "False"
    script = tmp_path / "use_it.py"
    script.write_text(USE_IT_EMBEDDED)
    succeeded(run(python, script, tmp_path / "data", cwd=tmp_path, PYTHONPATH=path))


def test_the_compiled_parts_run_unless_plain_python_is_asked_for(
    environment: Path, tmp_path: Path
) -> None:
    python = environment / "python"
    assert succeeded(run(python, "-c", SAY_WHAT_RUNS, cwd=tmp_path)).strip() == "True"
    plain = run(python, "-c", SAY_WHAT_RUNS, cwd=tmp_path, HEADRACE_PURE="1")
    assert succeeded(plain).strip() == "False"


def test_an_empty_environment_can_publish_lease_and_ack(environment: Path, tmp_path: Path) -> None:
    script = tmp_path / "use_it.py"
    script.write_text(USE_IT_EMBEDDED)
    succeeded(run(environment / "python", script, tmp_path / "data", cwd=tmp_path))


def test_the_command_says_the_version_of_the_project(environment: Path, tmp_path: Path) -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    answer = succeeded(run(environment / "headrace", "--version", cwd=tmp_path))
    assert answer.split() == ["headrace", version, "(compiled)"]


def test_the_package_says_the_version_of_the_project(environment: Path, tmp_path: Path) -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    program = "import headrace; print(headrace.__version__)"
    assert succeeded(run(environment / "python", "-c", program, cwd=tmp_path)).strip() == version


def test_using_a_missing_extra_names_its_pip_command(environment: Path, tmp_path: Path) -> None:
    program = "from headrace.core.extras import require; require('uvloop', 'server')"
    result = run(environment / "python", "-c", program, cwd=tmp_path)
    assert result.returncode == 1
    assert "pip install 'headrace[server]'" in result.stderr


def test_what_the_base_install_brings_agrees_with_itself(environment: Path, tmp_path: Path) -> None:
    succeeded(run(*pip(environment), "check", cwd=tmp_path))
