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
from tests.spark.session import kafka_source

PROJECT = Path(__file__).parent.parent.parent
PAGE = PROJECT / "docs" / "spark.md"
KAFKA_PAGE = PROJECT / "docs" / "spark-kafka-source.md"
NOTEBOOK = PROJECT / "examples" / "spark.ipynb"

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path = PAGE) -> list[str]:
    return _BLOCK.findall(page.read_text())


def sources_of(page: Path, node: NodeProcess, folder: Path) -> list[str]:
    """Its blocks, for that node and with its folders there."""
    sources = [block.replace("127.0.0.1:9092", node.bootstrap) for block in blocks(page)]
    for name in ("checkpoints", "lake"):
        # Spark looks from the folder in which its JVM was started, which is not ours.
        sources = [each.replace(f'"{name}/', f'"{folder}/{name}/') for each in sources]
    return sources


def run(page: Path, sources: list[str], namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """What they define, run one after the other."""
    namespace = {"__name__": "__main__"} if namespace is None else namespace
    for source in sources:
        exec(compile(source, str(page), "exec", dont_inherit=True), namespace)
    return namespace


def test_the_page_runs_from_top_to_bottom(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    node = NodeProcess(tmp_path / "data")
    try:
        sources = sources_of(PAGE, node, tmp_path)
        namespace = run(PAGE, sources)
        # 333 by the query, and all of them again by hand.
        assert len(Topic(node, "large-orders").consume(333 + 1_000)) == 1_333
        assert len(Topic(node, "counts").consume(10)) == 10
        assert (namespace["hour"].count(), namespace["latest"].count()) == (1_000, 334)
        assert spark.read.parquet(f"{tmp_path}/lake/good").count() == 1_000
        # The notebook is these, and may be run again: what is new goes on from there.
        run(NOTEBOOK, sources[:3], namespace)
        assert len(Topic(node, "large-orders").consume(1_333 + 333)) == 1_666
    finally:
        node.stop()


@pytest.mark.usefixtures("spark")
def test_the_page_about_spark_s_own_source_runs_from_top_to_bottom(
    node: NodeProcess, tmp_path: Path
) -> None:
    if not kafka_source():
        pytest.skip("Spark's own Kafka source cannot be had from Maven")
    run(KAFKA_PAGE, sources_of(KAFKA_PAGE, node, tmp_path))
    assert len(Topic(node, "large-sales").consume(333)) == 333


def test_the_notebook_is_the_quick_start_of_the_page() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code"]
    assert code == blocks()[:3]
