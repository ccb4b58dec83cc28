"""Whatever a client of ours might say, well-formed or not, is answered or cut off; no
call fails for a reason of the node's own, and the next client is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.connected import Complaints, Connected, feed

from headrace.calls import Face
from headrace.core.settings import OffsetReset
from headrace.core.trace_values import TraceQuery
from headrace.core.values import (
    Acknowledged,
    CursorMove,
    Headers,
    MessageId,
    Outgoing,
    PlacedBatch,
    Publication,
    Receipt,
)
from headrace.record import NewRecord, build_batch
from headrace.server.loop_calls import Calls
from headrace.wire.remote import codec
from headrace.wire.remote.methods import METHODS, Many, Place, Settings

# Stands for the topic's, which is another one each time.
TOPIC_ID = b"T" * 16
_inputs: list[int] = []


@pytest.fixture(scope="module", autouse=True)
def count_inputs() -> Iterator[None]:
    """The run says how much it tried, and a fuzz that tried nothing fails."""
    yield
    print(f"{len(_inputs)} requests, {sum(_inputs)} bytes through the door")
    assert settings.default is not None
    assert len(_inputs) >= settings.default.max_examples / 2


# Arguments of the right type, and of any other.

names = st.sampled_from(["orders", "billing", "worker", "orders.dlq", "__cursors", "", "."])
# One more than most limits: ten thousand partitions would take minutes.
numbers = st.sampled_from([0, 1, 2, 5, -1, 10_001, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63)])
places = st.sampled_from(["orders:0:0", "orders:1:0", "orders:0:99", "a:b:c", "__cursors:0:0"])
texts = st.one_of(names, places, st.text(max_size=20))
binaries = st.one_of(st.none(), st.binary(max_size=40))
ids = st.builds(MessageId, names, numbers, numbers)
receipts = st.builds(
    Receipt,
    st.sampled_from([b"", TOPIC_ID, bytes(16)]),
    numbers,
    numbers,
    numbers,
    numbers,
    numbers,
)
headers = st.lists(st.tuples(texts, binaries), max_size=3).map(tuple)
outgoing = st.builds(
    Outgoing, binaries, binaries, headers, st.none() | numbers, st.none() | numbers
)
batches = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda count, producer_id, sequence: build_batch(
            [NewRecord(None, b"x", (), 0)] * count,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        ),
        st.integers(1, 3),
        st.sampled_from([-1, 0, 7]),
        st.sampled_from([-1, 0, 1, 2**31 - 1]),
    ),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, st.floats(), texts)
setting_names = st.sampled_from(["retention_ms", "ordering", "max_attempts", "backoff_ms", "x"])
anything = st.recursive(
    st.one_of(scalars, st.binary(max_size=10)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    str | None: st.none() | texts,
    int: numbers,
    int | None: st.none() | numbers,
    bool: st.booleans(),
    bytes: st.binary(max_size=40),
    Headers: headers,
    Settings: st.dictionaries(setting_names, scalars, max_size=3),
    Settings | None: st.none() | st.dictionaries(setting_names, scalars, max_size=3),
    OffsetReset: st.sampled_from(["earliest", "latest", "error", "x"]),
    dict[Place, int]: st.dictionaries(st.tuples(names, numbers), numbers, max_size=3),
    MessageId: ids,
    MessageId | None: st.none() | ids,
    Outgoing: outgoing,
    PlacedBatch: st.builds(PlacedBatch, names, numbers, batches.map(bytearray)),
    Receipt: receipts,
    Publication: st.builds(Publication, names, st.lists(outgoing, max_size=3)),
    CursorMove: st.builds(
        CursorMove,
        names,
        st.lists(st.tuples(names, numbers, numbers), max_size=3),
        st.none() | texts,
        st.none() | numbers,
    ),
    TraceQuery: st.builds(
        TraceQuery,
        st.none() | names,
        binaries,
        st.none() | st.tuples(texts, binaries),
        st.none() | names,
        st.sampled_from([None, "pending", "leased", "x"]),
        st.none() | numbers,
        st.none() | numbers,
    ),
    Acknowledged: st.builds(Acknowledged, names, st.lists(receipts, max_size=3)),
    tuple[int, int, int] | None: st.none() | st.tuples(numbers, numbers, numbers),
}


def argument(wanted: Any) -> st.SearchStrategy[Any]:
    if isinstance(wanted, Many):
        return st.lists(BY_TYPE[wanted.element], max_size=4)
    return BY_TYPE[wanted]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method = METHODS[draw(st.sampled_from(sorted(set(METHODS) - {"watch"})))]
    arguments = [draw(argument(wanted)) for wanted in method.parameters.values()]
    if draw(st.integers(0, 5)) == 0:
        arguments = draw(st.lists(anything, max_size=6))
    whole = msgspec.msgpack.encode((method.name, arguments))
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(whole) - 1))
        whole = whole[:place] + draw(st.binary(max_size=3)) + whole[place + 1 :]
    return whole


def frame(number: int, request: bytes) -> bytes:
    return codec.encode_request_frame(number, b"fuzz", request)


async def serve(fuzzed: list[bytes]) -> None:
    node, complaints = Connected(), Complaints()
    door, connection, line = node.door, node.connection, node.line
    door.logger.addHandler(complaints)
    calls = Calls(node.service)
    await calls.run(Face.create_topic, "orders", partitions=2)
    await calls.run(Face.open_queue, "billing", ["orders"], "worker")
    await calls.run(Face.publish, "orders", [Outgoing(b"one"), Outgoing(b"two")])
    await calls.run(Face.lease, "billing", ["orders"], "worker", 1)
    topic = node.broker.topics.named("orders")
    try:
        for number, request in enumerate(fuzzed, 1):
            _inputs.append(len(request))
            feed(connection, frame(number, request.replace(TOPIC_ID, topic.id)))
        while door.tasks:
            await asyncio.wait(tuple(door.tasks))
            await asyncio.sleep(0)
        assert [record.exc_info for record in complaints.records] == []
        assert line.ended or len(line.frames()) == len(fuzzed)
        connection.connection_lost(None)
        assert await calls.run(Face.topics) is not None
        assert not connection.on_closed
    finally:
        door.logger.removeHandler(complaints)
        await node.close()


@given(st.lists(requests(), min_size=1, max_size=6))
@settings(max_examples=300)
def test_whatever_is_asked_is_answered_or_cut_off(fuzzed: list[bytes]) -> None:
    asyncio.run(serve(fuzzed))


@given(st.binary(max_size=200))
def test_random_bytes_are_a_request_or_refused(data: bytes) -> None:
    _inputs.append(len(data))
    asyncio.run(serve([data]))
