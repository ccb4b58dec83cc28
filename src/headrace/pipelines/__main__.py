"""A pipeline under spark-submit, or with `python -m headrace.pipelines`.

    spark-submit --master spark://host:7077 "$(python -m headrace.pipelines --where)" \\
        rollup --config rollup.toml

spark-submit wants a file and has its own words for the session, so this is a file
that takes the pipeline's name and settings and nothing about Spark.
"""

from __future__ import annotations

import argparse
import os
import sys

from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.pipelines.registry import PIPELINES, pipeline_named, settings_of
from headrace.pipelines.settings import read_toml


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="headrace.pipelines")
    parser.add_argument("name", nargs="?", choices=sorted(PIPELINES))
    parser.add_argument("--config", help="a TOML file with settings")
    parser.add_argument("--where", action="store_true", help="print the file for spark-submit")
    given = parser.parse_args(arguments)
    if given.where:
        print(os.path.abspath(__file__))
        return 0
    if given.name is None or given.config is None:
        parser.error("a pipeline's name and --config are needed")
    try:
        settings = settings_of(given.name, read_toml(given.config))
        return pipeline_named(given.name).run(settings, master=None, say=_say)
    except HeadraceError as error:
        _say(f"error: {error} [{error.code}]")
        return 2 if isinstance(error, InvalidArgument) else 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
