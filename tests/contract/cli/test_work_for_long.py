"""Functions of 20 seconds under `headrace work`, for real: `long_jobs` began them with the
first module of this folder, so that nobody waits for all of their time."""

from __future__ import annotations

import signal
import subprocess

from tests.contract.cli.conftest import END_SECONDS
from tests.contract.cli.test_apps import line_of


def test_functions_of_20_seconds_run_once_for_real(
    long_jobs: subprocess.Popen[bytes],
) -> None:
    lines = [line_of(long_jobs) for _ in range(4)]
    assert lines == ["begun 0 1", "ended 0", "begun 1 1", "ended 1"]
    long_jobs.send_signal(signal.SIGTERM)
    rest, errors = long_jobs.communicate(timeout=END_SECONDS)
    assert (rest, long_jobs.returncode) == (b"", 0)
    assert b"done=2 failed=0 rejected=0 lost=0" in errors
