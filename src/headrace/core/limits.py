"""Every maximum, in one place.

What can be configured has its default in `settings`; what is here holds always.
"""

from __future__ import annotations

from typing import Final

# Names and sizes of what a user gives us.
NAME_CHARACTERS_MAX: Final = 249
KEY_BYTES_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 128
HEADER_BYTES_MAX: Final = 64 * 1024
# Of what is read: the node writes some of its own to dead letters and redriven copies.
HEADERS_READ_MAX: Final = HEADERS_MAX + 16
HEADER_BYTES_READ_MAX: Final = HEADER_BYTES_MAX + 16 * 1024
DEDUP_ID_BYTES_MAX: Final = 128
ERROR_CHARACTERS_MAX: Final = 1024
METADATA_BYTES_MAX: Final = 4096
# Of one configuration as a Kafka client gives it. The longest is a list of replicas.
CONFIG_CHARACTERS_MAX: Final = 128 * 1024

# Topics and groups.
# Topics that users make: internal ones and those of dead letters are not counted.
TOPICS_MAX: Final = 10_000
# Names whose creation was refused, and how long they are not made by being named.
REFUSED_TOPICS_MAX: Final = 10_000
REFUSED_TOPIC_MS: Final = 60 * 60 * 1000
PARTITIONS_PER_TOPIC_MAX: Final = 10_000
# Topics that one call may name, at any door. Each may have as many partitions, all of which
# the call looks at.
TOPICS_PER_CALL_MAX: Final = 1_000
GROUPS_MAX: Final = 10_000
# Queue groups that read one topic: each is shown every message as it comes, and holds at
# least a byte of it.
QUEUE_GROUPS_PER_TOPIC_MAX: Final = 1_000
GROUP_MEMBERS_MAX: Final = 1_000
SHARE_GROUP_MEMBERS_MAX: Final = 200
# The longest time that a member may be silent, whatever it or the node asks for.
SESSION_MS_MAX: Final = 24 * 60 * 60 * 1000
# How long a new group may wait for more members.
REBALANCE_DELAY_MS_MAX: Final = 60_000
# Groups and others that something is configured of by name, beside topics.
CONFIGURED_MAX: Final = 10_000
# A group without members is called unread when no client of any protocol has leased,
# polled or committed as it for so long, counted anew from a start.
GROUP_UNREAD_MS: Final = 60_000
# What one member of a classic group tells of itself when it joins.
MEMBER_BYTES_MAX: Final = 1024 * 1024
# What a node keeps for Kafka clients between their requests, unless it is told otherwise:
# of members of groups, sessions, and fetches that wait.
GROUPS_MEMORY_BYTES: Final = 256 * 1024 * 1024
# Regular expressions of clients: the text, the states of one whose repetitions are written
# out, the visits of states that matching it against all names may take together, and
# those of one turn on the loop, a millisecond or so.
TOPIC_PATTERN_CHARACTERS_MAX: Final = 1_024
TOPIC_PATTERN_STATES_MAX: Final = 512
TOPIC_PATTERN_VISITS_MAX: Final = 20_000_000
TOPIC_PATTERN_VISITS_PER_TURN: Final = 5_000
# Different ones in one group.
GROUP_PATTERNS_MAX: Final = 16
# What a Kafka Streams application is made of: its subtopologies, the topics that they name,
# and the tasks that come of it, which are shared out anew whenever an instance comes or goes.
STREAMS_SUBTOPOLOGIES_MAX: Final = 1_000
STREAMS_TOPICS_MAX: Final = 2_000
STREAMS_TASKS_MAX: Final = 10_000
STREAMS_STANDBY_REPLICAS_MAX: Final = 100
PRODUCERS_PER_PARTITION_MAX: Final = 100_000
OPEN_TRANSACTIONS_PER_PARTITION_MAX: Final = 10_000

# Transactions.
TRANSACTIONAL_IDS_MAX: Final = 100_000
TRANSACTIONAL_ID_CHARACTERS_MAX: Final = 1_024
TRANSACTION_PARTITIONS_MAX: Final = 10_000
TRANSACTION_TIMEOUT_MS_MAX: Final = 7 * 24 * 60 * 60 * 1000

