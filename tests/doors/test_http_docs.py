"""The commands on the page about HTTP, run as a reader would."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.doors.conftest import DoorsProcess

PAGE = Path(__file__).parent.parent.parent / "docs" / "http.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    node = DoorsProcess(tmp_path / "data")
    try:
        blocks = re.findall(r"^```shell\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        commands = [line for block in blocks for line in block.splitlines()]
        assert len(commands) > 10
        for command in commands:
            ran = subprocess.run(
                ["sh", "-c", command.replace("curl -s", "curl -sS --fail-with-body")],
                env={"NODE": node.http, "PATH": "/usr/bin:/bin:/usr/local/bin"},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
            if "accept:" in command:
                assert ran.stdout == "any bytes"
            else:
                json.loads(ran.stdout)
    finally:
        node.stop()
