"""The bodies about the node as a whole, and about what people look for in it; see
`bodies`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from headrace.wire.http.bodies import (
    Answer,
    Body,
    Index,
    PageQuery,
    Seconds,
    ShownMessage,
    ShownPartition,
)

# The node as a whole.


class LiveSample(Answer):
    """What a node was doing at one moment; rates are per second."""

    time: str
    messages_in: float
    messages_out: float
    bytes_in: float
    bytes_out: float
    failures: float
    # Of half and of all but one in a hundred; null where nothing happened.
    publish_p50_ms: float | None
    publish_p99_ms: float | None
    sync_p99_ms: float | None
    loop_lag_p99_ms: float | None
    ready: int
    waiting: int
    leased: int
    delayed: int
    dead_letters: int
    # Of stream groups, in messages.
    lag: int


class Live(Answer):
    samples: list[LiveSample]


class LiveQuery(Body):
    # Only what came after the `time` of a sample.
    after: str | None = None


class Attention(Answer):
    """Something that somebody should look at."""

    level: Literal["warning", "critical"]
    code: str
    text: str
    # What it is about: a topic, a group, a transaction, or the node.
    kind: str
    name: str


class TopicRow(Answer):
    name: str
    partitions: int
    messages: int
    size_bytes: int
    rate_in: float


class GroupRow(Answer):
    name: str
    kind: str
    topics: list[str]
    # Null for queries on Spark, which are no members.
    members: int | None
    # Messages that are not done, or not read.
    lag: int
    # How long the next of them that somebody could have now has waited; null if none does.
    waited_seconds: float | None
    ready: int
    waiting: int
    leased: int
    delayed: int
    retrying: int
    dead_lettered: int
    rate_in: float
    rate_out: float


class Overview(Answer):
    time: str
    topics: int
    partitions: int
    messages: int
    size_bytes: int
    groups: int
    queues: int
    dead_letters: int
    open_transactions: int
    attention: list[Attention]
    busiest_topics: list[TopicRow]
    groups_behind: list[GroupRow]


class RowsQuery(Body):
    """A page of a table, counted from 0. `match` is a part of a name."""

    match: str | None = None
    sort: str = "name"
    descending: bool = False
    page: Index = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class TopicRowsQuery(RowsQuery):
    sort: Literal["name", "partitions", "messages", "size_bytes", "rate_in"] = "name"


class TopicRows(Answer):
    total: int
    topics: list[TopicRow]


class GroupRowsQuery(RowsQuery):
    sort: Literal[
        "name", "lag", "waited_seconds", "members", "leased", "dead_lettered", "rate_out"
    ] = "name"
    kind: Literal["queue", "stream"] | None = None


class GroupRows(Answer):
    total: int
    groups: list[GroupRow]


class NodeFacts(Answer):
    """What runs here, since when, how it is set up, and what is left of the machine."""

    node_id: int
    cluster_id: str
    version: str
    python: str
    compiled: bool
    started_at: str
    uptime_seconds: float
    disk_free_bytes: int
    memory_bytes: int | None
    cpu_seconds: float
    settings: dict[str, Any]
    limits: dict[str, int]
    topic_defaults: dict[str, Any]
    group_defaults: dict[str, Any]


# One topic.


class TopicPage(Answer):
    """A topic, and a page of its partitions."""

    name: str
    id: str
    partition_count: int
    messages: int
    size_bytes: int
    rate_in: float
    dead_letters: int
    settings: dict[str, Any]
    # Groups that read it.
    groups: list[GroupRow]
    partitions: list[ShownPartition]
    next: Index | None


class PartitionsQuery(Body):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    after: Annotated[int, Meta(ge=-1)] = -1


class SearchQuery(Body):
    """What to look for: texts that the key, the value or a header have in them, and
    times between which it was published."""

    partition: Index | None = None
    newest_first: bool = True
    key: str | None = None
    value: str | None = None
    # `name`, or `name=text`.
    header: str | None = None
    since: str | None = None
    until: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    # The `next` of the page before.
    after: str | None = None


class SearchPage(Answer):
    """What was found in as much as one request looks through; there may be more
    behind `next` also where nothing was found."""

    messages: list[ShownMessage]
    scanned: int
    next: str | None


# Groups and their leases.


class ShownMember(Answer):
    id: str
    client_id: str
    host: str
    # `topic:partition`, where partitions are shared out.
    assigned: list[str]


class Members(Answer):
    members: list[ShownMember]


class ShownLease(Answer):
    id: str
    topic: str
    partition: int
    offset: int
    consumer: str
    attempt: int
    leased_at: str
    deadline: str


class LeasesQuery(Body):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    consumer: str | None = None


class Leases(Answer):
    """Those that end first."""

    total: int
    leases: list[ShownLease]


class ReleaseLeases(Body):
    """Take leases from their consumers, by the ids of messages."""

    ids: Annotated[list[str], Meta(max_length=1000)]


class ExtendLeases(ReleaseLeases, kw_only=True):
    visibility: Seconds


class ChangedLeases(Answer):
    changed: int
    # Not under lease any more.
    gone: list[str]


# Dead letters.


class LetterCount(Answer):
    topic: str
    count: int


class LetterCounts(Answer):
    topics: list[LetterCount]


class LetterReason(Answer):
    """Dead letters that failed alike."""

    group: str
    reason: str
    error: str | None
    count: int
    first_failed_at: str
    last_failed_at: str
    # Ids of some of them, the latest first.
    samples: list[str]


class LetterReasons(Answer):
    reasons: list[LetterReason]
    counted: int
    # There are more than were counted.
    more: bool


# Transactions.


class TransactionsQuery(PageQuery):
    # Also ids that have nothing open.
    all: bool = False


class ShownTransactionPlace(Answer):
    topic: str
    partition: int
    first_offset: int | None


class ShownTransaction(Answer):
    id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_at: str | None
    is_open: bool
    partitions: list[ShownTransactionPlace]


class AbortTransaction(Body):
    id: str


class Transactions(Answer):
    transactions: list[ShownTransaction]
    next: str | None


# Pipelines.


class PipelineSource(Answer):
    """A query that reads topics, by what it committed. `read` counts offsets."""

    name: str
    topics: list[str]
    partitions: int
    read: int
    lag: int
    committed_at: str


class PipelineSink(Answer):
    """A sink that writes exactly once, and the last batch of which all is written."""

    name: str
    topics: list[str]
    tasks: int
    rows: int
    batch: int
    committed_at: str


class Pipelines(Answer):
    sources: list[PipelineSource]
    sinks: list[PipelineSink]