# Kafka's limit; positions in an index are 32 bits.
SEGMENT_BYTES_MAX: Final = 2**31 - 1

# Batches and records.
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
BATCH_RECORDS_MAX: Final = 1_000_000
RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
# What has to be noted of one batch that a client made, where queues read a topic or
# duplicates are dropped: changes of attributes, keys, ids.
BATCH_NOTES_MAX: Final = 10_000
# What a compressed batch may hold; one that holds more is not opened.
DECOMPRESSED_BYTES_MAX: Final = 32 * 1024 * 1024
# The same for a process of its own, Spark's, that reads for one client alone.
DECOMPRESSED_BYTES_ALONE_MAX: Final = 128 * 1024 * 1024
# Of a batch, about what is decoded at once, in memory.
DECODED_BYTES_MAX: Final = 4 * 1024 * 1024
# Decoded records that the partitions of a node keep for the next reader, together.
DECODED_BYTES_KEPT_MAX: Final = 64 * 1024 * 1024

# Files that are open at once, whatever the number of partitions: this share of the
# descriptors that the system allows the process, within these bounds.
OPEN_FILES_DIVISOR: Final = 2
OPEN_FILES_MIN: Final = 32
OPEN_FILES_MAX: Final = 16_384

# Wire messages. A frame is bounded before it is read; the elements of all arrays
# in one message are bounded together, because one byte on the wire can become a
# hundred in memory.
FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
MESSAGE_ELEMENTS_MAX: Final = 1_000_000
# Of a request to us: all its arrays together, and one array of names or structures.
# There are no more topics, groups or partitions of a topic to speak of.
REQUEST_ELEMENTS_MAX: Final = 100_000
REQUEST_ARRAY_MAX: Final = 20_000
# What all connections together may hold of frames that have not arrived whole, or wait
# for their turn.
RECEIVING_BYTES_MAX: Final = 512 * 1024 * 1024
# Of answers that clients have not taken, at each door.
UNTAKEN_BYTES_MAX: Final = 128 * 1024 * 1024
# Freed memory that the process keeps; looked at twice a minute.
SPARE_BYTES_MAX: Final = 64 * 1024 * 1024
# Of one answer to a fetch. Whoever wants more asks again.
FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
# Of topics whose records are written in another format before they go out: what an answer
# reads of one, and what is rewritten in one piece.
COORDINATOR_READ_BYTES_MAX: Final = 256 * 1024
COORDINATOR_PART_BYTES: Final = 32 * 1024
# A group's members are written together up to about this.
MEMBERSHIP_BATCH_BYTES: Final = 1 << 20
# Partitions that all fetch sessions together remember.
FETCH_SESSION_PARTITIONS_MAX: Final = 1_000_000
FETCH_SESSIONS_MAX: Final = 10_000

# How long a request may wait for what it does not do itself: the disk now, other nodes in a
# cluster. What a long poll asked to wait comes on top. As long as a client of ours has patience.
REQUEST_MS_MAX: Final = 120_000

# Calls of our own clients. A request is small, but for one message alone; arrays are
# counted before they are made.
REMOTE_REQUEST_BYTES_MAX: Final = 2 * 1024 * 1024
REMOTE_PUBLISH_BYTES_MAX: Final = RECORD_BYTES_MAX + 1024 * 1024
REMOTE_ELEMENTS_MAX: Final = 10_000
# Of one answer: whoever wants more asks again.
REMOTE_ANSWER_BYTES_MAX: Final = 1024 * 1024
# Calls of one connection that are not answered yet, and those that only wait.
REMOTE_OPEN_CALLS_MAX: Final = 64
REMOTE_WATCHES_MAX: Final = 1_000
REMOTE_WATCH_BYTES_MAX: Final = 64 * 1024
# Partitions that all watches together wait for.
REMOTE_WATCHED_PARTITIONS_MAX: Final = 1_000_000
# Consumers and members of streams that one connection may stand for.
REMOTE_OWNED_MAX: Final = 10_000
# Consumers that left a connection and are remembered, to answer what was sent behind.
REMOTE_LEFT_MAX: Final = 1_000
REMOTE_WATCH_MS_MAX: Final = 30_000

