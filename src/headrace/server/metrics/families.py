"""Every metric that a node exports, in one table.

    counter      headrace_topic_in_messages -> headrace_topic_in_messages_total
    gauge        as named
    histogram    ..._bucket, ..._count, ..._sum
    info         headrace_build -> headrace_build_info, always 1

Names say what, then the unit, as Prometheus has it. A label's values are few: doors
and APIs are ours; topics, groups and transactional ids are bounded in core/limits.py,
and what goes beyond is summed up under `(other)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from headrace.server.metrics.counting import Histogram


class Family(NamedTuple):
    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    labels: tuple[str, ...]
    help: str


Value: TypeAlias = float | Histogram
# Label values in the order of the family's labels, and the value.
Sample: TypeAlias = tuple[tuple[str, ...], Value]
Samples: TypeAlias = dict[Family, list[Sample]]

_QUEUE: Final = ("group", "topic")
_GROUP: Final = ("group", "topic", "kind")
_SINK: Final = ("sink",)
_DOOR: Final = ("topic", "door")

# What goes in and out.
MESSAGES_IN = Family(
    "headrace_topic_in_messages", "counter", _DOOR, "Messages that were appended."
)  # fmt: skip
BYTES_IN = Family(
    "headrace_topic_in_bytes", "counter", _DOOR, "Bytes of record batches that were appended."
)
MESSAGES_OUT = Family(
    "headrace_topic_out_messages", "counter", _DOOR,
    "Messages that were handed out, to streams and queues; through the Kafka door, offsets.",
)  # fmt: skip
BYTES_OUT = Family(
    "headrace_topic_out_bytes", "counter", _DOOR,
    "Bytes that were handed out: record batches through the Kafka door, else keys and values.",
)  # fmt: skip

# Requests.
REQUESTS = Family(
    "headrace_request_duration_seconds", "histogram", ("door", "api"),
    "From when a request was read until its answer was ready, long polls included.",
)  # fmt: skip
REQUEST_ERRORS = Family(
    "headrace_request_errors", "counter", ("door", "api", "code"), "Errors in answers."
)
CONNECTIONS = Family(
    "headrace_connections", "gauge", ("door",), "Connections that are open."
)  # fmt: skip
CUTS = Family(
    "headrace_connections_cut", "counter", ("door", "reason"),
    "Connections that were cut: a head, body or answer got nowhere, idle, too many (full, "
    "address), or too much that arrives or that nobody takes (memory).",
)  # fmt: skip

HELD_BYTES = Family(
    "headrace_held_bytes", "gauge", ("what",),
    "Memory that is kept for clients and has a bound: what members of Kafka groups say of "
    "themselves (groups), fetch_sessions, share_sessions, fetches that wait for data (waiting), "
    "requests that have not arrived whole or wait for their turn (receiving), and those of HTTP "
    "(bodies).",
)  # fmt: skip

CLIENT_METRIC = Family(
    "headrace_client_metric", "gauge", ("client", "client_instance", "metric", "attributes"),
    "What Kafka's clients say of themselves where somebody subscribed to it (KIP-714).",
)  # fmt: skip

# Groups.
LAG_MESSAGES = Family(
    "headrace_group_lag_messages", "gauge", _GROUP,
    "Streams: messages behind the committed position; queues: messages that are not done.",
)  # fmt: skip
LAG_SECONDS = Family(
    "headrace_group_lag_seconds", "gauge", _GROUP,
    "How long the next message has waited: since it was published, or came due. 0: none waits.",
)  # fmt: skip
POSITION = Family(
    "headrace_group_position", "gauge", _GROUP,
    "Sum of the committed offsets of a stream group: its rate of change is its speed.",
)  # fmt: skip
COMMIT_AGE = Family(
    "headrace_group_commit_age_seconds", "gauge", _GROUP,
    "How long ago a stream group committed last.",
)  # fmt: skip

# Spark's sinks that write exactly once.
SINK_ROWS = Family(
    "headrace_spark_sink_rows", "counter", _SINK,
    "Rows that a sink of Spark wrote, each once, as of its last batches.",
)  # fmt: skip
SINK_BATCHES = Family(
    "headrace_spark_sink_batches", "counter", _SINK,
    "Batches that a sink of Spark has begun to write: the number of the last one, and 1.",
)  # fmt: skip

# Queues.
QUEUE_MESSAGES = Family(
    "headrace_queue_messages", "gauge", ("group", "topic", "lane", "state"),
    "Messages that are not done, by what they wait for.",
)  # fmt: skip
QUEUE_OLDEST = Family(
    "headrace_queue_oldest_seconds", "gauge", ("group", "topic", "lane"),
    "How long the oldest message has waited that is ready, or is but for others before it in its "
    "partition. 0: none is.",
)  # fmt: skip
DELIVERIES = Family("headrace_queue_deliveries", "counter", _QUEUE, "Messages leased: attempts.")
REDELIVERIES = Family(
    "headrace_queue_redeliveries", "counter", _QUEUE, "Messages leased not for the first time."
)
ACKS = Family("headrace_queue_acks", "counter", _QUEUE, "Messages done.")
NACKS = Family("headrace_queue_nacks", "counter", _QUEUE, "Messages given back to be tried again.")
LEASES_ENDED = Family(
    "headrace_queue_lease_expirations", "counter", _QUEUE, "Leases that ended without an answer."
)
STALE_RECEIPTS = Family(
    "headrace_queue_stale_receipts", "counter", _QUEUE,
    "Receipts of leases that were over: late acks and extensions, and what clients that came "
    "back still had in hand. Since the node was started.",
)  # fmt: skip
DEAD_LETTERED = Family(
    "headrace_queue_dead_lettered", "counter", _QUEUE, "Messages given up: moved to the letters."
)
EXPIRED = Family(
    "headrace_queue_expired", "counter", _QUEUE, "Messages that outlived their time to live."
)
CANCELLED = Family(
    "headrace_queue_cancelled", "counter", _QUEUE, "Delayed messages that were called off."
)
TO_LEASE = Family(
    "headrace_publish_to_lease_seconds", "histogram", _QUEUE,
    "From when a message was published, or came due, until it was leased for the first time.",
)  # fmt: skip
TO_ACK = Family(
    "headrace_publish_to_ack_seconds", "histogram", _QUEUE,
    "From when a message was published, or came due, until it was acked, retries included.",
)  # fmt: skip
DELAYS_ENDED = Family(
    "headrace_delayed_ended", "counter", ("topic", "outcome"),
    "Delayed messages that were delivered, cancelled, or expired before their time came.",
)  # fmt: skip
LETTERS = Family(
    "headrace_dead_letters", "gauge", ("topic",), "Dead letters of a topic that wait for somebody."
)
REDRIVEN = Family(
    "headrace_dead_letters_redriven", "counter", ("topic",), "Dead letters that were sent back."
)

# Storage.
PARTITIONS = Family("headrace_topic_partitions", "gauge", ("topic",), "Partitions of a topic.")
SEGMENTS = Family(
    "headrace_topic_segments", "gauge", ("topic",), "Segments of its partitions."
)  # fmt: skip
SIZE = Family(
    "headrace_topic_size_bytes", "gauge", ("topic",),
    "Bytes of its records and of the state of its queues on disk.",
)  # fmt: skip
UNREADABLE = Family(
    "headrace_batches_unreadable", "gauge", (),
    "Record batches that queues skipped since the node started: what is inside cannot be read, "
    "or is more than is opened. The node's log and `headrace doctor` name them.",
)  # fmt: skip
STOPPED = Family(
    "headrace_partitions_stopped", "gauge", (),
    "Partitions that have rotted, or whose queues are stopped because what they did has.",
)  # fmt: skip
DISK_FREE = Family("headrace_disk_free_bytes", "gauge", (), "Free space of the data's disk.")
DISK_FLOOR = Family(
    "headrace_disk_floor_bytes", "gauge", (), "Publishing stops at this much free space."
)
SYNCS = Family(
    "headrace_sync_duration_seconds",
    "histogram",
    (),
    "From when the sync of a file was asked for until it was done.",
)

# Transactions.
OPEN_TRANSACTIONS = Family(
    "headrace_transactions", "gauge", ("state",),
    "Transactions that are not over: ongoing, or decided and on their way.",
)  # fmt: skip
OLDEST_TRANSACTION = Family(
    "headrace_transaction_oldest_seconds", "gauge", (),
    "For how long the oldest one has been open. 0: none is.",
)  # fmt: skip
ENDED_TRANSACTIONS = Family(
    "headrace_transactions_ended", "counter", ("outcome",), "Transactions that are over."
)
UNDECIDED = Family(
    "headrace_topic_undecided_messages", "gauge", ("topic",),
    "Offsets between the last stable one and the high watermark: readers of committed records "
    "wait there.",
)  # fmt: skip
HELD = Family(
    "headrace_stable_offset_held_seconds", "gauge", ("topic", "partition", "transactional_id"),
    "For how long this transaction has kept readers of committed records from going on; the "
    "longest ones.",
)  # fmt: skip

# The node.
LOOP_LAG = Family(
    "headrace_event_loop_lag_seconds", "histogram", (),
    "How much later than it should the loop came round, looked at four times a second.",
)  # fmt: skip
GATHERED = Family(
    "headrace_scrape_duration_seconds", "gauge", (), "How long it took to look at all of this."
)
BUILD = Family(
    "headrace_build", "info", ("version", "python", "compiled"), "What this node runs."
)  # fmt: skip

# What the system knows of the process; by the names that everybody has for it.
PROCESS: Final = (
    Family("process_virtual_memory_bytes", "gauge", (), "Virtual memory."),
    Family("process_resident_memory_bytes", "gauge", (), "Memory that is really used."),
    Family("process_start_time_seconds", "gauge", (), "When it was started, as Unix time."),
    Family("process_cpu_seconds", "counter", (), "CPU time that was used."),
    Family("process_open_fds", "gauge", (), "Open files and connections."),
    Family("process_max_fds", "gauge", (), "How many may be open."),
)

# One series a partition, where that was asked for.
_PARTITION: Final = ("topic", "partition")
START_OFFSET = Family(
    "headrace_partition_start_offset", "gauge", _PARTITION, "The first offset that is there."
)
END_OFFSET = Family(
    "headrace_partition_end_offset", "gauge", _PARTITION, "The high watermark: behind the last."
)
PARTITION_SIZE = Family(
    "headrace_partition_size_bytes", "gauge", _PARTITION, "Bytes of its records on disk."
)
PARTITION_LAG = Family(
    "headrace_partition_lag_messages", "gauge", ("group", "topic", "partition", "kind"),
    "A group's lag, by partition.",
)  # fmt: skip

BY_PARTITION: Final = (START_OFFSET, END_OFFSET, PARTITION_SIZE, PARTITION_LAG)

FAMILIES: Final[Sequence[Family]] = (
    MESSAGES_IN, BYTES_IN, MESSAGES_OUT, BYTES_OUT,
    REQUESTS, REQUEST_ERRORS, CONNECTIONS, CUTS, HELD_BYTES, CLIENT_METRIC,
    LAG_MESSAGES, LAG_SECONDS, POSITION, COMMIT_AGE,
    SINK_ROWS, SINK_BATCHES,
    QUEUE_MESSAGES, QUEUE_OLDEST, DELIVERIES, REDELIVERIES, ACKS, NACKS, LEASES_ENDED,
    STALE_RECEIPTS, DEAD_LETTERED, EXPIRED, CANCELLED, TO_LEASE, TO_ACK, DELAYS_ENDED,
    LETTERS, REDRIVEN,
    PARTITIONS, SEGMENTS, SIZE, STOPPED, UNREADABLE, DISK_FREE, DISK_FLOOR, SYNCS,
    OPEN_TRANSACTIONS, OLDEST_TRANSACTION, ENDED_TRANSACTIONS, UNDECIDED, HELD,
    LOOP_LAG, GATHERED, BUILD, *PROCESS,
    *BY_PARTITION,
)  # fmt: skip
