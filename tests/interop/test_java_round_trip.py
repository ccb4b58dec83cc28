"""Kafka's own Java producer and consumer, of two generations, unmodified."""

from __future__ import annotations

import subprocess

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic
from tests.interop.java_clients import NoJava, programs

COUNT = 1_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def round_trip(version: str, node: NodeProcess, codec: str, protocol: str) -> str:
    try:
        command = programs(version)
    except NoJava as reason:
        pytest.skip(str(reason))
    topic = f"java-{codec}-{protocol}"
    make_topic(node.bootstrap, topic, 1)
    done = subprocess.run(
        [*command, "RoundTrip", node.bootstrap, topic, codec, protocol, str(COUNT)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("version", ["4.3.0", "3.9.0"])
def test_records_come_back_as_they_were_with_every_codec(node: NodeProcess, version: str) -> None:
    for codec in CODECS:
        assert round_trip(version, node, codec, "classic") == (
            f"ok {COUNT} committed {COUNT} client {version}"
        )


@pytest.mark.parametrize("version", ["4.3.0", "3.9.0"])
def test_the_consumer_protocol_reads_and_commits(node: NodeProcess, version: str) -> None:
    assert round_trip(version, node, "zstd", "consumer") == (
        f"ok {COUNT} committed {COUNT} client {version}"
    )
