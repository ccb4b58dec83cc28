"""Every row, in the order in which they run: brokers that are warm first, then those
that want the machine for themselves."""

from __future__ import annotations

from benchmarks.kafka import (
    latency,
    lifetime,
    rebalance,
    requests,
    sharing,
    throughput,
    transactions,
)
from benchmarks.kafka.report import Row

ROWS = (
    Row("throughput", "Produce and consume through librdkafka", throughput.throughput),
    Row("batches", "Bytes moved by raw requests of 1 MB", throughput.raw_batches),
    Row("requests", "Requests of one record", requests.one_record),
    Row("share", "Share groups: fetch and acknowledge", sharing.share),
    Row("transactions", "Transactions", transactions.transactions),
    Row("latency", "From publishing to on disk", latency.latency),
    Row("clearing", "Latency while data is cleared away", latency.latency_while_clearing),
    Row("rebalance", "From join or leave to stable", rebalance.rebalance),
    Row("start", "Start", lifetime.start),
    Row("restart", "Restart with messages in the log", lifetime.restart),
    Row("partitions", "Many partitions", lifetime.many_partitions),
)