# Producers: what one may wait for, collect in a batch, and hold back.
PRODUCER_LINGER_MS_MAX: Final = 60_000
PRODUCER_BATCH_MESSAGES_MAX: Final = 10_000
PRODUCER_BATCH_BYTES_MAX: Final = 1024 * 1024
PRODUCER_BUFFER_BYTES_MAX: Final = 1024 * 1024 * 1024

# HTTP: a request's body where it has messages in it and where not, what comes before it,
# and members of groups.
HTTP_BODY_BYTES_MAX: Final = 32 * 1024 * 1024
HTTP_REQUEST_BYTES_MAX: Final = 2 * 1024 * 1024
# What all of them may hold together while they arrive.
HTTP_BODIES_BYTES_MAX: Final = 256 * 1024 * 1024
# Messages of one body, as for our own clients.
HTTP_MESSAGES_MAX: Final = REMOTE_ELEMENTS_MAX
HTTP_HEAD_BYTES_MAX: Final = 64 * 1024
HTTP_MEMBERS_MAX: Final = 10_000
# Answers of one route with messages in them that are made at once; others wait in line.
HTTP_ANSWERS_AT_ONCE_MAX: Final = 4
# Requests of all connections that wait behind another one of their own, each of which takes
# about 2 KiB. Beyond, connections are cut that have more than a few of them.
HTTP_PIPELINED_MAX: Final = 20_000
HTTP_PIPELINED_SMALL: Final = 20
# Requests that are being handled, for each connection that there may be: one of its own, and
# some of clients that have gone, which end when they notice.
HTTP_TASKS_PER_CONNECTION: Final = 2
# WebSockets: what one connection may ask for at once, and how long it waits for news
# before it looks whether the client is still there.
SOCKET_CREDIT_MAX: Final = 10_000
SOCKET_SUBSCRIPTIONS_MAX: Final = 64
SOCKET_WAIT_MS: Final = 30_000
# What waits on the node for a socket or a stream whose client does not read; one record
# alone may be larger. It is there several times over, in the forms that it goes through.
SOCKET_FEED_BYTES_MAX: Final = 256 * 1024

# gRPC: a request with one record, and other requests; arrays are counted before they
# are made, as for our own clients.
GRPC_MESSAGE_BYTES_MAX: Final = RECORD_BYTES_MAX + 1024 * 1024
GRPC_REQUEST_BYTES_MAX: Final = REMOTE_REQUEST_BYTES_MAX
# What grpc takes at all: a request between the two is refused by us, with a code.
GRPC_RECEIVED_BYTES_MAX: Final = 2 * GRPC_MESSAGE_BYTES_MAX
# Fields of all messages in a larger request.
GRPC_FIELDS_MAX: Final = 20_000
GRPC_HEAD_BYTES_MAX: Final = 16 * 1024
# Of one answer: one record alone may be larger.
GRPC_ANSWER_BYTES_MAX: Final = 1024 * 1024

# Keys that one pass of compaction remembers, at about 200 bytes each.
COMPACTION_KEYS_MAX: Final = 250_000

