"""How much each row does: the full set, and one so small that trying takes seconds."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    # How often a row of throughput is repeated; medians are shown.
    runs: int
    # Messages of 100 bytes and of 1,024 bytes that one measurement moves.
    small: int
    large: int
    # What a broker gets to do before anything is measured, so that a virtual
    # machine has compiled what it runs.
    warm: int
    # Batches of about 1 MB that are produced raw, and how many are fetched.
    batches: int
    fetches: int
    requests: int
    # How long a rate of messages is held when their latency is measured.
    seconds: float
    syncs: int
    shared: int
    # Messages in committed transactions that are read.
    committed: int
    # What lies in the log when a node is restarted.
    restart: int
    # Bytes that are written to be compacted, and to be deleted, under load.
    compact_bytes: int
    compact_seconds: float
    members: int
    member_partitions: int
    topics: int
    partitions_per_topic: int
    idle_seconds: float


FULL = Sizes(
    runs=3,
    small=5_000_000,
    large=1_000_000,
    warm=3_000_000,
    batches=2_000,
    fetches=6_000,
    requests=200_000,
    seconds=10.0,
    syncs=1_000,
    shared=1_000_000,
    committed=500_000,
    restart=10_000_000,
    compact_bytes=2_000_000_000,
    compact_seconds=90.0,
    members=10,
    member_partitions=100,
    topics=100,
    partitions_per_topic=100,
    idle_seconds=20.0,
)

QUICK = Sizes(
    runs=1,
    small=20_000,
    large=5_000,
    warm=1_000,
    batches=20,
    fetches=40,
    requests=500,
    seconds=0.3,
    syncs=20,
    shared=5_000,
    committed=3_000,
    restart=20_000,
    compact_bytes=2_000_000,
    compact_seconds=1.0,
    members=3,
    member_partitions=6,
    topics=5,
    partitions_per_topic=4,
    idle_seconds=0.5,
)
