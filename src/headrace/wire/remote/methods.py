"""The methods of the remote protocol: what goes in, what comes out.

The names and parameters are those of the SDK's `Backend`. Some more belong to the
protocol itself:

    hello    the first call on a connection: who is there, and what time it is
    watch    answered when looking again may be worth it, after 30 s at the latest
    overview, figures    all topics and groups, and the process, for `headrace top`
    unreadable_batches   what nobody can open, for `headrace doctor`

A repeatable method may be sent again when the connection broke before the answer
came: it changes nothing, or the same again. A lease of which no answer came is given
back by its nonce, which the client chose, and then made anew.

Rejected: taking the parameters from the signatures in the code. What is on the wire
must not change because somebody renames an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from headrace.core.errors import HeadraceError
from headrace.core.overview_values import NodeFigures, Overview, UnreadableBatch
from headrace.core.settings import OffsetReset
from headrace.core.trace_values import MessageTrace, TracePage, TraceQuery
from headrace.core.values import (
    Acknowledged,
    CursorMove,
    DeadLetter,
    DelayedMessage,
    DelayedTotals,
    Delivery,
    GroupInfo,
    Headers,
    MessageId,
    MessageStatus,
    Outgoing,
    PlacedBatch,
    Publication,
    Published,
    PublishedRuns,
    QueueStatistics,
    Receipt,
    RedriveResult,
    StreamRecord,
    TopicInfo,
    TransactionInfo,
)

# Outside of what Apache Kafka uses, and not among the versions that we announce:
# no Kafka client ever sends it.
API_KEY: Final = 10_000
VERSION: Final = 0
# The stream that carries the same over gRPC. It is no part of the public .proto.
GRPC_SERVICE: Final = "headrace.remote.Sdk"
GRPC_NAME: Final = "Connect"
GRPC_METHOD: Final = f"/{GRPC_SERVICE}/{GRPC_NAME}"


class Many(NamedTuple):
    """An array, whose length is checked before it is made."""

    element: Any
    is_optional: bool = False


class Method(NamedTuple):
    name: str
    parameters: Mapping[str, Any]
    result: Any
    is_repeatable: bool = False
    # Whether one message alone, or what has to be one request, may be larger than others.
    is_bulky: bool = False


class Hello(NamedTuple):
    """What a node says of itself."""

    version: str
    cluster_id: str
    node_id: int
    now_ms: int


class News(NamedTuple):
    """Whether something happened, or only time passed; and the node's time."""

    is_news: bool
    now_ms: int


class Refusal(NamedTuple):
    """An error on the wire."""

    code: str
    message: str
    retriable: bool


class Runs(msgspec.Struct):
    """Places of many messages, as (partition, first offset, count)."""

    runs: list[tuple[int, int, int]]


class Stored(NamedTuple):
    """What became of one batch: where its first record is, or why it is nowhere."""

    offset: int
    duplicate: bool
    refusal: Refusal | None = None


Scalar = str | int | float | bool | None
Settings = dict[str, Scalar]
Names = Many(str)
Place = tuple[str, int]
Outcomes = list[Refusal | None]


class LetterPage(msgspec.Struct):
    """A part of a listing, which ends when it is full or when enough was looked at;
    `next` is where to go on."""

    items: list[DeadLetter]
    next: MessageId | None


class DelayedPage(msgspec.Struct):
    items: list[DelayedMessage]
    next: tuple[int, int, int] | None


