"""Kafka's own Java producer and consumer, of two generations, unmodified."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic
from tests.interop.java_clients import NoJava, programs

COUNT = 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Codec and group protocol of each round, by the name of its topic.
ROUNDS = {f"java-{codec}": (codec, "classic") for codec in CODECS} | {
    "java-consumer": ("zstd", "consumer")
}


@pytest.fixture(scope="module", params=["4.3.0", "3.9.0"])
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What one Java of a version says of every round, by topic: it starts once for all."""
    try:
        command = programs(request.param)
    except NoJava as reason:
        pytest.skip(str(reason))
    node = NodeProcess(tmp_path_factory.mktemp("java") / "data")
    try:
        for topic in ROUNDS:
            make_topic(node.bootstrap, topic, 1)
        rounds = [word for topic, choices in ROUNDS.items() for word in (topic, *choices)]
        done = subprocess.run(
            [*command, "RoundTrip", node.bootstrap, str(COUNT), *rounds],
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        node.stop()
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    said = {topic: answer for topic, _, answer in lines}
    if done.returncode != 0:
        # The round that failed said nothing; its test shows why.
        failed = next(topic for topic in ROUNDS if topic not in said)
        said[failed] = done.stderr
    yield {"version": request.param, **said}


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_with_every_codec(told: dict[str, str], codec: str) -> None:
    expected = f"ok {COUNT} committed {COUNT} client {told['version']}"
    assert told.get(f"java-{codec}", "not reached") == expected


def test_the_consumer_protocol_reads_and_commits(told: dict[str, str]) -> None:
    expected = f"ok {COUNT} committed {COUNT} client {told['version']}"
    assert told.get("java-consumer", "not reached") == expected
