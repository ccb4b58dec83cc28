"""Every request with each of its arrays and strings as long as it may be, in every version,
at a door: it is answered, and no handler fails. One element more, and the connection is
cut before anything is done.

The limits of arrays are small here, but above what a handler answers in one piece; `tests/hostile`
sends requests of real length to a real node."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.property.test_door_fuzz import framed
from tests.unit.server.asking import Asking, run
from tests.unit.server.connected import Complaints, Line, feed
from tests.unit.wire.request_fields import (
    ARRAYS,
    STRINGS,
    Field,
    element,
    request_module,
    sent,
    shown,
)

from headrace.core.node_settings import NodeSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.errors import Error
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.slices import SMALL
from headrace.wire.kafka.api import APIS
from headrace.wire.kafka.generated import fetch_request, join_group_request, produce_request
from headrace.wire.kafka.primitives import STRING_BYTES_MAX

ARRAY_MAX = SMALL + 8


class HeardLine(Line):
    """One that says when it was answered or cut."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = asyncio.Event()

    def write(self, data: Any) -> None:
        super().write(data)
        self.heard.set()

    def writelines(self, list_of_data: Any) -> None:
        super().writelines(list_of_data)
        self.heard.set()

    def abort(self) -> None:
        super().abort()
        self.heard.set()

    def close(self) -> None:
        super().close()
        self.heard.set()


async def answered(asking: Asking, key: int, version: int, body: bytes) -> Line:
    connection, transport = Connection(asking.door), HeardLine()
    connection.connection_made(transport)
    tags = b"\0" if APIS[key].is_flexible(version) else b""
    header = struct.pack(">hhih", key, version, 7, 4) + b"long" + tags
    feed(connection, framed(header + body))
    await transport.heard.wait()
    connection.connection_lost(None)
    return transport


@pytest.fixture(autouse=True)
def data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of which DescribeLogDirs tells how full its disk is."""
    (tmp_path / NodeSettings().data).mkdir()
    monkeypatch.chdir(tmp_path)


@contextmanager
def open_door() -> Iterator[tuple[Asking, list[logging.LogRecord]]]:
    """And what its handlers failed with."""
    asking, complaints = Asking(MemoryDisk()), Complaints()
    asking.door.logger.addHandler(complaints)
    try:
        yield asking, complaints.records
    finally:
        asking.door.logger.removeHandler(complaints)


@pytest.mark.parametrize("field", [f for f in ARRAYS if f.key in HANDLERS], ids=shown)
def test_a_request_whose_array_is_at_its_limit_is_answered_and_one_above_is_cut(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "REQUEST_ELEMENTS_MAX" if field.is_plain else "REQUEST_ARRAY_MAX"
    around = len(field.path) - 1 if field.is_plain else 0
    monkeypatch.setattr(request_module(field.key), name, ARRAY_MAX + around)
    elements = tuple(element(field.element, number) for number in range(ARRAY_MAX + around + 1))

    async def scenario() -> None:
        with open_door() as (asking, failures):
            for version, body in sent(field, elements[:ARRAY_MAX], "long"):
                transport = await answered(asking, field.key, version, body)
                assert (failures, bool(transport.sent)) == ([], True), f"v{version}"
            for version, body in sent(field, elements, "long"):
                transport = await answered(asking, field.key, version, body)
                assert (failures, transport.sent) == ([], b""), f"v{version}"
                assert transport.ended

    run(scenario)


@pytest.mark.parametrize("field", [f for f in STRINGS if f.key in HANDLERS], ids=shown)
def test_a_request_whose_string_is_at_its_limit_is_answered(field: Field) -> None:
    text = "x" * STRING_BYTES_MAX

    async def scenario() -> None:
        with open_door() as (asking, failures):
            for version, body in sent(field, (text,) if field.is_array else text, "short"):
                transport = await answered(asking, field.key, version, body)
                assert (failures, bool(transport.sent)) == ([], True), f"v{version}"

    run(scenario)


@pytest.mark.parametrize("name", ["", "not/a/name", "x" * 250])
def test_a_name_that_no_topic_can_have_is_that_of_a_topic_that_is_not_there(name: str) -> None:
    part = produce_request.PartitionProduceData(0, b"")
    data = produce_request.TopicProduceData(name, partition_data=(part,))
    produce = produce_request.ProduceRequest(None, -1, 30_000, (data,))
    wanted = fetch_request.FetchTopic(name, partitions=(fetch_request.FetchPartition(0),))
    fetch = fetch_request.FetchRequest(topics=(wanted,))

    async def scenario() -> None:
        with open_door() as (asking, _):
            [made] = (await asking.ask(0, 12, produce)).responses
            [read] = (await asking.ask(1, 12, fetch)).responses
            codes = [made.partition_responses[0].error_code, read.partitions[0].error_code]
            assert codes == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 2

    run(scenario)


@pytest.mark.parametrize("instance", [None, "x" * STRING_BYTES_MAX])
def test_a_member_may_have_names_as_long_as_they_can_be(instance: str | None) -> None:
    protocol = join_group_request.JoinGroupRequestProtocol("range", b"")
    request = join_group_request.JoinGroupRequest(
        "readers", 10_000, 10_000, "", instance, "consumer", (protocol,)
    )

    async def scenario() -> None:
        with open_door() as (asking, _):
            answer = await asking.ask(11, 5, request, client_id="x" * STRING_BYTES_MAX)
            assert answer.member_id.startswith("x" * 100)

    run(scenario)
