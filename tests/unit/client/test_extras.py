"""Optional parts that are not installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.core.errors import MissingExtra
from headrace.core.extras import require


def test_what_is_installed_is_imported() -> None:
    assert require("json", "server") is json


def test_a_missing_extra_names_its_pip_command() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'headrace\[server\]'"):
        require("headrace_absent_module", "server")


def test_a_broken_module_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headrace_broken_extra.py").write_text("import headrace_other_absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="headrace_other_absent") as caught:
        require("headrace_broken_extra", "server")
    assert not isinstance(caught.value, MissingExtra)
