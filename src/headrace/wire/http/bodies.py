"""The bodies of requests and answers, one class each; the OpenAPI document is made
from them.

Times that people give are in seconds, moments are ISO 8601 with a zone; what comes
out has the same form. A field that is not known is refused by name: a misspelt
`priority` must not become a message of normal priority.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from headrace.core import limits

Seconds = Annotated[float, Meta(ge=0)]
# Said in the document and checked further in, where the error says what to do.
Name = Annotated[str, Meta(extra_json_schema={"pattern": "^[a-zA-Z0-9._-]{1,249}$"})]
Names = Annotated[
    list[Name], Meta(extra_json_schema={"minItems": 1, "maxItems": limits.TOPICS_PER_CALL_MAX})
]
Count = Annotated[int, Meta(ge=1)]
Index = Annotated[int, Meta(ge=0)]
Offset = Annotated[int, Meta(ge=0)]
Priority = Literal["critical", "high", "normal", "low", "background"]
# A moment: ISO 8601 with a zone, or seconds since 1970.
Moment = str | float


class Body(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a request holds."""


class Answer(Struct, kw_only=True):
    """What an answer holds."""


# Publishing.


class NewMessage(Body):
    """A message to be published. Delay, ttl and visibility are in seconds."""

    value: Raw | UnsetType = UNSET
    encoding: Literal["base64"] | None = None
    key: str | None = None
    key_encoding: Literal["base64"] | None = None
    headers: dict[str, str | None] = {}
    priority: Priority | Annotated[int, Meta(ge=0, le=4)] | None = None
    delay: Seconds | None = None
    deliver_at: Moment | None = None
    ttl: Seconds | None = None
    max_attempts: Count | None = None
    visibility: Seconds | None = None
    dedup_id: str | None = None
    partition: Index | None = None
    # The same in the other spelling.
    deliverAt: Moment | None = None
    maxAttempts: Count | None = None
    dedupId: str | None = None
    keyEncoding: Literal["base64"] | None = None


class Publish(NewMessage):
    """One message, or many of them under `messages` and nothing else."""

    messages: list[NewMessage] | None = None


class PlainMessage(Body):
    """A message of which there is nothing to say but its value."""

    value: Raw


class PlainMessages(Body):
    """The simplest form of many, which most batches have; read several times faster."""

    messages: list[PlainMessage]


class RawQuery(Body):
    """What goes with a value that is the body itself."""

    key: str | None = None
    partition: Index | None = None
    priority: Priority | None = None
    delay: Seconds | None = None
    deliver_at: str | None = None
    ttl: Seconds | None = None
    max_attempts: Count | None = None
    visibility: Seconds | None = None
    dedup_id: str | None = None


class Produce(Body):
    """One message, in its simplest form."""

    topic: Name
    value: Raw | UnsetType = UNSET
    key: str | None = None
    encoding: Literal["base64"] | None = None
    headers: dict[str, str | None] = {}
    partition: Index | None = None


class AddressedMessage(NewMessage, kw_only=True):
    """A message and where it goes."""

    topic: Name


class AddressedMessages(Body):
    """Messages for any number of topics, and receipts of what they were made from: all
    of it happens, or nothing."""

    messages: list[AddressedMessage] = []
    acks: list[str] = []


class Place(Answer):
    id: str
    partition: int
    offset: int
    # Deduplication found an earlier one: this is its place.
    duplicate: bool | UnsetType = UNSET


class AddressedPlace(Answer):
    id: str
    topic: str
    partition: int
    offset: int


class Places(Answer):
    messages: list[Place]


class AddressedPlaces(Answer):
    messages: list[AddressedPlace]


# Reading.


class ShownMessage(Answer):
    """A message as it lies in its partition."""

    id: str
    topic: str
    partition: int
    offset: int
    timestamp: str
    key: str | None
    value: Any
    headers: dict[str, str | None]
    # base64 where the value, or the key, is not what it seems.
    encoding: str | UnsetType = UNSET
    key_encoding: str | UnsetType = UNSET
    priority: str | UnsetType = UNSET
    # In the group that was asked for.
    state: str | UnsetType = UNSET
    attempts: int | UnsetType = UNSET


class ReadMessages(Answer):
    messages: list[ShownMessage]
    next_offset: int


class ConsumeQuery(Body):
    topic: str | None = None
    partition: Index = 0
    offset: Offset = 0
    count: Annotated[int, Meta(ge=1, le=1000)] = 100
    wait: Annotated[float, Meta(ge=0, le=30)] = 0


