"""Options of Spark's Kafka source and of Kafka's clients: taken, or refused and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.core.errors import InvalidOption
from headrace.spark import foreign_options, warnings_once
from headrace.spark.each_batch import topic_writer
from headrace.spark.options import parse_read_options
from headrace.spark.write_options import parse_write_options

READ = {"servers": "a:1", "subscribe": "orders"}
WRITE = {"servers": "a:1", "topic": "orders"}
PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
# All of the guide of Spark 4.3, and all that KafkaSourceProvider looks at.
GUIDE = frozenset((
    "assign", "subscribe", "subscribePattern", "kafka.bootstrap.servers", "startingTimestamp",
    "startingOffsetsByTimestamp", "startingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "endingOffsets", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "groupIdPrefix",
    "kafka.group.id", "includeHeaders", "startingOffsetsByTimestampStrategy", "topic",
    "kafka.auto.offset.reset", "kafka.key.deserializer", "kafka.value.deserializer",
    "kafka.key.serializer", "kafka.value.serializer", "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
))  # fmt: skip
OFFSETS = '{"orders": {"0": 5}}'
# A value that makes sense, where "1" makes none.
VALUES = {
    "assign": '{"orders": [0]}',
    "subscribePattern": "orders-.*",
    "startingOffsets": OFFSETS,
    "endingOffsets": OFFSETS,
    "startingOffsetsByTimestamp": OFFSETS,
    "endingOffsetsByTimestamp": OFFSETS,
    "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "false",
    "includeHeaders": "true",
    "kafka.bootstrap.servers": "b:2",
    "kafka.batch.size": "16384",
    "kafka.isolation.level": "read_uncommitted",
    "kafka.compression.type": "zstd",
    "topic": "others",
}
# What is needed beside it, and what it takes the place of.
BESIDE = {"maxTriggerDelay": {"minOffsetsPerTrigger": "1"}}
INSTEAD = {
    "assign": "subscribe",
    "subscribePattern": "subscribe",
    "kafka.bootstrap.servers": "servers",
}


class Claim(NamedTuple):
    """What a row of the page says of an option."""

    option: str
    value: str
    purpose: str
    here: str


def claims() -> Iterator[Claim]:
    _, _, page = PAGE.read_text(encoding="utf-8").partition('| option of `format("kafka")` |')
    table, _, _ = page.partition("\n\n")
    for row in table.splitlines()[2:]:
        names, purposes, here, _ = (cell.strip() for cell in row.strip("|").split("|"))
        for purpose in purposes.replace("read", "batch, stream").split(", "):
            for name in re.findall("`([^`]+)`", names):
                option, _, value = name.partition("=")
                yield Claim(option, value or VALUES.get(option, "1"), purpose, here)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings_once, "_given", set())


def parsed(purpose: str, instead: str = "", /, **options: str) -> object:
    given = {
        name: value
        for name, value in (WRITE if purpose == "write" else READ).items()
        if name != instead
    }
    if purpose == "write":
        return parse_write_options(given | options, is_stream=False)
    return parse_read_options(given | options, "batch" if purpose == "batch" else "stream")


@pytest.mark.parametrize(
    "claim", list(claims()), ids=lambda claim: f"{claim.option}-{claim.purpose}"
)
def test_the_page_says_what_is_so(claim: Claim, caplog: pytest.LogCaptureFixture) -> None:
    option, beside = {claim.option: claim.value}, BESIDE.get(claim.option, {})
    if claim.purpose == "batch":
        beside = {}
    said = caplog.records
    if claim.here == "refused":
        with pytest.raises(InvalidOption, match=re.escape(repr(claim.option))):
            parsed(claim.purpose, **option, **beside)
        return
    without = parsed(claim.purpose, **beside)
    found = parsed(claim.purpose, INSTEAD.get(claim.option, ""), **option, **beside)
    if claim.here == "no effect":
        assert found == without
        [warning] = [record.getMessage() for record in said]
        assert f"option {claim.option!r} has no effect here" in warning
        return
    assert claim.here in ("same", "other")
    assert said == []
    # Of these the right value, or the fact that there is a column, decides alone.
    if claim[:3:2] not in (("kafka.security.protocol", claim.purpose), ("includeHeaders", "write")):
        assert found != without


def test_the_page_has_every_option() -> None:
    shown = {claim.option for claim in claims()}
    assert shown >= GUIDE
    for purpose in ("a batch read", "a stream read", "a write"):
        lowered = {name.lower() for name in shown} | {"groupid"}
        assert set(foreign_options.foreign_names(purpose)) <= lowered


def test_what_is_for_reading_does_nothing_to_a_write_and_the_other_way_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parsed("write", **{"kafka.group.id": "x", "kafka.isolation.level": "read_committed"})
    parsed("stream", **{"kafka.acks": "1", "kafka.batch.size": "9"})
    said = [record.getMessage() for record in caplog.records]
    assert [each.rpartition(": ")[2] for each in said] == [
        "it is not for a write", "it is not for a write",
        "it is not for a stream read", "it is not for a stream read",
    ]  # fmt: skip


def test_a_group_of_kafka_is_taken_and_nothing_is_committed_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"kafka.group.id": "somebody-elses", "groupIdPrefix": "ours"}
    # Spark gives a stream its options in lower case.
    for names in (given, {name.lower(): value for name, value in given.items()}):
        options = parse_read_options(READ | names, "stream")
        assert options.progress_group is None
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert all("has no effect here: no consumer group is joined" in each for each in said)


def test_a_warning_is_given_once_for_a_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Spark's processes share the folder that it made for the driver.
    folder = tmp_path / "blockmgr-1"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},{tmp_path}")
    for _ in range(3):
        monkeypatch.setattr(warnings_once, "_given", set())
        warnings_once.warn_once("beware")
    assert [record.getMessage() for record in caplog.records] == ["headrace: beware"]
    # A folder that outlives the driver says nothing.
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    for _ in range(2):
        monkeypatch.setattr(warnings_once, "_given", set())
        warnings_once.warn_once("beware")
    assert len(caplog.records) == 3
    assert [each.name for each in tmp_path.iterdir()] == ["blockmgr-1"]


def test_who_writes_batches_of_a_stream_is_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    # By the process that plans the write, and not by the user's own as well.
    topic_writer(WRITE, **{"kafka.acks": "1"})
    assert caplog.records == []


def test_a_wrong_security_is_refused_and_the_right_one_is_taken() -> None:
    with pytest.raises(InvalidOption, match="'kafka.security.protocol' is refused: encryption and"):
        parsed("batch", **{"kafka.security.protocol": "SSL"})


def test_the_smaller_of_two_limits_counts() -> None:
    sizes = {"kafka.fetch.max.bytes": "5000", "kafka.max.partition.fetch.bytes": "3000"}
    assert parse_read_options(READ | sizes, "batch").fetch_bytes == 3_000
    del sizes["kafka.max.partition.fetch.bytes"]
    assert parse_read_options(READ | sizes, "batch").fetch_bytes == 5_000
