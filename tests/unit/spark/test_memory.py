"""Memory that is kept from one batch to the next."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

# In a process of its own: what is set here holds for the rest of its life.
_SCRIPT = """
import resource
from headrace.spark.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        pieces = [bytearray(size << 20) for size in (2, 2, 4, 4)]
        del pieces
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
keep_freed_memory()
faults()
print(given_back, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_what_one_batch_took_is_there_for_the_next() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    given_back, kept = map(int, done.stdout.split())
    assert given_back > 20 * 1_000
    assert kept < given_back / 100
