"""Batches that a topic compresses anew: what that costs, by codec and size.

A producer sends them plain and the topic has a codec; the records are lines of JSON that
differ in numbers, as events of a service do. `as it came` is the way of a topic that leaves
compression to its producers.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from benchmarks.samples import Sample
from benchmarks.sizes import Sizes
from headrace.core.settings import TopicSettings
from headrace.engine.conversion import CODECS, convert, is_as_it_came, is_to_open
from headrace.record import NewRecord, build_batch, read_header

KIBIBYTE = 1024
BATCHES = (16 * KIBIBYTE, 1024 * KIBIBYTE)


def compressing(place: Path, sizes: Sizes) -> list[Sample]:
    samples = []
    for wanted in ("producer", *CODECS):
        if wanted == "uncompressed":
            continue
        settings = TopicSettings.from_mapping({"compression": wanted})
        name = "as it came" if wanted == "producer" else wanted
        for size in BATCHES:
            taken, ratio = _measure(_batch(size), settings, sizes.seconds / 4)
            what = f"{size // KIBIBYTE} KiB"
            samples.append(Sample(name, f"a batch of {what}", "ms", taken * 1000))
            if size == BATCHES[-1]:
                samples.append(Sample(name, "stored", "%", 100 * ratio))
    return samples


def _batch(size: int) -> bytearray:
    chosen = random.Random(7)
    records, total = [], 0
    while total < size:
        value = b'{"order": %d, "customer": "customer-%d", "amount": %.2f, "currency": "EUR"}' % (
            chosen.randrange(10**9),
            chosen.randrange(10**4),
            chosen.random() * 1000,
        )
        records.append(NewRecord(b"%d" % chosen.randrange(10**4), value, timestamp_ms=1))
        total += len(value) + 20
    return build_batch(records)


def _measure(batch: bytearray, settings: TopicSettings, seconds: float) -> tuple[float, float]:
    """Seconds for one, and how much of it is stored."""
    header = read_header(batch)
    count, size = 0, len(batch)
    began = time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds or not count:
        if not is_as_it_came(settings) and is_to_open(settings, header):
            size = len(convert(batch, header, settings, 0))
        count += 1
    return passed / count, size / len(batch)
