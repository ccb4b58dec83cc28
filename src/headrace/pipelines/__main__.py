"""A pipeline under spark-submit, or with `python -m headrace.pipelines`.

    spark-submit --master spark://host:7077 "$(python -m headrace.pipelines --where)" \\
        rollup --config rollup.toml --once --set watermark=5m

spark-submit wants a file, and this is one: what follows it is what `headrace pipeline run`
takes, read by that command, so that the two never differ. Spark's own settings belong
before the file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from headrace.cli.main import cli


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code of the command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--where"]:
        print(os.path.abspath(__file__))
        return 0
    try:
        cli.main(["pipeline", "run", *given], prog_name="headrace")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
