"""A page, run as a reader would: in an empty directory, with a node where it has one.

The page's addresses are the defaults, which other nodes may have; here every node has
free ports, and what is run and shown says those.

    $ headrace serve ...     runs beside the rest of the page
    ^C                       among what is shown: the reader waits for what is above it,
                             then interrupts

Commands that install something are not run: the tests of the wheel do that.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import Block, Command, are_shown, commands_of, is_shown
from tests.doors.conftest import DoorsProcess

DEFAULTS = {"kafka": "127.0.0.1:9092", "http": "127.0.0.1:9080", "grpc": "127.0.0.1:9081"}
# Programs of a system's packages that pages use.
PROGRAMS = ("curl", "jq", "kcat")
WAIT_SECONDS = 60

_ASSIGNMENT = re.compile(r"([A-Z_]+)=(\S+)")
_EXIT_CODE = re.compile(r"\(exit code (\d+)\)")
_START = '#!/bin/sh\nexec "{python}" -c \'from headrace.cli.main import main; main()\' "$@"\n'


def missing_programs(blocks: list[Block]) -> list[str]:
    typed = "\n".join(each.text for each in blocks if each.info in ("console", "shell"))
    return [name for name in PROGRAMS if re.search(rf"\b{name} ", typed) and not shutil.which(name)]


class PageRun:
    """One reader with one page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node: DoorsProcess | None = None
        # A dataclass looks its module up by name, so the page is one.
        self._namespace: dict[str, Any] = {"__name__": "__main__"}
        self._printed = ""
        programs = folder / ".programs"
        programs.mkdir()
        start = programs / "headrace"
        start.write_text(_START.format(python=sys.executable))
        start.chmod(0o755)
        self.environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("HEADRACE")},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    def run(self, block: Block) -> None:
        if block.file is not None:
            (self.folder / block.file).write_text(self._placed(block.text))
        elif block.info == "python":
            self._run_python(block)
        elif block.info == "python theirs":
            compile(block.text, str(block), "exec", dont_inherit=True)
        elif block.info == "output":
            printed = self._printed.splitlines()
            assert are_shown(self._placed(block.text).splitlines(), printed), (block, printed)
        elif block.info == "console":
            for command in commands_of(block):
                self._type(block, command)
        elif block.info == "shell":
            for line in block.text.splitlines():
                self._type_alone(block, line)

    def printed_by(self, program: Path) -> str:
        """What a program prints that is given a directory to work in."""
        ran = self._finished([sys.executable, str(program), str(self.folder / "data")])
        assert ran.returncode == 0, ran.stdout
        return ran.stdout

    def close(self) -> None:
        # Clients that a page has left open would miss their node.
        self._namespace.clear()
        gc.collect()
        if self.node is not None:
            self.node.stop()

    def _placed(self, text: str) -> str:
        """The text with the addresses of a node that is there."""
        if self.node is None and any(address in text for address in DEFAULTS.values()):
            self.node = DoorsProcess(self.folder / "served")
        for door, address in DEFAULTS.items():
            if self.node is not None:
                text = text.replace(address, self.node.doors[door])
        return text

    def _run_python(self, block: Block) -> None:
        # Blank lines before it make a traceback point at the page's own line.
        source = "\n" * block.line + self._placed(block.text)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(source, block.page, "exec", dont_inherit=True), self._namespace)
        self._printed = printed.getvalue()

    def run_tests(self, blocks: list[Block]) -> None:
        """Gives them to pytest, with the fixtures that it finds where Headrace is
        installed, and without what else is installed here."""
        for block in blocks:
            (self.folder / f"test_block_{block.line}.py").write_text(block.text)
        self.environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        plugins = ["-p", "no:cacheprovider", "-p", "headrace.testing.plugin"]
        ran = self._finished([sys.executable, "-m", "pytest", "-q", *plugins, "."])
        assert ran.returncode == 0, ran.stdout
        assert f"{len(blocks)} passed" in ran.stdout, ran.stdout

    def _type(self, block: Block, command: Command) -> None:
        if command.line.startswith("pip install"):
            return
        if command.line.startswith("headrace serve"):
            assert self.node is None, f"{block}: a node is running already"
            flags = command.line.split()[2:]
            data = flags[flags.index("--data") + 1]
            self.node = DoorsProcess(self.folder / data)
            shown = [self._placed(each) for each in command.shown]
            assert are_shown(shown, [self.node.ready]), (str(block), self.node.ready)
            return
        line = self._placed(command.line)
        shown = [self._placed(each) for each in command.shown]
        if "^C" in shown:
            self._type_and_interrupt(block, line, shown)
            return
        ran = self._finished(["sh", "-c", line])
        code = 0
        if shown and (found := _EXIT_CODE.fullmatch(shown[-1])):
            code = int(found.group(1))
            shown.pop()
        actual = ran.stdout.splitlines()
        assert ran.returncode == code, (str(block), line, actual)
        if shown or code:
            assert are_shown(shown, actual), (str(block), line, actual)

    def _type_and_interrupt(self, block: Block, line: str, shown: list[str]) -> None:
        """What is shown comes in that order; between it may be more."""
        process = subprocess.Popen(
            line.split(),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        seen: list[str] = []
        try:
            for expected in shown:
                if expected == "^C":
                    process.send_signal(signal.SIGINT)
                    continue
                for actual in process.stdout:
                    seen.append(actual)
                    if is_shown(expected, actual):
                        break
                else:
                    raise AssertionError((str(block), line, expected, seen))
            process.communicate(timeout=WAIT_SECONDS)
            assert process.returncode == 0, (str(block), line, seen)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def _type_alone(self, block: Block, line: str) -> None:
        line = self._placed(line)
        if assigned := _ASSIGNMENT.fullmatch(line):
            self.environment[assigned.group(1)] = assigned.group(2)
            return
        ran = self._finished(["sh", "-c", line.replace("curl -s", "curl -sS --fail-with-body")])
        assert ran.returncode == 0, (str(block), line, ran.stdout)

    def _finished(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            shown, _ = process.communicate(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            # The shell, and whatever it has started.
            os.killpg(process.pid, signal.SIGKILL)
            shown, _ = process.communicate()
            raise AssertionError(f"{command} has no end; it showed: {shown}") from None
        return subprocess.CompletedProcess(command, process.returncode, shown)


@pytest.fixture
def page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageRun]:
    monkeypatch.chdir(tmp_path)
    run = PageRun(tmp_path)
    yield run
    run.close()
