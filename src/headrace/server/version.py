"""The version of headrace, looked up once: it is asked for by every health check."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

VERSION: Final = version("headrace")
