"""Metrics equal ground truth: behind a known workload through every door, each family
has the value that the workload implies. A family that nobody checks fails the test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from tests.doors.metrics_workload import (
    AGE_SECONDS,
    Labels,
    World,
    labels,
)

from headrace.server.metrics import families as f
from headrace.server.metrics.counting import REQUEST_BOUNDS
from headrace.server.metrics.probe import PROBE_SECONDS
from headrace.server.metrics.sums import LATENCY_BOUNDS

# One node for all of them, so one worker.

FLOOR = 64 * 1024 * 1024
SLACK_BYTES = 4 * 1024 * 1024 * 1024


Check = Callable[[World], None]
CHECKS: dict[str, Check] = {}


def checks(*families: f.Family) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        for family in families:
            CHECKS[family.name] = check
        return check

    return register


def exactly(world: World, family: f.Family, expected: Mapping[Labels, float]) -> None:
    sample = family.name + {"counter": "_total", "info": "_info"}.get(family.kind, "")
    assert world.values(sample) == expected, family.name


def about(world: World, family: f.Family, where: Labels, low: float, high: float) -> None:
    """The clock of the node is that of the test; a millisecond is the smallest step."""
    value = world.values(family.name)[where]
    assert low - 0.002 <= value <= high + 0.002, (family.name, low, value, high)


def since(world: World, moment: str) -> tuple[float, float]:
    """The least and the greatest age of what was done then."""
    first, last = world.moments[moment]
    return world.scraped[0] - last, world.scraped[1] - first


# What went in and out.


@checks(f.MESSAGES_IN, f.MESSAGES_OUT, f.BYTES_IN, f.BYTES_OUT)
def check_traffic(world: World) -> None:
    for family, direction, unit in (
        (f.MESSAGES_IN, "in", "messages"),
        (f.MESSAGES_OUT, "out", "messages"),
        (f.BYTES_IN, "in", "bytes"),
        (f.BYTES_OUT, "out", "bytes"),
    ):
        found = {key: value for key, value in world.values(f"{family.name}_total").items() if value}
        expected = {
            labels(topic=topic, door=door): value
            for (way, what, topic, door), value in world.traffic.items()
            if (way, what) == (direction, unit)
        }
        if family is f.BYTES_IN:
            # Some batches lie beside others in their log; these are as large as the log.
            for topic in ("jobs", "together"):
                size = found.pop(labels(topic=topic, door="http"))
                assert 0 < size < world.values(f.SIZE.name)[labels(topic=topic)]
        assert found == expected, family.name


# Requests.


@checks(f.REQUESTS)
def check_requests(world: World) -> None:
    elapsed = world.scraped[1] - world.began
    counts = world.values(f"{f.REQUESTS.name}_count")
    # Our own client talks to the node as it sees fit.
    known = {key: count for key, count in counts.items() if ("door", "sdk") not in key}
    assert known == {labels(door=door, api=api): count for (door, api), count in world.over.items()}
    own = {dict(key)["api"] for key in counts if ("door", "sdk") in key}
    assert {"create_topic", "open_queue"} <= own
    for key, count in counts.items():
        assert 0 < world.values(f"{f.REQUESTS.name}_sum")[key] <= elapsed * count
        buckets = [
            world.values(f"{f.REQUESTS.name}_bucket")[key | {("le", bound)}]
            for bound in (*map(str, REQUEST_BOUNDS), "+Inf")
        ]
        assert buckets == sorted(buckets)
        assert buckets[-1] == count


@checks(f.REQUEST_ERRORS)
def check_errors(world: World) -> None:
    expected = {
        labels(door=door, api=api, code=code): count
        for (door, api, code), count in world.errors.items()
    }
    exactly(world, f.REQUEST_ERRORS, expected)


@checks(f.CONNECTIONS)
def check_connections(world: World) -> None:
    doors = ("kafka", "sdk", "http", "websocket", "grpc")
    exactly(world, f.CONNECTIONS, {labels(door=door): 1 for door in doors})


@checks(f.CUTS)
def check_cuts(world: World) -> None:
    reasons = {
        "kafka": ("body", "answer", "idle", "address", "full", "memory"),
        "http": ("head", "body", "answer", "idle", "full", "address", "memory"),
        "websocket": ("body", "answer", "memory"),
        "grpc": ("address", "body", "full", "memory"),
    }
    expected = {
        labels(door=door, reason=reason): 0 for door, each in reasons.items() for reason in each
    }
    exactly(world, f.CUTS, expected)


@checks(f.HELD_BYTES)
def check_held_bytes(world: World) -> None:
    # The workload has no members of Kafka groups, and its requests have all arrived.
    kinds = ("groups", "fetch_sessions", "share_sessions", "waiting", "receiving", "bodies")
    exactly(world, f.HELD_BYTES, {labels(what=what): 0 for what in kinds})


@checks(f.CLIENT_METRIC)
def check_client_metric(world: World) -> None:
    client = labels(
        client="wire", client_instance=world.instance, metric="sent", attributes="topic=orders"
    )
    exactly(world, f.CLIENT_METRIC, {client: 3})


# Groups.

ORDERS = {
    group: labels(group=group, topic="orders", kind=kind)
    for group, kind in (("report", "stream"), ("query", "spark"))
}
QUEUES = {
    group: labels(group=group, topic=topic, kind="queue")
    for group, topic in (("workers", "jobs"), ("remote", "remote-jobs"), ("local", "local-jobs"))
}


@checks(f.LAG_MESSAGES)
def check_lag_messages(world: World) -> None:
    # Of the jobs: leased, retrying, redriven and delayed.
    lags = {"workers": 4, "remote": 2, "local": 0}
    expected: dict[Labels, float] = {QUEUES[group]: lag for group, lag in lags.items()}
    exactly(world, f.LAG_MESSAGES, {**expected, ORDERS["report"]: 10, ORDERS["query"]: 0})


@checks(f.LAG_SECONDS)
def check_lag_seconds(world: World) -> None:
    assert set(world.values(f.LAG_SECONDS.name)) == {*QUEUES.values(), *ORDERS.values()}
    for where in (ORDERS["query"], QUEUES["local"]):
        about(world, f.LAG_SECONDS, where, 0, 0)
    age = world.scraped[0] - world.began + AGE_SECONDS
    about(world, f.LAG_SECONDS, ORDERS["report"], age, age + world.scraped[1] - world.scraped[0])
    elapsed = world.scraped[1] - world.began
    for group in ("workers", "remote"):
        about(world, f.LAG_SECONDS, QUEUES[group], 0, elapsed)


@checks(f.POSITION, f.COMMIT_AGE)
def check_positions(world: World) -> None:
    exactly(world, f.POSITION, {ORDERS["report"]: 6, ORDERS["query"]: 16})
    assert set(world.values(f.COMMIT_AGE.name)) == set(ORDERS.values())
    for where in ORDERS.values():
        about(world, f.COMMIT_AGE, where, *since(world, "commit"))


@checks(f.SINK_ROWS, f.SINK_BATCHES)
def check_sinks(world: World) -> None:
    exactly(world, f.SINK_ROWS, {labels(sink="large"): 40})
    exactly(world, f.SINK_BATCHES, {labels(sink="large"): 3})


# Queues.


@checks(f.QUEUE_MESSAGES)
def check_queue_messages(world: World) -> None:
    found = {key: value for key, value in world.values(f.QUEUE_MESSAGES.name).items() if value}
    jobs = {"group": "workers", "topic": "jobs", "lane": "normal"}
    remote = {"group": "remote", "topic": "remote-jobs", "lane": "normal"}
    assert found == {
        labels(**jobs, state="leased"): 1,
        labels(**jobs, state="retrying"): 1,
        labels(**jobs, state="ready"): 1,
        labels(**jobs, state="delayed"): 1,
        labels(**remote, state="leased"): 1,
        labels(**remote, state="ready"): 1,
    }
    # Three groups, five lanes, six states: all of them, also where there is nothing.
    assert len(world.values(f.QUEUE_MESSAGES.name)) == 3 * 5 * 6


@checks(f.QUEUE_OLDEST)
def check_oldest(world: World) -> None:
    ages = world.values(f.QUEUE_OLDEST.name)
    assert len(ages) == 3 * 5
    waiting = {
        labels(group="workers", topic="jobs", lane="normal"),
        labels(group="remote", topic="remote-jobs", lane="normal"),
    }
    elapsed = world.scraped[1] - world.began
    for where, age in ages.items():
        if where in waiting:
            about(world, f.QUEUE_OLDEST, where, 0, elapsed)
            assert age > 0
        else:
            assert age == 0


TOTALS = {
    f.DELIVERIES: (6, 1, 3),
    f.REDELIVERIES: (0, 0, 1),
    f.ACKS: (2, 0, 2),
    f.NACKS: (1, 0, 0),
    f.LEASES_ENDED: (0, 0, 1),
    f.STALE_RECEIPTS: (0, 0, 0),
    f.DEAD_LETTERED: (2, 0, 0),
    f.EXPIRED: (1, 0, 0),
    f.CANCELLED: (1, 0, 0),
}


@checks(*TOTALS)
def check_totals(world: World) -> None:
    topics = {"workers": "jobs", "remote": "remote-jobs", "local": "local-jobs"}
    for family, expected in TOTALS.items():
        exactly(
            world,
            family,
            {
                labels(group=group, topic=topic): value
                for (group, topic), value in zip(topics.items(), expected, strict=True)
            },
        )


@checks(f.TO_LEASE, f.TO_ACK)
def check_latencies(world: World) -> None:
    pairs = {"workers": "jobs", "remote": "remote-jobs", "local": "local-jobs"}
    elapsed = world.scraped[1] - world.began
    # Of all deliveries, those that were the first; and all acks.
    for family, expected in ((f.TO_LEASE, (6, 1, 2)), (f.TO_ACK, (2, 0, 2))):
        counts = world.values(f"{family.name}_count")
        assert counts == {
            labels(group=group, topic=topic): count
            for (group, topic), count in zip(pairs.items(), expected, strict=True)
        }
        for where, count in counts.items():
            assert 0 <= world.values(f"{family.name}_sum")[where] <= elapsed * count
            buckets = [
                world.values(f"{family.name}_bucket")[where | {("le", bound)}]
                for bound in (*map(str, LATENCY_BOUNDS), "+Inf")
            ]
            assert buckets == sorted(buckets)
            assert buckets[-1] == count


@checks(f.DELAYS_ENDED)
def check_delays(world: World) -> None:
    outcomes = {"delivered": 0, "cancelled": 1, "expired": 0}
    expected = {labels(topic="jobs", outcome=name): count for name, count in outcomes.items()}
    exactly(world, f.DELAYS_ENDED, expected)


@checks(f.LETTERS, f.REDRIVEN)
def check_letters(world: World) -> None:
    exactly(world, f.LETTERS, {labels(topic="jobs"): 1})
    exactly(world, f.REDRIVEN, {labels(topic="jobs"): 1})


# Storage.

PARTITIONS = {
    "orders": 2, "ledger": 1, "jobs": 1, "jobs.dlq": 1, "remote-jobs": 1, "local-jobs": 1,
    "pages": 1, "together": 3, "__cursors": 1, "__transaction_state": 1,
}  # fmt: skip


@checks(f.PARTITIONS, f.SEGMENTS, f.SIZE)
def check_storage(world: World) -> None:
    exactly(world, f.PARTITIONS, {labels(topic=name): count for name, count in PARTITIONS.items()})
    data = world.doors.data / "topics"
    records = list(data.glob("*/*/*.log"))
    states = list(data.glob("*/*/state/*.log"))
    assert set(world.values(f.SEGMENTS.name)) == {labels(topic=name) for name in PARTITIONS}
    # One that nothing was written to yet has no file.
    logs = [len(list(each.glob("*.log"))) for each in data.glob("*/*")]
    assert sum(world.values(f.SEGMENTS.name).values()) == sum(max(1, count) for count in logs)
    size = sum(each.stat().st_size for each in (*records, *states))
    assert sum(world.values(f.SIZE.name).values()) == size
    assert world.values(f.SIZE.name)[labels(topic="orders")] == world.log_bytes("orders")


@checks(f.STOPPED, f.UNREADABLE, f.DISK_FREE, f.DISK_FLOOR)
def check_disk(world: World) -> None:
    exactly(world, f.STOPPED, {labels(): 0})
    exactly(world, f.UNREADABLE, {labels(): 0})
    exactly(world, f.DISK_FLOOR, {labels(): FLOOR})
    # Others use the same disk.
    free = shutil.disk_usage(world.doors.data).free
    about(world, f.DISK_FREE, labels(), free - SLACK_BYTES, free + SLACK_BYTES)


@checks(f.SYNCS)
def check_syncs(world: World) -> None:
    (count,) = world.values(f"{f.SYNCS.name}_count").values()
    # Each of these waited for a sync that began after it.
    written = ("Produce", "OffsetCommit", "EndTxn", "InitProducerId")
    refused = sum(world.errors["kafka", "Produce", code] for _, _, code in list(world.errors))
    assert count >= sum(world.over["kafka", api] for api in written) - refused
    (seconds,) = world.values(f"{f.SYNCS.name}_sum").values()
    assert 0 < seconds <= count * (world.scraped[1] - world.began)


# Transactions.


@checks(f.OPEN_TRANSACTIONS, f.ENDED_TRANSACTIONS, f.OLDEST_TRANSACTION, f.UNDECIDED, f.HELD)
def check_transactions(world: World) -> None:
    states = {labels(state="ongoing"): 1.0, labels(state="ending"): 0.0}
    exactly(world, f.OPEN_TRANSACTIONS, states)
    # Messages to several topics at once are a transaction too.
    ended = {labels(outcome="committed"): 2.0, labels(outcome="aborted"): 1.0}
    exactly(world, f.ENDED_TRANSACTIONS, ended)
    about(world, f.OLDEST_TRANSACTION, labels(), *since(world, "transaction"))
    undecided = {labels(topic=name): 3.0 if name == "ledger" else 0.0 for name in PARTITIONS}
    exactly(world, f.UNDECIDED, undecided)
    (where,) = world.values(f.HELD.name)
    assert where == labels(topic="ledger", partition="0", transactional_id="open")
    about(world, f.HELD, where, *since(world, "transaction"))


# The node.


@checks(f.LOOP_LAG)
def check_loop_lag(world: World) -> None:
    (count,) = world.values(f"{f.LOOP_LAG.name}_count").values()
    elapsed = world.scraped[1] - world.values("process_start_time_seconds")[labels()]
    assert 0 < count <= elapsed / PROBE_SECONDS + 1
    (seconds,) = world.values(f"{f.LOOP_LAG.name}_sum").values()
    assert 0 <= seconds <= elapsed


@checks(f.GATHERED)
def check_scrape(world: World) -> None:
    about(world, f.GATHERED, labels(), 0, world.scraped[1] - world.scraped[0])


@checks(f.BUILD)
def check_build(world: World) -> None:
    (where,) = world.values(f"{f.BUILD.name}_info")
    build = dict(where)
    assert build["version"] == version("headrace")
    assert build["compiled"] in ("true", "false")
    assert build["python"].startswith("3.")


@checks(*f.PROCESS)
def check_process(world: World) -> None:
    pid = world.doors.process.pid
    status = Path(f"/proc/{pid}/status").read_text()
    (resident,) = (int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)
    (virtual,) = (int(line.split()[1]) for line in status.splitlines() if "VmSize" in line)
    told = world.values("process_resident_memory_bytes")[labels()]
    assert told == pytest.approx(resident * 1024, rel=0.5)
    told = world.values("process_virtual_memory_bytes")[labels()]
    assert told == pytest.approx(virtual * 1024, rel=0.5)
    started = world.values("process_start_time_seconds")[labels()]
    assert started == pytest.approx(world.began, abs=AGE_SECONDS)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    spent = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    # A sum of hundredths is not exact.
    assert 0 < world.values("process_cpu_seconds_total")[labels()] <= spent + 0.001
    opened = world.values("process_open_fds")[labels()]
    assert opened == pytest.approx(len(os.listdir(f"/proc/{pid}/fd")), abs=16)
    assert world.values("process_max_fds")[labels()] >= opened


# Partitions.


@checks(f.START_OFFSET, f.END_OFFSET, f.PARTITION_SIZE, f.PARTITION_LAG)
def check_partitions(world: World) -> None:
    ends = world.values(f.END_OFFSET.name)
    assert len(ends) == sum(PARTITIONS.values())
    assert set(world.values(f.START_OFFSET.name).values()) == {0}
    assert ends[labels(topic="orders", partition="0")] == 16
    # Six records, and the markers of two transactions.
    assert ends[labels(topic="ledger", partition="0")] == 8
    orders = labels(topic="orders", partition="0")
    assert world.values(f.PARTITION_SIZE.name)[orders] == world.log_bytes("orders")
    by_group: dict[str, float] = {}
    for where, lag in world.values(f.PARTITION_LAG.name).items():
        group = dict(where)["group"]
        by_group[group] = by_group.get(group, 0) + lag
    assert by_group == {"workers": 4, "remote": 2, "local": 0, "report": 10, "query": 0}


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_family_has_the_value_that_the_workload_implies(world: World, name: str) -> None:
    CHECKS[name](world)


def test_every_family_is_there_and_is_checked(world: World) -> None:
    exported = {name.removesuffix("_info") for name in world.families}
    assert exported == set(CHECKS) == {family.name for family in f.FAMILIES}


def test_every_family_is_of_its_kind(world: World) -> None:
    for family in f.FAMILIES:
        if family.kind == "info":
            assert world.kinds[f"{family.name}_info"] == "gauge"
        else:
            assert world.kinds[family.name] == family.kind


def test_open_metrics_say_the_same(world: World) -> None:
    accept = {"accept": "application/openmetrics-text;version=1.0.0"}
    answer = world.http.get("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    parse: Any = read_open
    read = list(parse(answer.text))
    assert {family.name for family in read} == {family.name for family in f.FAMILIES}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_wrong(world: World) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=world.text, capture_output=True, text=True
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
