"""Kafka's command-line tools, from Maven Central, run as they are published.

    ~/.cache/headrace/kafka-tools/<version>/*.jar     with Kafka itself, Streams and Connect
    ~/.cache/headrace/kafka-tools/classes-<hash>/      programs of ours, by source and version

All commands run in one virtual machine (java/Tools.java).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote_plus

from benchmarks import maven
from benchmarks.kafka.apache import SETTINGS, VERSION, Kafka
from benchmarks.kafka.brokers import Broker, Headrace

SOURCES = Path(__file__).parent / "java"
CACHE = maven.CACHE / "kafka-tools"
WANTED = (
    "kafka_2.13", "kafka-tools", "kafka-streams", "connect-runtime", "connect-mirror",
    "connect-file", "connect-json",
)  # fmt: skip
# Short runs on a shared machine: one compiler and the simplest collector.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")

# What the script bin/kafka-<name>.sh runs, where its class is not <Name>Command.
PACKAGE = "org.apache.kafka.tools."
CLASSES = {
    "configs": "kafka.admin.ConfigCommand",
    "topics": PACKAGE + "TopicCommand",
    "acls": PACKAGE + "AclCommand",
    "features": PACKAGE + "FeatureCommand",
    "delegation-tokens": PACKAGE + "DelegationTokenCommand",
    "cluster": PACKAGE + "ClusterTool",
    "get-offsets": PACKAGE + "GetOffsetShell",
    "console-producer": PACKAGE + "ConsoleProducer",
    "console-consumer": PACKAGE + "consumer.ConsoleConsumer",
    "console-share-consumer": PACKAGE + "consumer.ConsoleShareConsumer",
    "consumer-groups": PACKAGE + "consumer.group.ConsumerGroupCommand",
    "share-groups": PACKAGE + "consumer.group.ShareGroupCommand",
    "streams-groups": PACKAGE + "streams.StreamsGroupCommand",
    "streams-application-reset": PACKAGE + "StreamsResetter",
    "reassign-partitions": PACKAGE + "reassign.ReassignPartitionsCommand",
    "producer-perf-test": PACKAGE + "ProducerPerformance",
    "consumer-perf-test": PACKAGE + "ConsumerPerformance",
    "share-consumer-perf-test": PACKAGE + "ShareConsumerPerformance",
    "e2e-latency": PACKAGE + "EndToEndLatency",
    "verifiable-producer": PACKAGE + "VerifiableProducer",
    "verifiable-consumer": PACKAGE + "VerifiableConsumer",
    "verifiable-share-consumer": PACKAGE + "VerifiableShareConsumer",
    "dump-log": PACKAGE + "DumpLogSegments",
}
# Programs of ours in java/, which make what the tools then look at.
PROGRAMS = {"open-transaction": "OpenTransaction", "streams-member": "StreamsMember"}


class Answer(NamedTuple):
    code: int
    output: str
    errors: str


class Tools:
    """A virtual machine that runs one command after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*java(), "-Dlog4j2.level=OFF", "-Duser.timezone=UTC", "Tools"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # What libraries say about how they log.
            stderr=subprocess.DEVNULL,
        )

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Answer:
        """`tool` is the name of its script, without kafka- before it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        words = (class_of(tool), stdin, *arguments)
        self._process.stdin.write("\t".join(map(quote_plus, words)).encode() + b"\n")
        self._process.stdin.flush()
        code, output, errors = map(int, self._process.stdout.readline().split())
        return Answer(
            code,
            self._process.stdout.read(output).decode(),
            self._process.stdout.read(errors).decode(),
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class ApacheKafka(Kafka):
    """Makes topics by itself, as it does unless told otherwise."""

    settings = SETTINGS.replace("auto.create.topics.enable=false\n", "")

    def __init__(self, place: Path) -> None:
        super().__init__(place, jars())


class Node(Headrace):
    """A node whose topics have as many partitions as Kafka's where nothing is said."""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "HEADRACE_PARTITIONS": "1"}


BROKERS: dict[str, Callable[[Path], Broker]] = {"kafka": ApacheKafka, "headrace": Node}


def class_of(tool: str) -> str:
    found = CLASSES.get(tool) or PROGRAMS.get(tool)
    if found is not None:
        return found
    return PACKAGE + "".join(word.capitalize() for word in tool.split("-")) + "Command"


@cache
def jars() -> Path:
    """The folder with Kafka and its tools; NoJars if it cannot be had."""
    maven.check_java()
    wanted = [maven.artifact(f"org.apache.kafka:{name}:{VERSION}") for name in WANTED]
    return maven.jars(CACHE / VERSION, wanted, f"Kafka's tools {VERSION}, about 130 MB,")


def java() -> list[str]:
    """The command before the name of a class: of Kafka's, or of a program in java/."""
    return ["java", *QUICK, "-cp", os.pathsep.join((str(_classes()), f"{jars()}/*"))]


@cache
def _classes() -> Path:
    return compiled(SOURCES, jars())


def compiled(sources: Path, folder: Path) -> Path:
    """The classes of the programs in a folder, beside the folder of the jars they are made for."""
    if shutil.which("javac") is None:
        raise maven.NoJars("javac is not installed")
    programs = sorted(sources.glob("*.java"))
    texts = b"".join(path.read_bytes() for path in programs)
    mark = hashlib.sha256(folder.name.encode() + texts).hexdigest()[:16]
    classes = folder.with_name(f"classes-{mark}")
    if not classes.exists():
        partial = classes.with_name(f"{classes.name}.{os.getpid()}.partial")
        subprocess.run(["javac", "-cp", f"{folder}/*", "-d", partial, *programs], check=True)
        if classes.exists():
            shutil.rmtree(partial)
        else:
            partial.rename(classes)
    return classes
