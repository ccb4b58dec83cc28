"""Several topics in one archive: one raw table, and each record in it with its topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.test_lake_and_topic import _run, _status
from tests.spark.conftest import Topic

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive.job import ArchiveSettings
from headrace.pipelines.archive.reading import read_latest, read_union

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def orders(*ids: int) -> list[bytes]:
    return [json.dumps({"id": each, "n": 10 * each}).encode() for each in ids]


def test_topics_are_archived_together_and_read_audited_and_replayed_one_by_one(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    a, b, c = (Topic(topic.node, f"{topic.name}-{each}") for each in "abc")
    for each in (a, b):
        each.create(1)
    a.publish(orders(1, 2))
    b.publish(orders(1))
    values: dict[str, Any] = {
        "pipeline": "archive", "name": topic.name, "topics": [a.name, b.name],
        "servers": topic.node.bootstrap, "lake": str(tmp_path / "lake"), "trigger": "once",
        "value_format": "json", "value_schema": "id BIGINT, n INT", "upsert": True,
        "key_columns": ["id"],
    }  # fmt: skip
    assert _run(values)[1][-1].startswith("3 records archived in 1 batch")
    b.publish(orders(1, 3))
    assert _status(tmp_path / "it.toml", values)["lag"] == 2
    assert read_union(spark, ArchiveSettings.from_mapping(values)).count() == 5
    # From now on all of a pattern, also one that is made later.
    c.create(1)
    c.publish(orders(7))
    del values["topics"]
    values |= {"topic_pattern": f"{topic.name}-[a-z]"}
    assert _status(tmp_path / "it.toml", values)["lag"] == 3
    assert _run(values)[1][-1].startswith("3 records archived in 1 batch")
    c.delete()
    settings = ArchiveSettings.from_mapping(values)
    rows = sorted((row["_topic"], row["id"]) for row in read_latest(spark, settings).collect())
    # The same key in two topics is two rows.
    assert rows == [(a.name, 1), (a.name, 2), (b.name, 1), (b.name, 3), (c.name, 7)]
    # What was read from a topic that is gone is in the lake.
    assert read_union(spark, settings).count() == 6
    one = {name: values[name] for name in ("servers", "lake")}
    one |= {"topic": b.name, "archive": topic.name}
    report = str(tmp_path / "audit.html")
    assert _run({"pipeline": "audit", "report": report, **one}) == (
        0, [f"3 rows arrived, 0 missing, 0 duplicates, 0 hours changed: {report}"],
    )  # fmt: skip
    state = str(tmp_path / "state.json")
    to = {"to_topic": topic.name, "source": "lake", "state": state}
    said = _run({"pipeline": "replay", **one, **to})[1]
    assert said[-1].startswith(f"3 records read, 3 written to {topic.name}, ")


def test_settings_of_topics_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    base = {"pipeline": "archive", "servers": "127.0.0.1:1", "lake": str(tmp_path)}
    for changes, message in (
        ({}, "topic is missing"),
        ({"topic": "a", "topics": ["b"]}, "topic and topics are both given"),
        ({"topic_pattern": "a", "topics": ["b"]}, "topics and topic_pattern are both given"),
        ({"topics": ["a", "b"]}, "name is missing; say which archive this is"),
        ({"topics": ["a", "b c"], "name": "n"}, "b c"),
        ({"topic_pattern": "(", "name": "n"}, "topic_pattern: .* which a pattern cannot have"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            ArchiveSettings.from_mapping({**base, **changes})
    several = ArchiveSettings.from_mapping({**base, "topics": ["a", "b"], "name": "n"})
    assert several.subscription == {"subscribe": "a,b"} and several.instance == "n"
