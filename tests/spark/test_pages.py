"""The page for users and its notebook run, from top to bottom."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.interop.conftest import NodeProcess
from tests.spark.conftest import Topic

PROJECT = Path(__file__).parent.parent.parent
PAGE = PROJECT / "docs" / "spark.md"
NOTEBOOK = PROJECT / "examples" / "spark.ipynb"

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[str]:
    return _BLOCK.findall(PAGE.read_text())


def test_the_page_runs_from_top_to_bottom(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    node = NodeProcess(tmp_path / "data")
    try:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for block in blocks():
            source = block.replace("127.0.0.1:9092", node.bootstrap)
            # Spark looks from the folder in which its JVM was started, which is not ours.
            for folder in ("checkpoints", "lake"):
                source = source.replace(f'"{folder}/', f'"{tmp_path}/{folder}/')
            exec(compile(source, str(PAGE), "exec", dont_inherit=True), namespace)
        # 333 by the query, and all of them again by hand.
        assert len(Topic(node, "large-orders").consume(333 + 1_000)) == 1_333
        assert (namespace["hour"].count(), namespace["latest"].count()) == (1_000, 334)
        assert spark.read.parquet(f"{tmp_path}/lake/good").count() == 1_000
    finally:
        node.stop()


def test_the_notebook_is_the_quick_start_of_the_page() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code"]
    assert code == blocks()[:3]
