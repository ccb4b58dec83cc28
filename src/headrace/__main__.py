"""`python -m headrace` is the `headrace` script, for where that is not on the path."""

from __future__ import annotations

from headrace.cli.main import main

if __name__ == "__main__":
    main()
