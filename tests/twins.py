"""Running one test over a plain function and over its compiled twin."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.compiled import twins


def both(name: str) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`: the plain twin of
    `package.module.function` and the compiled one, which is skipped where it was
    not built."""
    plain, compiled = twins(name)
    missing = pytest.mark.skipif(compiled is None, reason="not compiled: run hatch_build.py")
    return [
        pytest.param(plain, id="plain"),
        pytest.param(compiled, id="compiled", marks=[missing]),
    ]
