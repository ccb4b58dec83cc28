"""Request ids, from the client to the log and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from tests.doors.conftest import DoorsProcess, done, refused
from tests.doors.grpc_client import GrpcClient
from tests.interop.wire_client import WireClient, make

import headrace
from headrace.wire.grpc.generated import headrace_pb2 as pb

GIVEN = "given-by-the-client"


class Logged:
    """A node that writes down every request, and what it has written."""

    def __init__(self, doors: DoorsProcess, path: Path) -> None:
        self.doors = doors
        self._path = path

    def stop(self) -> list[dict[str, Any]]:
        """Every line, once all of them are there."""
        assert self.doors.stop() == 0
        return [json.loads(line) for line in self._path.read_text().splitlines()]


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Logged]:
    path = tmp_path / "log"
    with pytest.MonkeyPatch.context() as patch, path.open("w") as logs:
        patch.setenv("HEADRACE_ACCESS_LOG", "true")
        flags = ("--log-level", "info", "--log-format", "json")
        doors = DoorsProcess(tmp_path / "data", *flags, logs=logs)
        yield Logged(doors, path)
        doors.stop()


def test_every_request_is_written_with_its_id(logged: Logged) -> None:
    with httpx.Client(base_url=logged.doors.http, timeout=60) as http:
        answer = http.get("/topics", headers={"x-request-id": GIVEN})
        assert answer.headers["x-request-id"] == GIVEN
        missing = http.get("/topics/nowhere")
        refused(missing, 404, "unknown-topic")
        done(http.post("/topics", json={"name": "orders"}), 201)
    client = GrpcClient(logged.doors.doors["grpc"])
    try:
        called = client.topics.List.with_call(
            pb.ListTopicsRequest(), metadata=(("x-request-id", GIVEN),)
        )
        assert dict(called[1].trailing_metadata())["x-request-id"] == GIVEN
        with pytest.raises(grpc.RpcError) as caught:
            client.groups.Describe(pb.DescribeGroupRequest(name="nobody"))
    finally:
        client.close()
    error: Any = caught.value
    made_by_grpc = dict(error.trailing_metadata())["x-request-id"]
    with WireClient(logged.doors.doors["kafka"]) as wire:
        make(wire, "wired", 1)
    with headrace.connect(logged.doors.doors["kafka"]) as handle:
        handle.create_topic("own", partitions=1)
    lines = [line for line in logged.stop() if line["event"] == "request"]
    written = {(line["door"], line["api"]): line for line in lines}
    listed = written["http", "GET /topics"]
    assert (listed["request_id"], listed["path"]) == (GIVEN, "/topics")
    assert listed["peer"] == "127.0.0.1" and listed["ms"] >= 0 and "code" not in listed
    described = written["http", "GET /topics/{topic}"]
    assert described["request_id"] == missing.headers["x-request-id"]
    assert described["code"] == "unknown-topic"
    assert written["http", "POST /topics"]["request_id"]
    assert written["grpc", "Topics/List"]["request_id"] == GIVEN
    nobody = written["grpc", "Groups/Describe"]
    assert (nobody["request_id"], nobody["code"]) == (made_by_grpc, "unknown-group")
    created = written["kafka", "CreateTopics"]
    assert (created["client"], created["correlation_id"]) == ("wire", 1)
    assert written["sdk", "create_topic"]["level"] == "info"


def test_without_being_asked_for_no_request_is_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as logs:
        doors = DoorsProcess(
            tmp_path / "data", "--log-level", "info", "--log-format", "json", logs=logs
        )
        try:
            done(httpx.get(f"{doors.http}/topics"))
        finally:
            doors.stop()
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert "request" not in events
    assert events[0] == "ready"


def test_a_slow_request_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with pytest.MonkeyPatch.context() as patch, path.open("w") as logs:
        patch.setenv("HEADRACE_SLOW_REQUEST_MS", "1")
        doors = DoorsProcess(tmp_path / "data", "--log-format", "json", logs=logs)
        try:
            # Making a hundred folders takes longer than a millisecond.
            wanted = {"name": "many", "partitions": 100}
            done(httpx.post(f"{doors.http}/topics", json=wanted, timeout=60), 201)
        finally:
            doors.stop()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    slow = [line for line in lines if line["event"] == "slow request"]
    assert [line["api"] for line in slow] == ["POST /topics"]
    assert slow[0]["level"] == "warning" and slow[0]["ms"] > 1 and slow[0]["request_id"]
