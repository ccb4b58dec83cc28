"""The choice between plain Python and its compiled twin.

    record/columns.py               plain Python; everybody imports this one
    record/columns_compiled.pyx     Cython: the same names, for those that pay

A function in `columns.py` that is marked `@compiled` is replaced by the one of
the same name in `columns_compiled`, where that was built. Where it was not, or
where HEADRACE_PURE is set in the environment, the plain one runs: it says what
the compiled one means, and both pass the same tests.

Rejected: compiled code without a twin. An install without a compiler would be a
lesser product, and nobody could read what the fast one is meant to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

PURE_VARIABLE = "HEADRACE_PURE"


class Twins(NamedTuple):
    plain: Callable[..., Any]
    # None where it was not built, or is not wanted.
    compiled: Callable[..., Any] | None


_known: dict[str, Twins] = {}


def compiled(plain: _Function) -> _Function:
    """Marks the plain twin, a function or a class; gives back the one that runs."""
    return plain if (chosen := _note(plain).compiled) is None else chosen  # type: ignore[return-value]


def twins(name: str) -> Twins:
    """Both of `package.module.function`, for whoever compares them."""
    import_module(name.rpartition(".")[0])
    return _known[name]


def is_compiled() -> bool:
    """Whether this process runs compiled code: all of it, or none."""
    return _load("headrace.engine.partitioner_compiled") is not None


def _note(plain: Callable[..., Any]) -> Twins:
    module = _load(f"{plain.__module__}_compiled")
    found = Twins(plain, None if module is None else getattr(module, plain.__name__))
    _known[f"{plain.__module__}.{plain.__name__}"] = found
    return found


def _load(name: str) -> Any:
    if os.environ.get(PURE_VARIABLE, "") not in ("", "0"):
        return None
    found = find_spec(name)
    if found is None or found.origin is None or _is_outdated(found.origin):
        return None
    return import_module(name)


def _is_outdated(module: str) -> bool:
    """In a checkout the source may have changed since it was built. Installed,
    there is no source."""
    try:
        return os.stat(f"{module.partition('.')[0]}.pyx").st_mtime > os.stat(module).st_mtime
    except FileNotFoundError:
        return False