_RECEIPTS = {"group": str, "receipts": Many(Receipt)}
_ALL = (
    Method("hello", {"auto_create": bool}, Hello, True),
    Method("watch", {"topics": Names}, News, True),
    # Topics.
    Method(
        "create_topic",
        {"name": str, "partitions": int, "settings": Settings | None, "exist_ok": bool},
        TopicInfo,
    ),
    Method("delete_topic", {"name": str}, None),
    Method("alter_topic", {"name": str, "settings": Settings}, TopicInfo, True),
    Method("grow_topic", {"name": str, "partitions": int, "break_key_order": bool}, TopicInfo),
    Method("topic", {"name": str}, TopicInfo, True),
    Method("topics", {"internal": bool}, list[TopicInfo], True),
    Method("delete_records", {"topic": str, "partition": int, "before_offset": int}, int, True),
    # Publishing.
    Method(
        "publish",
        {"topic": str, "messages": Many(Outgoing)},
        list[Published] | Runs,
        is_bulky=True,
    ),
    Method(
        "publish_values",
        {"topic": str, "values": Many(bytes), "headers": Headers, "partition": int | None},
        list[Published] | Runs,
        is_bulky=True,
    ),
    Method("publish_batches", {"batches": Many(PlacedBatch)}, list[Stored], is_bulky=True),
    Method("new_producer_id", {}, int, True),
    # Streams.
    Method(
        "read",
        {
            "topic": str,
            "partition": int,
            "offset": int,
            "count_max": int,
            "topic_id": str | None,
        },
        tuple[list[StreamRecord], int],
        True,
    ),
    Method("offset_at", {"topic": str, "partition": int, "timestamp_ms": int}, int, True),
    Method(
        "join_stream",
        {"group": str, "topics": Names, "member": str, "reset": OffsetReset},
        None,
        True,
    ),
    Method("leave_stream", {"group": str, "member": str}, None, True),
    Method("change_stream", {"group": str, "member": str, "topics": Names}, None, True),
    Method("assignment", {"group": str, "member": str}, tuple[int, dict[Place, int]], True),
    Method(
        "commit",
        {
            "group": str,
            "positions": dict[Place, int],
            "member": str | None,
            "generation": int | None,
        },
        None,
        True,
    ),
    Method("committed", {"group": str, "topic": str}, dict[int, int], True),
    # Queues.
    Method(
        "open_queue",
        {"group": str, "topics": Names, "consumer": str, "settings": Settings | None},
        None,
        True,
    ),
    Method(
        "lease",
        {
            "group": str,
            "topics": Names,
            "consumer": str,
            "count": int,
            "visibility_ms": int | None,
            "wait_ms": int,
            "nonce": int | None,
        },
        list[Delivery],
    ),
    Method("give_back", {"group": str, "consumer": str, "nonces": Many(int)}, None, True),
    Method("ack", _RECEIPTS, Outcomes),
    Method("nack", {**_RECEIPTS, "delay_ms": int | None, "error": str | None}, Outcomes),
    Method("reject", {**_RECEIPTS, "reason": str | None}, Outcomes),
    Method("extend", {**_RECEIPTS, "visibility_ms": int | None}, Outcomes),
    Method("release", _RECEIPTS, Outcomes),
    Method("held", {"group": str, "consumer": str}, dict[tuple[str, int, int], Receipt], True),
    Method("leave", {"group": str, "consumer": str}, None, True),
    Method("next_due_ms", {"group": str | None, "topics": Names}, int | None, True),
    # Groups and messages.
    Method("groups", {}, list[GroupInfo], True),
    Method("group", {"name": str}, GroupInfo, True),
    Method("alter_group", {"name": str, "settings": Settings}, GroupInfo, True),
    Method("delete_group", {"name": str}, None),
    Method("status", {"id": MessageId, "group": str}, MessageStatus, True),
    Method(
        "queue_statistics",
        {"group": str, "topics": Many(str, is_optional=True)},
        QueueStatistics,
        True,
    ),
    # Delayed messages and dead letters.
    Method(
        "delayed",
        {"topic": str, "after": tuple[int, int, int] | None, "limit": int},
        DelayedPage,
        True,
    ),
    Method(
        "delayed_totals",
        {"topics": Many(str, is_optional=True)},
        list[DelayedTotals],
        True,
    ),
    Method("cancel", {"id": MessageId}, bool),
    Method(
        "dead_letters",
        {"topic": str, "group": str | None, "after": MessageId | None, "limit": int},
        LetterPage,
        True,
    ),
    Method("dead_letter", {"id": MessageId}, DeadLetter, True),
    Method(
        "redrive",
        {"topic": str, "ids": Many(MessageId), "dry_run": bool, "force": bool},
        RedriveResult,
    ),
    Method("purge", {"topic": str, "ids": Many(MessageId)}, int),
    # Traces: of one message by its id or a receipt, and of those that match.
    Method("trace", {"what": str}, MessageTrace, True),
    Method("traces", {"query": TraceQuery, "after": str | None, "limit": int}, TracePage, True),
    # Transactions.
    Method(
        "transact",
        {
            "publications": Many(Publication),
            "moves": Many(CursorMove),
            "acks": Many(Acknowledged),
        },
        list[list[Published]],
        is_bulky=True,
    ),
    Method("transactions", {}, list[TransactionInfo], True),
    Method("transaction", {"name": str}, TransactionInfo, True),
    Method("abort_transaction", {"name": str}, None),
    # The node at a glance.
    Method("overview", {}, Overview, True),
    Method("figures", {}, NodeFigures | None, True),
    Method("unreadable_batches", {}, list[UnreadableBatch], True),
)
METHODS: Final[Mapping[str, Method]] = {method.name: method for method in _ALL}


def refusal_of(error: HeadraceError) -> Refusal:
    return Refusal(error.code, str(error), error.retriable)


def runs_or_list(places: object) -> object:
    """Publishing answers with runs where it has them: they are much shorter."""
    return Runs(places.runs) if isinstance(places, PublishedRuns) else places
