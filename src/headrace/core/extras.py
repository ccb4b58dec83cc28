"""Optional parts: a missing one is reported with the command that installs it."""

from __future__ import annotations

import importlib
from types import ModuleType

from headrace.core.errors import MissingExtra


def require(module: str, extra: str) -> ModuleType:
    """The module, or MissingExtra with the pip command for `extra`.

    Only the absence of the module itself counts as a missing extra. A module that
    is there and fails to import something else raises that error unchanged.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise MissingExtra(
            f"{module} is not installed; install it with: pip install 'headrace[{extra}]'"
        ) from error
