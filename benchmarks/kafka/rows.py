"""Every row, in the order in which they run: brokers that are warm first, then those
that want the machine for themselves."""

from __future__ import annotations

from benchmarks.kafka import requests, throughput
from benchmarks.kafka.report import Row

ROWS = (
    Row("throughput", "Produce and consume through librdkafka", throughput.throughput),
    Row("batches", "Bytes moved by raw requests of 1 MB", throughput.raw_batches),
    Row("requests", "Requests of one record", requests.one_record),
)
