"""The frames of a WebSocket: JSON in text frames, msgpack in binary ones.

    client                                       node
                                                 welcome {consumer}
    enqueue {id, topic, messages}                done {id, messages}
    dequeue {id, topics, group, credit}          done {id}
                                                 message {subscription, message} ...
    ack {id, receipts}                           done {id, results}
    credit {subscription, credit}
    tail {id, topic, credit}                     done {id}
                                                 message {subscription, message} ...
    commit {id, subscription, positions}         done {id}
    stop {id, subscription}                      done {id}
                                                 error {id, code, detail, retriable}

`id` is the client's own, and a subscription is named by the `id` of the request that
began it. The node answers in the form in which it was asked. In a binary frame a
value that is bytes stays bytes; the rest is as over HTTP.

Nothing is sent beyond the credit that was given: a client that reads slowly says so
by not giving more, and one that stops reading holds no more than it asked for.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from headrace.wire.http.bodies import Names, NewMessage, Seconds, Settled

Id = int | str
Credit = Annotated[int, Meta(ge=1, le=1000)]


class Frame(Struct, forbid_unknown_fields=True, tag_field="op", kw_only=True):
    id: Id


class Enqueue(Frame, tag="enqueue", kw_only=True):
    topic: str
    messages: list[NewMessage]


class Dequeue(Frame, tag="dequeue", kw_only=True):
    topics: Names
    group: str
    credit: Credit = 1
    visibility: Seconds | None = None
    settings: dict[str, Any] = {}
    in_hand: list[str] = []


class Tail(Frame, tag="tail", kw_only=True):
    """From where the consumer last committed, or else from the start that is given."""

    topic: str
    credit: Credit = 100
    start: str = "latest"


class GiveCredit(Struct, forbid_unknown_fields=True, tag_field="op", tag="credit", kw_only=True):
    subscription: Id
    credit: Credit


class Stop(Frame, tag="stop", kw_only=True):
    subscription: Id


class Commit(Frame, tag="commit", kw_only=True):
    """The offset to go on from, by partition."""

    subscription: Id
    positions: dict[str, int]


class Settle(Frame, kw_only=True):
    """With a group, receipts of other groups are refused."""

    receipts: list[str]
    group: str | None = None


class Ack(Settle, tag="ack", kw_only=True):
    pass


class Release(Settle, tag="release", kw_only=True):
    pass


class Nack(Settle, tag="nack", kw_only=True):
    delay: Seconds | None = None
    error: str | None = None


class Reject(Settle, tag="reject", kw_only=True):
    reason: str | None = None


class Extend(Settle, tag="extend", kw_only=True):
    visibility: Seconds | None = None


Request = (
    Enqueue | Dequeue | Tail | GiveCredit | Stop | Commit | Ack | Release | Nack | Reject | Extend
)


class Welcome(Struct, tag_field="op", tag="welcome", kw_only=True):
    consumer: str


class Done(Struct, tag_field="op", tag="done", kw_only=True):
    id: Id
    # Places of what was enqueued, or results of what was settled.
    messages: list[Any] | UnsetType = UNSET
    results: list[Settled] | UnsetType = UNSET
    # Of the receipts in hand, those whose leases are over.
    lost: list[str] | UnsetType = UNSET


class Delivered(Struct, tag_field="op", tag="message", kw_only=True):
    subscription: Id
    message: Any


class Refused(Struct, tag_field="op", tag="error", kw_only=True):
    id: Id | None
    code: str
    detail: str
    retriable: bool = False
