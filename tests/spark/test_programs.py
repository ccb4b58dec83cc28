"""Programs that were written for Spark's own Kafka source give the same rows with
format("headrace") on a node. What the original gave on Apache Kafka is in programs.json."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.interop.conftest import NodeProcess
from tests.spark.programs import (
    PROGRAMS,
    Rows,
    Shop,
    counts_in_update_mode,
    counts_of_clicks,
    rows,
    text,
)
from tests.spark.run_programs import recorded

from headrace.spark.each_batch import topic_writer


@pytest.fixture(scope="module")
def shop(spark: SparkSession, node: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(spark, "headrace", node.bootstrap, tmp_path_factory.mktemp("programs"))
    shop.open()
    return shop


# Spark allows this output mode for no sink that is written in Python.
REFUSED_BY_SPARK = (counts_in_update_mode,)
SAME = [program for program in PROGRAMS if program not in REFUSED_BY_SPARK]


@pytest.mark.parametrize("program", SAME, ids=lambda each: each.__name__)
def test_the_rows_are_those_of_the_original(program: Callable[[Shop], Rows], shop: Shop) -> None:
    assert program(shop) == recorded()[program.__name__]


def test_update_mode_gives_the_same_rows_by_the_writer_for_each_batch(shop: Shop) -> None:
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        counts_in_update_mode(shop)
    writer = topic_writer({"servers": shop.servers, "topic": "shop-counts"})
    counted = counts_of_clicks(shop).writeStream.outputMode("update").foreachBatch(writer)
    shop.run(counted, "update-by-batch")
    assert rows(text(shop.read("shop-counts"))) == recorded()["counts_in_update_mode"]


def test_each_program_is_recorded() -> None:
    assert [program.__name__ for program in PROGRAMS] == list(recorded())