class MessagesQuery(Body):
    partition: Index = 0
    offset: Offset | None = None
    time: str | None = None
    count: Annotated[int, Meta(ge=1, le=1000)] = 100
    wait: Annotated[float, Meta(ge=0, le=30)] = 0
    # Show the state that messages have in this queue group.
    group: str | None = None


class EventsQuery(Body):
    """Where tailing begins: at the end, unless an offset or `earliest` is given. What is
    told can be narrowed down to texts that the key, the value or a header have in them."""

    partition: Index | None = None
    offset: Offset | None = None
    start: Literal["earliest", "latest"] = "latest"
    key: str | None = None
    value: str | None = None
    # `name`, or `name=text`.
    header: str | None = None


# Topics.


class NewTopic(Body):
    name: Name
    partitions: Count = 3
    settings: dict[str, Any] = {}


class ChangedTopic(Body):
    """Settings to change; `partitions` makes it grow."""

    settings: dict[str, Any] = {}
    partitions: Count | None = None
    break_key_order: bool = False


class ShownPartition(Answer):
    partition: int
    start_offset: int
    high_watermark: int
    # Everything below is decided: no transaction is open there.
    last_stable_offset: int
    end_offset: int
    size_bytes: int
    segments: int


class ShownTopic(Answer):
    name: str
    id: str
    partitions: list[ShownPartition]
    settings: dict[str, Any]


class TopicSummary(Answer):
    name: str
    partitions: int
    messages: int
    size_bytes: int


class PageQuery(Body):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    # The `next` of the page before.
    after: str | None = None


class Topics(Answer):
    topics: list[TopicSummary]
    next: str | None


# Delayed messages and dead letters.


class ShownDelayed(Answer):
    id: str
    partition: int
    offset: int
    deliver_at: str
    timestamp: str
    key: str | None
    value: Any
    headers: dict[str, str | None]
    encoding: str | UnsetType = UNSET
    key_encoding: str | UnsetType = UNSET


class DelayedPage(Answer):
    messages: list[ShownDelayed]
    next: str | None


class Cancelled(Answer):
    cancelled: bool


class LettersQuery(PageQuery):
    group: str | None = None


class ShownLetter(Answer):
    id: str
    source: str
    group: str
    reason: str
    error: str | None
    attempts: int
    redrives: int
    created_at: str
    failed_at: str
    key: str | None
    value: Any
    headers: dict[str, str | None]
    encoding: str | UnsetType = UNSET
    key_encoding: str | UnsetType = UNSET


class LettersPage(Answer):
    messages: list[ShownLetter]
    next: str | None


class LetterChoice(Body):
    """Which dead letters: by id, or all of them, or those of a group whose reason
    or error has a text in it."""

    ids: Annotated[list[str], Meta(max_length=limits.LISTED_ITEMS_MAX)] | None = None
    all: bool = False
    group: str | None = None
    reason: str | None = None


class Redrive(LetterChoice):
    dry_run: bool = False
    force: bool = False


class Redriven(Answer):
    matched: int
    redriven: int
    in_place: int
    copied: int
    looping: int
    orphaned: int
    stopped: str | None


class Purged(Answer):
    purged: int


# Queues.


class Lease(Body):
    topics: Names
    count: Annotated[int, Meta(ge=1, le=1000)] = 10
    # Seconds to wait for the first message.
    wait: Annotated[float, Meta(ge=0, le=30)] = 0
    visibility: Seconds | None = None
    # Made by the server when it is not given.
    consumer: str | None = None
    # Of a group that does not exist yet.
    settings: dict[str, Any] = {}


class LeasedMessage(ShownMessage, kw_only=True):
    receipt: str
    attempt: int
    max_attempts: int
    deadline: str
    error: str | None


class Leased(Answer):
    consumer: str
    messages: list[LeasedMessage]


class Receipts(Body):
    """One receipt or many. `group` may be given, and then it is checked."""

    receipt: str | None = None
    receipts: list[str] | None = None
    group: str | None = None


class Nack(Receipts):
    delay: Seconds | None = None
    error: str | None = None


class Reject(Receipts):
    reason: str | None = None


class Extend(Receipts):
    visibility: Seconds | None = None


class Settled(Answer):
    receipt: str
    ok: bool
    code: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class SettledAll(Answer):
    results: list[Settled]
