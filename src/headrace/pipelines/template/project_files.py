"""A project of Spark Declarative Pipelines, written out with a topic's name in it.

    spark-pipeline.yml            what `spark-pipelines run` reads
    spark.conf                    what Spark has to know at its start: where the catalog is
    transformations/events.py     the topic as a streaming table, by the connector
    transformations/by_key.sql    a view on it, in SQL

The files lie beside this module as they are, but for a few words in angle brackets.
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from headrace.core.errors import InvalidArgument
from headrace.core.values import check_name

FILES = (
    "spark-pipeline.yml",
    "spark.conf",
    "README.md",
    "transformations/events.py.txt",
    "transformations/by_key.sql",
)


def write_project(folder: str, *, topic: str, servers: str) -> list[str]:
    """The paths that were written. InvalidArgument when one is there already."""
    check_name("topic", topic)
    root = Path(folder)
    words = {
        "<topic>": topic,
        "<servers>": servers,
        "<name>": root.resolve().name,
        "<storage>": (root.resolve() / "storage").as_uri(),
        "<tables>": (root.resolve() / "tables").as_uri(),
        "<catalog>": str(root.resolve() / "catalog"),
    }
    texts = {}
    for name in FILES:
        text = (resources.files("headrace.pipelines.template") / "project" / name).read_text(
            encoding="utf-8"
        )
        for word, value in words.items():
            text = text.replace(word, value)
        texts[root / name.removesuffix(".txt")] = text
    taken = [str(path) for path in texts if path.exists()]
    if taken:
        raise InvalidArgument(f"{taken[0]} is there already; name another folder, or remove it")
    for path, text in texts.items():
        os.makedirs(path.parent, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [str(path) for path in texts]
