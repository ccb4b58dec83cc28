"""Environments of Python for frameworks, which want versions of libraries that do not go
together: one for each list of requirements, filled once by pip.

    ~/.cache/headrace/ecosystem/<name>-<hash of the list and of Python's version>/

Wheels only: a framework that has none for this Python is not tried here.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from benchmarks import maven

PROGRAMS = Path(__file__).parent / "beside"
CACHE = maven.CACHE / "ecosystem"
INSTALL_SECONDS = 900


class NoEnvironment(Exception):
    """The framework cannot be installed here; says why."""


@cache
def python_of(name: str) -> str:
    """An interpreter that has what beside/<name>/requirements.txt asks for."""
    requirements = PROGRAMS / name / "requirements.txt"
    version = "{}.{}".format(*sys.version_info)
    mark = hashlib.sha256(version.encode() + requirements.read_bytes()).hexdigest()[:16]
    folder = CACHE / f"{name}-{mark}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Written last, so that what was interrupted is begun anew.
        whole = folder / "whole"
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _install(folder, requirements)
            whole.touch()
    return str(folder / "bin" / "python")


def _install(folder: Path, requirements: Path) -> None:
    print(f"installing {requirements.parent.name} from PyPI", file=sys.stderr)
    python = str(folder / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [
            python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--only-binary", ":all:", "--requirement", str(requirements),
        ],
    ):  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise NoEnvironment(f"{requirements.parent.name}: {error}") from error
        if done.returncode:
            reason = (done.stderr.strip() or "pip failed").splitlines()[-1]
            raise NoEnvironment(f"{requirements.parent.name} cannot be installed: {reason}")
