"""An object store for tests: moto's S3 server as a process, which loses answers when told to.

The server takes one request at a time. Moto looks whether an object exists and then
writes it; only so are its conditional puts atomic, as those of S3 are.

A process and not a thread: delta-rs keeps Python's lock while it waits for some answers,
and a server in the same process could not give them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

_SERVER = """
import json, re, socket, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

class Quiet(WSGIRequestHandler):
    def log(self, *arguments):
        pass

inner = DomainDispatcherApplication(create_backend_app)
one_at_a_time = threading.Lock()
fault = {"kind": "", "of": "", "times": 0}
hit = []
again = threading.Event()

def take(environ):
    what = environ["REQUEST_METHOD"] + " " + environ["PATH_INFO"]
    if fault["kind"] and re.search(fault["of"], what):
        hit.append(what)
        if len(hit) <= fault["times"]:
            return fault["kind"]
        again.set()
    return ""

def application(environ, start_response):
    if environ["PATH_INFO"] == "/faults":
        size = int(environ.get("CONTENT_LENGTH") or 0)
        if size:
            fault.update(json.loads(environ["wsgi.input"].read(size)))
            hit.clear()
            again.clear()
        start_response("200 OK", [])
        return [json.dumps(hit).encode()]
    kind = take(environ)
    with one_at_a_time:
        answer = b"".join(inner(environ, start_response))
    if kind == "slow":
        # As slow as it gets: not before its client has given up and asked again.
        again.wait(60)
    if kind:
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return [answer]

server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
print(server.server_port, flush=True)
server.serve_forever()
"""
_buckets = count()


class ObjectStore:
    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    @property
    def options(self) -> dict[str, str]:
        """What a lake in it is told."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_access_key_id": "headrace-tests",
            "aws_secret_access_key": "do-not-print-this",
            "aws_region": "us-east-1",
        }

    def new_bucket(self) -> str:
        name = f"bucket-{next(_buckets)}"
        self.ask("PUT", f"/{name}")
        return name

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        plain = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{self.endpoint}{path}", body, plain, method=method)
        with urllib.request.urlopen(request) as answer:
            found: bytes = answer.read()
        return found

    @contextmanager
    def losing(self, of: str, times: int, *, kind: str = "lost") -> Iterator[None]:
        """The first answers to requests that match ("PUT .*[.]json$") are lost: what was
        asked for is done, and the client sees a broken connection. "slow": only after the
        client has given up, and has asked once more."""
        self._set_fault(kind, of, times)
        try:
            yield
        finally:
            self._set_fault("", "", 0)

    def _set_fault(self, kind: str, of: str, times: int) -> None:
        self.ask("POST", "/faults", json.dumps({"kind": kind, "of": of, "times": times}).encode())

    def hit(self) -> list[str]:
        """The requests that matched since, lost or not."""
        found: list[Any] = json.loads(self.ask("GET", "/faults"))
        return found


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield ObjectStore(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
