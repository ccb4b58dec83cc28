"""The plugin's fixtures under their own names, installed or not."""

from __future__ import annotations

from headrace.testing.plugin import headrace_clock as headrace_clock
from headrace.testing.plugin import headrace_directory as headrace_directory
from headrace.testing.plugin import headrace_memory as headrace_memory
from headrace.testing.plugin import headrace_memory_async as headrace_memory_async
