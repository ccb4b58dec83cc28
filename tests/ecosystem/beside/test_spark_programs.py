"""Programs for Spark's own Kafka source: on Apache Kafka they give what was recorded, and on a
node the same. tests/spark/test_programs.py runs them with format("headrace")."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.kafka.brokers import Broker
from tests.ecosystem.frameworks import broker
from tests.spark.run_programs import in_a_process, recorded
from tests.spark.session import kafka_source

__all__ = ["broker"]


def test_spark_s_own_source_gives_what_was_recorded(broker: Broker, tmp_path: Path) -> None:
    if not kafka_source():
        pytest.skip("Spark's own Kafka source cannot be had from Maven")
    assert in_a_process("kafka", broker.bootstrap, tmp_path / "programs") == recorded()
