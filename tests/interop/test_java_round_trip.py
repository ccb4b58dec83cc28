"""Kafka's own Java producer and consumer, of two generations, unmodified."""

from __future__ import annotations

import subprocess

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


@pytest.mark.parametrize("version", ["4.3.0", "3.9.0"])
def test_records_come_back_as_they_were_with_every_codec_and_both_protocols(
    node: NodeProcess, version: str
) -> None:
    try:
        command = programs(version)
    except NoJava as reason:
        pytest.skip(str(reason))
    for topic in ROUNDS:
        make_topic(node.bootstrap, topic, 1)
    # One Java for all: starting it takes longer than what it does.
    rounds = [word for topic, choices in ROUNDS.items() for word in (topic, *choices)]
    done = subprocess.run(
        [*command, "RoundTrip", node.bootstrap, str(COUNT), *rounds],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        f"{topic} ok {COUNT} committed {COUNT} client {version}" for topic in ROUNDS
    ]
