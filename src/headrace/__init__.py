"""Headrace: a durable message queue. A topic is a log; a group reads it as a
stream, by cursors, or as a queue, by leases.

    import headrace

    with headrace.open("data/") as handle:
        handle.create_topic("orders")
        handle.publish("orders", {"id": 7})

Names are imported when they are first used, so that importing the package stays
cheap for whoever needs one of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace import testing as testing
    from headrace.client.app import App, Reject, Retry
    from headrace.client.async_letters import AsyncDeadLetters, AsyncDelayed
    from headrace.client.async_producer import AsyncPendingPublish, AsyncProducer
    from headrace.client.async_queue import AsyncQueue
    from headrace.client.async_stream import AsyncStream
    from headrace.client.asynchronous import AsyncHeadrace, open_async
    from headrace.client.connecting import connect, connect_async
    from headrace.client.dead_letters import DeadLetters
    from headrace.client.delayed import Delayed
    from headrace.client.handle import Headrace
    from headrace.client.handle import open_handle as open
    from headrace.client.message import AsyncMessage, Message
    from headrace.client.outgoing import NewMessage, PublishedMessage, PublishedMessages
    from headrace.client.producer import PendingPublish, Producer
    from headrace.client.queue import Queue
    from headrace.client.stream import Stream
    from headrace.client.views import DeadLetterView, DelayedView, Record
    from headrace.core.errors import (
        BrokerUnreachable,
        BufferFull,
        Closed,
        CorruptBatch,
        CorruptLog,
        DataLost,
        DeadlineExceeded,
        DecodeError,
        Disconnected,
        DiskFull,
        FencedCoordinator,
        FencedLeader,
        FencedProducer,
        Forked,
        GroupInUse,
        GroupKindMismatch,
        HeadraceError,
        InUse,
        InvalidArgument,
        InvalidName,
        InvalidOption,
        InvalidReceipt,
        InvalidTransactionState,
        LimitExceeded,
        MalformedMessage,
        MissingExtra,
        OffsetOutOfRange,
        OutOfOrderSequence,
        ReadOnly,
        RecordTooLarge,
        RefusedByBroker,
        StaleGeneration,
        StaleReceipt,
        StoreFailed,
        StoreUnreachable,
        SyncFailed,
        TableChanged,
        TooManyFiles,
        TooManyLeases,
        TopicExists,
        TopicReplaced,
        UnknownGroup,
        UnknownMessage,
        UnknownPartition,
        UnknownTopic,
        Unreachable,
        UnsupportedByBroker,
        UnsupportedFormat,
        WorkersHung,
    )
    from headrace.core.settings import GroupSettings, TopicSettings
    from headrace.core.trace_values import GroupTrace, MessageTrace, TraceEvent, TraceLink
    from headrace.core.values import MessageId, MessageStatus, QueueStatistics, RedriveResult

    __version__: str

__all__ = [
    "open",
    "open_async",
    "connect",
    "connect_async",
    "Headrace",
    "AsyncHeadrace",
    "Producer",
    "AsyncProducer",
    "PendingPublish",
    "AsyncPendingPublish",
    "Queue",
    "AsyncQueue",
    "Stream",
    "AsyncStream",
    "Message",
    "AsyncMessage",
    "Record",
    "App",
    "Reject",
    "Retry",
    "NewMessage",
    "PublishedMessage",
    "PublishedMessages",
    "MessageId",
    "MessageStatus",
    "MessageTrace",
    "GroupTrace",
    "TraceEvent",
    "TraceLink",
    "DeadLetters",
    "AsyncDeadLetters",
    "DeadLetterView",
    "RedriveResult",
    "Delayed",
    "AsyncDelayed",
    "DelayedView",
    "QueueStatistics",
    "TopicSettings",
    "GroupSettings",
    "HeadraceError",
    "BrokerUnreachable",
    "BufferFull",
    "Closed",
    "CorruptBatch",
    "CorruptLog",
    "DataLost",
    "DeadlineExceeded",
    "DecodeError",
    "Disconnected",
    "DiskFull",
    "FencedCoordinator",
    "FencedLeader",
    "FencedProducer",
    "Forked",
    "GroupInUse",
    "GroupKindMismatch",
    "InUse",
    "InvalidArgument",
    "InvalidName",
    "InvalidOption",
    "InvalidReceipt",
    "InvalidTransactionState",
    "LimitExceeded",
    "MalformedMessage",
    "MissingExtra",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "ReadOnly",
    "RecordTooLarge",
    "RefusedByBroker",
    "StaleGeneration",
    "StaleReceipt",
    "StoreFailed",
    "StoreUnreachable",
    "SyncFailed",
    "TableChanged",
    "TooManyFiles",
    "TooManyLeases",
    "TopicExists",
    "TopicReplaced",
    "UnknownGroup",
    "UnknownMessage",
    "UnknownPartition",
    "UnknownTopic",
    "UnknownTransaction",
    "Unreachable",
    "UnsupportedByBroker",
    "UnsupportedFormat",
    "WorkersHung",
    "__version__",
]

_CLIENT = "headrace.client"
# What is not an error, and where it lives. Every other name is an error.
_HOMES = {
    "Headrace": f"{_CLIENT}.handle",
    "AsyncHeadrace": f"{_CLIENT}.asynchronous",
    "open_async": f"{_CLIENT}.asynchronous",
    "connect": f"{_CLIENT}.connecting",
    "connect_async": f"{_CLIENT}.connecting",
    "Producer": f"{_CLIENT}.producer",
    "AsyncProducer": f"{_CLIENT}.async_producer",
    "PendingPublish": f"{_CLIENT}.producer",
    "AsyncPendingPublish": f"{_CLIENT}.async_producer",
    "Queue": f"{_CLIENT}.queue",
    "AsyncQueue": f"{_CLIENT}.async_queue",
    "Stream": f"{_CLIENT}.stream",
    "AsyncStream": f"{_CLIENT}.async_stream",
    "Message": f"{_CLIENT}.message",
    "AsyncMessage": f"{_CLIENT}.message",
    "Record": f"{_CLIENT}.views",
    "App": f"{_CLIENT}.app",
    "Reject": f"{_CLIENT}.app",
    "Retry": f"{_CLIENT}.app",
    "DeadLetterView": f"{_CLIENT}.views",
    "DelayedView": f"{_CLIENT}.views",
    "DeadLetters": f"{_CLIENT}.dead_letters",
    "AsyncDeadLetters": f"{_CLIENT}.async_letters",
    "Delayed": f"{_CLIENT}.delayed",
    "AsyncDelayed": f"{_CLIENT}.async_letters",
    "NewMessage": f"{_CLIENT}.outgoing",
    "PublishedMessage": f"{_CLIENT}.outgoing",
    "PublishedMessages": f"{_CLIENT}.outgoing",
    "MessageId": "headrace.core.values",
    "MessageStatus": "headrace.core.values",
    "QueueStatistics": "headrace.core.values",
    "RedriveResult": "headrace.core.values",
    "MessageTrace": "headrace.core.trace_values",
    "GroupTrace": "headrace.core.trace_values",
    "TraceEvent": "headrace.core.trace_values",
    "TraceLink": "headrace.core.trace_values",
    "TopicSettings": "headrace.core.settings",
    "GroupSettings": "headrace.core.settings",
}


def __getattr__(name: str) -> Any:
    found: Any
    if name == "open":
        found = import_module("headrace.client.handle").open_handle
    elif name == "testing":
        found = import_module("headrace.testing")
    elif name == "__version__":
        found = import_module("importlib.metadata").version("headrace")
    elif name in __all__:
        found = getattr(import_module(_HOMES.get(name, "headrace.core.errors")), name)
    else:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "testing"})
