"""The suite passes wherever it lies and however it is started.

A part of it runs in a copy of this checkout

    under a path with spaces, which is that of its Python and of its temporary folder too
    as a user without root's rights, with no home, whose new files only it may read
    without a terminal, and with the signals ignored that nohup and shells ignore
    in a time zone that is a quarter of an hour beside all others, and in another locale

`make elsewhere` runs most of the suite so; HEADRACE_ELSEWHERE says what instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent

# What has most to do with folders, files, users, signals, terminals and times.
PART = """
    tests/unit/platform tests/unit/cli tests/contract/test_disk.py tests/contract/cli/test_files.py
    tests/contract/cli/test_processes.py tests/contract/cli/test_queues.py
"""
NOT_COPIED = (".venv", ".git", ".cache", ".*_cache", ".hypothesis", "build", "dist", "node_modules")
ZONE = "Asia/Kathmandu"

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
# Who may run the suite: the user and what stands before the command. A Python in root's home
# can only be read with one right of root's; where even that cannot be given away, root does
# without all rights, and has no more than the owner of the files.
USERS = (
    (NOBODY, (*AS_NOBODY, "--inh-caps=-all", "--bounding-set=-all")),
    (
        NOBODY,
        (*AS_NOBODY, "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search",
        "--bounding-set=-all,+dac_read_search"),
    ),
    (0, ("setpriv", "--inh-caps=-all", "--bounding-set=-all")),
)  # fmt: skip
# In a process that it starts: setpriv has root's rights for as long as it begins the first.
WRITE = """
import subprocess, sys
write = "import sys; open(sys.argv[1], 'w').close()"
subprocess.run([sys.executable, "-c", write, sys.argv[1]], check=True)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a space in its path. Those of pytest are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="some where ") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_part_of_the_suite_passes_elsewhere(place: Path) -> None:
    copy, temporary = place / "head race", place / "tmp dir"
    shutil.copytree(PROJECT, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    temporary.mkdir()
    (copy / ".venv").symlink_to(sys.prefix)
    python = copy / ".venv" / Path(sys.executable).relative_to(sys.prefix)
    part = (os.environ.get("HEADRACE_ELSEWHERE") or PART).split()
    kept = {name: value for name, value in os.environ.items() if name in ("CI", "PATH")}
    if os.environ.get("HEADRACE_NO_SKIPS"):
        kept["HEADRACE_NO_SKIPS"] = os.environ["HEADRACE_NO_SKIPS"]
    before = ("env", "--ignore-signal=INT,QUIT,HUP", *without_root(place, python))
    run = subprocess.run(
        [*before, str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *part],
        cwd=copy,
        env=kept | {
            "HOME": "/nonexistent",
            "LC_ALL": another_locale(),
            "PYTHONPATH": str(copy / "src"),
            "TMPDIR": str(temporary),
            "TZ": ZONE,
        },
        umask=0o077,
        # Without a terminal.
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout


def without_root(place: Path, python: Path) -> tuple[str, ...]:
    """What to put before a command that shall have no rights of root's. The place is its own."""
    if os.geteuid() != 0:
        return ()
    for user, before in USERS:
        for folder, _, files in os.walk(place):
            os.chown(folder, user, user)
            for file in files:
                os.chown(os.path.join(folder, file), user, user, follow_symlinks=False)
        tried = subprocess.run(
            [*before, python, "-c", WRITE, place / "written"], capture_output=True, check=False
        )
        if tried.returncode == 0:
            return before
    pytest.fail("no user without root's rights can run the suite")


def another_locale() -> str:
    """One that is installed and has another language or another encoding; C, if there is none."""
    known = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout
    others = [name for name in known.split() if name.split(".")[0] not in ("C", "POSIX", "en_US")]
    return next(iter(others), "C")
