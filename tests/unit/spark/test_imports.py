"""What a query does not need, its processes do not import: Spark starts several of
them for each query, and every one of them is waited for."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import {module}
print(*sorted(name for name in sys.modules if name.startswith("headrace.")))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "module", ["headrace.spark.batch", "headrace.spark.stream", "headrace.spark.sink"]
)
def test_a_query_of_a_server_does_not_import_what_reads_directories(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    found = done.stdout.split()
    assert module in found
    unwanted = ("headrace.node", "headrace.log", "headrace.client.handle", "headrace.platform")
    assert [name for name in found if name.startswith(unwanted)] == []
