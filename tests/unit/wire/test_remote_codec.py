"""The remote protocol: its table says what the SDK needs, and its bytes are bounded."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

from headrace.calls import Face
from headrace.client.backend import Backend, Lined
from headrace.core import errors, limits
from headrace.core.errors import (
    HeadraceError,
    InvalidArgument,
    InvalidName,
    LimitExceeded,
    MalformedMessage,
    UnknownTopic,
)
from headrace.core.values import LeaseRequest, MessageId, Outgoing, PublishedRuns, Receipt
from headrace.wire.remote import codec
from headrace.wire.remote.methods import METHODS, Many, Refusal, Runs

# What belongs to the protocol, and what a handle does without asking a node.
OURS = {"hello", "watch", "overview", "figures", "unreadable_batches"}
LOCAL = {"clock", "close", "add_listener", "remove_listener", "begin_batches"}
# What a handle begins, and hears the answer of later.
BEGUN = {"publish_batches"}
# What is several calls on the node.
SEVERAL = {"trace", "traces", "transact", "give_back"}
# Waiting is not the call's, but the node's.
WAITING = {"wait_ms"}


def methods_of(face: type) -> dict[str, list[str]]:
    return {
        name: [parameter for parameter in inspect.signature(call).parameters if parameter != "self"]
        for name, call in inspect.getmembers(face, inspect.isfunction)
        if not name.startswith("_")
    }


def test_the_table_is_the_backend_with_a_few_methods_of_its_own() -> None:
    wanted = {name: names for name, names in methods_of(Backend).items() if name not in LOCAL}
    offered = {
        name: list(method.parameters)
        for name, method in METHODS.items()
        if name not in OURS | BEGUN
    }
    # Leases wait in line, and are known by a nonce.
    assert offered.pop("give_back") == methods_of(Lined)["give_back"]
    assert offered["lease"] == list(LeaseRequest._fields)
    assert offered["lease"][: len(wanted["lease"])] == wanted.pop("lease")
    del offered["lease"]
    # How long the client itself waits for the answer.
    for name in ("extend", "nack"):
        wanted[name].remove("within_seconds")
    assert offered == wanted


def test_the_face_has_every_method_with_these_parameters() -> None:
    calls = methods_of(Face)
    for name, method in METHODS.items():
        if name not in OURS | SEVERAL:
            # A call may have options that the protocol does not speak of.
            assert set(method.parameters) - WAITING <= set(calls[name]), name


def answered(result: object) -> memoryview:
    return memoryview(codec.encode_answer_frame(7, result))[4:]


def test_a_request_is_read_as_it_was_written() -> None:
    receipt = Receipt(b"t" * 16, 1, 2, 3, 4, 2**64 - 1)
    request = codec.decode_request(
        codec.encode_request("nack", ("billing", [receipt, receipt], 250, "no stock"))
    )
    assert request.method.name == "nack"
    assert request.arguments == {
        "group": "billing",
        "receipts": [receipt, receipt],
        "delay_ms": 250,
        "error": "no stock",
    }


def test_many_that_may_be_missing_are_none() -> None:
    request = codec.decode_request(codec.encode_request("queue_statistics", ("billing", None)))
    assert request.arguments == {"group": "billing", "topics": None}


def test_positions_keep_their_places() -> None:
    positions = {("orders", 0): 5, ("orders", 1): 7}
    request = codec.decode_request(codec.encode_request("commit", ("g", positions, None, None)))
    assert request.arguments["positions"] == positions


def test_a_large_message_is_read_as_it_was_written() -> None:
    message = Outgoing(b"v" * (limits.REMOTE_REQUEST_BYTES_MAX + 1), b"k", (("h", b"x"),), 5, 1)
    request = codec.decode_request(codec.encode_request("publish", ("orders", [message])))
    assert request.arguments["messages"] == [message]


def test_published_runs_stay_runs() -> None:
    runs = PublishedRuns([(0, 10, 2_000), (1, 7, 3)])
    decoded = codec.decode_answer("publish_values", answered(runs))
    assert isinstance(decoded, Runs)
    assert decoded.runs == runs.runs


@pytest.mark.parametrize(
    "kind",
    [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, HeadraceError)
    ],
    ids=lambda kind: str(kind.__name__),
)
def test_an_error_arrives_as_what_it_was(kind: type[HeadraceError]) -> None:
    frame = memoryview(codec.encode_refusal_frame(7, kind("what to do")))[4:]
    assert codec.decode_answer_id(frame) == 7
    with pytest.raises(kind, match="what to do") as raised:
        codec.decode_answer("topic", frame)
    assert type(raised.value) is kind


def test_an_error_of_a_newer_node_keeps_its_words_and_its_code() -> None:
    error = codec.error_of(Refusal("not-invented-yet", "do this", True))
    assert str(error) == "do this [not-invented-yet]"


def test_errors_among_outcomes_keep_their_places() -> None:
    outcomes = codec.decode_answer("ack", answered([None, UnknownTopic("gone")]))
    assert outcomes == [None, Refusal("unknown-topic", "gone", False)]


BAD: list[tuple[str, Any, type[HeadraceError], str]] = [
    ("no request", b"\xc0", MalformedMessage, "not a request"),
    ("nothing", b"", MalformedMessage, "not a request"),
    ("deep nesting", b"\x92\xa1x" + b"\x91" * 5_000, MalformedMessage, "not a request"),
    ("another method", ("fly", ()), InvalidArgument, "no method 'fly'"),
    ("too few arguments", ("topic", ()), InvalidArgument, "length 1"),
    ("a number as a name", ("topic", (7,)), InvalidName, "name: Expected `str`"),
    ("text as a number", ("read", ("t", "x", 0, 1, None)), InvalidArgument, "partition: Expected"),
    ("no array", ("ack", ("g", 7)), InvalidArgument, "receipts: Expected `array`"),
    ("half a receipt", ("ack", ("g", [[b"x"]])), InvalidArgument, "receipts: Expected"),
    ("a number beyond any", ("topic", (2**64 - 1,)), InvalidArgument, "name"),
    ("settings that are lists", ("alter_topic", ("t", {"a": []})), InvalidArgument, "settings"),
    (
        "too many receipts",
        ("release", ("g", [()] * (limits.REMOTE_ELEMENTS_MAX + 1))),
        LimitExceeded,
        "at most 10000",
    ),
    (
        "too large",
        ("topic", ("x" * (limits.REMOTE_REQUEST_BYTES_MAX + 1),)),
        LimitExceeded,
        "send less at once",
    ),
    (
        "too large for any method",
        ("publish", ("t", [Outgoing(b"x" * (limits.REMOTE_PUBLISH_BYTES_MAX + 1))])),
        LimitExceeded,
        "send less at once",
    ),
    (
        "many messages that are too large together",
        ("publish", ("t", [Outgoing(b"x" * 1024 * 1024)] * 3)),
        LimitExceeded,
        "send less at once",
    ),
    (
        "a message that is large by its headers",
        ("publish", ("t", [Outgoing(b"", None, (("", None),) * 1_000_000)])),
        LimitExceeded,
        "headers",
    ),
]


@pytest.mark.parametrize(
    ("given", "kind", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_what_cannot_be_carried_out_is_refused_with_its_reason(
    given: Any, kind: type[HeadraceError], words: str
) -> None:
    body = given if isinstance(given, bytes) else msgspec.msgpack.encode(given)
    with pytest.raises(kind, match=words):
        codec.decode_request(body)


@pytest.mark.parametrize("argument", [object(), "\ud800", 2**70], ids=["thing", "text", "number"])
def test_what_cannot_be_sent_is_refused_by_the_client(argument: Any) -> None:
    with pytest.raises(InvalidArgument, match="status"):
        codec.encode_request("status", (argument,))


def test_an_answer_that_cannot_be_read_says_so() -> None:
    with pytest.raises(MalformedMessage, match="answer to topic"):
        codec.decode_answer("topic", answered("no topic"))


def test_every_array_of_the_table_is_counted_before_it_is_made() -> None:
    for method in METHODS.values():
        for name, wanted in method.parameters.items():
            if not isinstance(wanted, Many):
                assert "list" not in str(wanted), f"{method.name}: {name}"


def test_a_message_id_is_read_as_one() -> None:
    request = codec.decode_request(codec.encode_request("cancel", (MessageId("orders", 0, 42),)))
    assert isinstance(request.arguments["id"], MessageId)
