"""Kafka Streams: where it comes from, and how our programs run on it.

PyPI has Kafka's clients (java_clients.py) but not this, so it comes from Maven Central.

    ~/.cache/headrace/kafka-streams/<version>/*.jar

`python -m tests.interop.java_streams` fetches it ahead of the tests, which are skipped
where it cannot be had.
"""

from __future__ import annotations

from functools import cache

from benchmarks import maven
from tests.interop.java_clients import NoJava, compiled

VERSION = "4.3.0"
PROGRAMS = ("RegionCounts",)


@cache
def streams() -> tuple[str, ...]:
    """The command before a program's name and arguments; NoJava if it cannot be had."""
    wanted = [maven.artifact(f"org.apache.kafka:kafka-streams:{VERSION}")]
    try:
        maven.check_java()
        folder = maven.jars(
            maven.CACHE / "kafka-streams" / VERSION, wanted, f"Kafka Streams {VERSION}, 90 MB,"
        )
    except maven.NoJars as error:
        raise NoJava(str(error)) from error
    return compiled(f"streams {VERSION}", sorted(folder.glob("*.jar")), PROGRAMS)


if __name__ == "__main__":
    print(*streams())
