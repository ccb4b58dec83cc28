"""A Postgres server, from Debian's packages, whose changes others can follow."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.kafka.brokers import HOST, free_port
from tests.ecosystem.programs import DEADLINE_SECONDS, Program, wait_until

USER = "postgres"
# Debian keeps the server's programs off the path, a folder for each version.
FOLDER = Path("/usr/lib/postgresql")
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    # It is not what is killed.
    "fsync": "off",
}


class Postgres(Program):
    """Its data lies in `place`. It refuses to run as root, who hands it to another user."""

    def __init__(self, place: Path) -> None:
        self.port = free_port()
        data = place / "data"
        data.mkdir(parents=True)
        self._owner = _given_to_another(data)
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        super().__init__(
            [_path("postgres"), "-D", str(data), "-p", str(self.port), *settings], place / "log"
        )
        with open(self.log, "ab") as log:
            subprocess.run(
                [_path("initdb"), "-D", data, "-U", USER, "--auth=trust", "--no-sync"],
                check=True, stdout=log, stderr=log, **self._owner,
            )  # fmt: skip

    def start(self) -> None:
        """Until it takes connections."""
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, **self._owner)
        ask = [_path("pg_isready"), "-h", HOST, "-p", str(self.port), "--quiet"]
        wait_until(lambda: subprocess.run(ask, check=False).returncode == 0, self)

    def kill(self) -> None:
        """Those who are connected are sent away."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(DEADLINE_SECONDS)
            self._process = None

    def execute(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        self.begin(*statements).check()

    def begin(self, *statements: str) -> Session:
        """Start to execute them; they go on by themselves."""
        return Session(self.port, statements, self.log)


class Session:
    """A client that executes statements, in a process of its own."""

    def __init__(self, port: int, statements: tuple[str, ...], path: Path) -> None:
        where = ("-h", HOST, "-p", str(port), "-U", USER, "-d", USER)
        with open(path, "ab") as log:
            self._process = subprocess.Popen(
                ["psql", "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", *where],
                stdin=subprocess.PIPE, stdout=log, stderr=log, text=True,
            )  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{each};\n" for each in statements))
        self._process.stdin.close()

    def check(self) -> None:
        """Until all are done."""
        assert self._process.wait(DEADLINE_SECONDS) == 0


def _path(program: str) -> str:
    """The newest of those that Debian has installed."""
    found = sorted(FOLDER.glob(f"*/bin/{program}"), key=lambda path: float(path.parts[-3]))
    path = str(found[-1]) if found else shutil.which(program)
    assert path, f"{program} is not installed: apt-get install postgresql"
    return path


def _given_to_another(data: Path) -> dict[str, Any]:
    """Who owns the folder from now on and runs the server, as subprocess takes it. Folders
    above it can be walked through, but not listed, by others."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(data, nobody.pw_uid, nobody.pw_gid)
    for folder in data.parents:
        mode = folder.stat().st_mode
        if folder.stat().st_uid == 0 and not mode & 0o001:
            folder.chmod(mode | 0o001)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": data}