# Queues.
LEASE_MESSAGES_MAX: Final = 10_000
# Of one lease, whatever the number of messages: who wants more asks again.
LEASE_BYTES_MAX: Final = 32 * 1024 * 1024
# What one lease, or one answer to a share consumer, opens beyond what it gives to come to
# messages that lie between others, uncompressed: some milliseconds.
LEASE_OPENED_BYTES_MAX: Final = 4 * 1024 * 1024
ATTEMPTS_MAX: Final = 255
# What a group may allow one consumer to hold.
LEASES_PER_CONSUMER_MAX: Final = 1_000_000
VISIBILITY_MS_MAX: Final = 12 * 60 * 60 * 1000
DEDUP_IDS_PER_PARTITION_MAX: Final = 1_000_000
# Ranges of one partition in one answer to a share consumer. A range may be one message:
# mixed priorities lie between one another. Kafka's own clients take any number, and a
# broker of Kafka has 2,000 records of a partition under way (share.partition.max.record.locks).
SHARE_RANGES_MAX: Final = 2_000
SHARE_SESSIONS_MAX: Final = 10_000
SHARE_SESSION_PARTITIONS_MAX: Final = 100_000
# Of messages on their way to the dead letters or back, what is read and copied in one piece,
# some hundredths of a second; others have their turn between two.
MOVE_MESSAGES_MAX: Final = 1_000
MOVE_BYTES_MAX: Final = 4 * 1024 * 1024
REDRIVES_MAX: Final = 3
# Messages of a partition that a queue group keeps as redriven in place; others are copied.
REVIVED_MAX: Final = 100_000
PAGE_ITEMS_MAX: Final = 1_000
# Of dead letters and delayed messages, what one page looks at before it says where the
# next one goes on: some are passed over.
LISTED_ITEMS_MAX: Final = 10_000
LISTED_BYTES_MAX: Final = 32 * 1024 * 1024
# Messages that one worker function handles at the same time.
CONCURRENCY_MAX: Final = 1_000

# Metrics: topics, pairs of a group and a topic, and open transactions that have a
# series of their own. What goes beyond is summed up in one. And all samples of one
# scrape, where every partition is asked for.
METRIC_TOPICS_MAX: Final = 1_000
METRIC_GROUP_TOPICS_MAX: Final = 200
METRIC_HOLDERS_MAX: Final = 20
METRIC_PARTITIONS_MAX: Final = 20_000
# Ages that one scrape reads from the log; the others wait for the next.
METRIC_AGES_MAX: Final = 1_000

# What a start replays of all state logs together, as far as housekeeping can see to it:
# a few seconds.
STATE_REPLAY_BYTES_MAX: Final = 8 * 1024 * 1024
# What a clean stop leaves of it, where that takes no more than so many snapshots, which are
# some seconds.
STATE_CLOSED_BYTES_MAX: Final = 1024 * 1024
SNAPSHOTS_AT_CLOSE_MAX: Final = 1_000
# Tracing: what of a partition's state log may wait to be carried over before it is
# cut all the same, and what one search for a copy goes over.
TRACE_UNCARRIED_BYTES_MAX: Final = 64 * 1024 * 1024
TRACE_LINK_BYTES_MAX: Final = 16 * 1024 * 1024
# What one page of a search looks at, a fraction of a second, before it says where the next
# one goes on: records that are decoded; batches, uncompressed where they are opened; and
# histories, whose events are all decoded.
TRACE_SEARCH_RECORDS_MAX: Final = 50_000
TRACE_SEARCH_BYTES_MAX: Final = 32 * 1024 * 1024
TRACE_HISTORIES_BYTES_MAX: Final = 4 * 1024 * 1024
# Events of one message that are told: the last of them.
TRACE_EVENTS_MAX: Final = 1_000

# Metrics that clients push (KIP-714): of one push as it comes and as it is opened, numbers of
# one client and of all, and what a subscription and a client's name may be long.
TELEMETRY_BYTES_MAX: Final = 1024 * 1024
TELEMETRY_OPENED_BYTES_MAX: Final = 8 * 1024 * 1024
TELEMETRY_POINTS_PER_CLIENT_MAX: Final = 500
TELEMETRY_POINTS_MAX: Final = 20_000
TELEMETRY_POINT_CHARACTERS_MAX: Final = 1_024
TELEMETRY_CLIENT_CHARACTERS_MAX: Final = 256
TELEMETRY_SUBSCRIPTIONS_MAX: Final = 100
TELEMETRY_CONFIG_CHARACTERS_MAX: Final = 4_096

# The dashboard: samples of the last minutes that a node keeps, and what one request
# looks through before it says how far it came.
LIVE_SAMPLES_MAX: Final = 300
SEARCH_RECORDS_MAX: Final = 5_000
SEARCH_BYTES_MAX: Final = 8 * 1024 * 1024
SEARCH_PARTITIONS_MAX: Final = 64

# Time. A delay has no upper limit but what a millisecond timestamp can hold.
TIMESTAMP_MS_MAX: Final = 2**62
