"""A measurement in a process of its own, so that nothing else is in its memory.

    python -m benchmarks.child <name> <arguments as JSON>

prints what the measurement returns, as JSON, on its last line.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent


def run(name: str, **arguments: Any) -> Any:
    """The answer of `module.function`, or None when the child killed itself."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", name, json.dumps(arguments)],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode < 0:
        return None
    if done.returncode:
        raise RuntimeError(f"the measurement {name} failed with code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    name, arguments = sys.argv[1:]
    module, function = name.rsplit(".", 1)
    measure = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    print(json.dumps(measure(**json.loads(arguments))))


if __name__ == "__main__":
    main()
