"""The systems that are measured, each a process of its own on a free port.

Ours is one node with four doors. The others come from Debian: nats-server,
rabbitmq-server, redis-server. One that is not installed is not run.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

START_SECONDS = 90.0
STOP_SECONDS = 30.0
RABBIT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class NotInstalled(Exception):
    """The system is not on this machine."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class System(ABC):
    def __init__(self, place: Path) -> None:
        self.place = place
        self.ports = {name: free_port() for name in self.port_names()}
        command = self.command()
        place.mkdir(parents=True)
        self._log = (place / "output.log").open("wb")
        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=subprocess.STDOUT, cwd=place,
            env={**os.environ, **self.environment()}, start_new_session=True,
        )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def port_names(self) -> tuple[str, ...]:
        return ("main",)

    @abstractmethod
    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str]:
        return {}

    def address(self, name: str = "main") -> str:
        return f"127.0.0.1:{self.ports[name]}"

    @property
    def pids(self) -> list[int]:
        """The process that does the work."""
        return [self._process.pid]

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        for port in self.ports.values():
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if self._process.poll() is not None or time.monotonic() > deadline:
                        log = (self.place / "output.log").read_text(errors="replace")
                        raise RuntimeError(f"{type(self).__name__}: {log[-500:]}") from None
                    time.sleep(0.1)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._log.close()
        shutil.rmtree(self.place, ignore_errors=True)


class Headrace(System):
    def port_names(self) -> tuple[str, ...]:
        return ("kafka", "http", "grpc")

    def command(self) -> list[str]:
        start = "from headrace.cli.main import main; main()"
        flags = [f"--{name}={self.address(name)}" for name in self.ports]
        return [
            sys.executable, "-c", start, "serve", "--data", str(self.place / "data"),
            "--log-level", "warning", *flags,
        ]  # fmt: skip


class NatsServer(System):
    def command(self) -> list[str]:
        return [
            _found("nats-server"), "-js", "-a", "127.0.0.1", "-p", str(self.ports["main"]),
            "-sd", str(self.place / "data"),
        ]  # fmt: skip


class RedisServer(System):
    sync = "always"

    def command(self) -> list[str]:
        return [
            _found("redis-server"), "--port", str(self.ports["main"]), "--bind", "127.0.0.1",
            "--dir", str(self.place), "--save", "", "--appendonly", "yes",
            "--appendfsync", self.sync,
        ]  # fmt: skip


class RedisServerEverySecond(RedisServer):
    sync = "everysec"


class RabbitServer(System):
    """Erlang's own directory of nodes gets a port of its own, so that it is ours to end."""

    def port_names(self) -> tuple[str, ...]:
        return ("main",)

    def command(self) -> list[str]:
        if not RABBIT.exists():
            raise NotInstalled("rabbitmq-server")
        return [str(RABBIT)]

    def environment(self) -> dict[str, str]:
        self._directory_port = str(free_port())
        configuration = self.place / "rabbitmq.conf"
        configuration.write_text("log.console = false\n")
        return {
            "HOME": str(self.place),
            "RABBITMQ_NODENAME": f"bench{self.ports['main']}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.ports["main"]),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.place / "data"),
            "RABBITMQ_LOG_BASE": str(self.place / "logs"),
            "RABBITMQ_CONFIG_FILE": str(configuration),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.place / "plugins"),
            "ERL_EPMD_PORT": self._directory_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    @property
    def pids(self) -> list[int]:
        """The shell that was started has Erlang's machine below it."""
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                try:
                    fields = (process / "stat").read_text().rpartition(")")[2].split()
                    name = (process / "comm").read_text()
                except OSError:
                    continue
                if int(fields[3]) == self._process.pid and name.startswith("beam"):
                    found.append(int(process.name))
        return found

    def stop(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        super().stop()
        subprocess.run(
            ["epmd", "-port", self._directory_port, "-kill"], capture_output=True, check=False
        )


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise NotInstalled(program)
    return path
