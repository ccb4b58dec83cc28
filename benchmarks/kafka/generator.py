"""The load generator: built from load/*.c when it is needed, run as a process.

It uses the librdkafka that comes with the Python package confluent-kafka, so nothing
has to be installed for it but a C compiler.

Rejected: Debian's librdkafka-dev. It needs root, and its version has no share
consumers; the declarations that a header would bring are few.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from benchmarks.kafka.brokers import Broker

SOURCES = Path(__file__).parent / "load"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
TIMEOUT_SECONDS = 900


class NotBuilt(Exception):
    """There is no compiler or no library here; says what is missing."""


class LoadFailed(Exception):
    """The generator gave up: a broker answered with an error, or not at all."""


class Load(NamedTuple):
    """What the generator saw. `busiest` is the share of the time in which its
    busiest thread was on a processor, `cores` the broker's use of processors."""

    messages: int
    bytes: int
    seconds: float
    cpu_seconds: float
    busiest: float
    broker_cpu_seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def cores(self) -> float:
        return self.broker_cpu_seconds / self.seconds

    @property
    def cpu_per_million(self) -> float:
        return self.broker_cpu_seconds / self.messages * 1e6

    @property
    def is_client_limited(self) -> bool:
        return self.busiest >= 0.95 and self.cores < 0.5


class Generator:
    def __init__(self, program: Path) -> None:
        self._program = program

    @classmethod
    def build(cls, place: Path) -> Generator:
        """In this directory, unless it is there already; NotBuilt if it cannot be."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise NotBuilt("no C compiler (cc) was found")
        library = _library()
        sources = sorted(SOURCES.glob("*.[ch]"))
        mark = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
        mark.update(str(library).encode())
        program = place / f"load-{mark.hexdigest()[:16]}"
        if not program.exists():
            place.mkdir(parents=True, exist_ok=True)
            done = subprocess.run(
                [
                    compiler, *FLAGS, "-o", program, *SOURCES.glob("*.c"), library,
                    f"-Wl,-rpath,{library.parent}", "-lpthread",
                ],
                capture_output=True,
                text=True,
                check=False,
            )  # fmt: skip
            if done.returncode:
                raise NotBuilt(f"the load generator cannot be built: {done.stderr.strip()}")
        return cls(program)

    def run(self, mode: str, broker: Broker, topic: str, **options: object) -> Load:
        command = [
            str(self._program), mode, "--host", broker.host, "--port", str(broker.port),
            "--broker-pid", str(broker.pid), "--topic", topic,
        ]  # fmt: skip
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
        )
        if done.returncode:
            reason = done.stderr.strip()[-500:] or f"it ended with code {done.returncode}"
            raise LoadFailed(f"{mode} on {broker.name}: {reason}")
        found = json.loads(done.stdout)
        return Load(
            found["messages"],
            found["bytes"],
            found["seconds"],
            found["cpu_seconds"],
            found["busiest_thread_seconds"] / found["seconds"],
            found["broker_cpu_seconds"],
            found.get("p50_ms", 0.0),
            found.get("p99_ms", 0.0),
            found.get("max_ms", 0.0),
        )


def _library() -> Path:
    package = importlib.util.find_spec("confluent_kafka")
    if package is None or package.origin is None:
        raise NotBuilt("confluent-kafka, whose librdkafka is used, is not installed")
    bundled = Path(package.origin).parent.parent / "confluent_kafka.libs"
    for library in sorted(bundled.glob("librdkafka*.so*")):
        return library
    raise NotBuilt(f"no librdkafka in {bundled}")
