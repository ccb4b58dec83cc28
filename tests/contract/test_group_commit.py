"""Group commit by threads and on a loop: the same calls come out the same."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from tests.contract.commit_drivers import DRIVERS, Bench, answer

from headrace.core.errors import DiskFull, SyncFailed, UnknownTopic


@pytest.fixture(params=DRIVERS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(DRIVERS[request.param])
    yield bench
    bench.close()


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


# Rounds.


def test_a_message_is_answered_and_seen_when_it_is_on_disk_and_not_before(bench: Bench) -> None:
    topic = bench.broker.topics.named("orders")
    [partition] = bench.broker.topics.partitions(topic)
    held = bench.publish_held()
    assert not held.done() and partition.high_watermark == 1
    bench.gate.open()
    assert answer(held)[0].offset == 1
    assert partition.high_watermark == 2


def test_calls_that_come_during_a_round_share_the_next_one(bench: Bench) -> None:
    calls = [bench.publish_held()]
    calls += [bench.publish() for _ in range(5)]
    bench.wait_until_unanswered(6)
    bench.gate.open()
    assert sorted(answer(call)[0].offset for call in calls) == [1, 2, 3, 4, 5, 6]
    assert bench.gate.syncs == 2


def test_what_the_system_is_left_to_sync_is_answered_at_once(bench: Bench) -> None:
    bench.make_topic("hints", durability="os")
    held = bench.publish_held()
    assert answer(bench.publish("hints"))[0].offset == 0
    assert not held.done()


# Deletion.


def test_a_call_whose_topic_is_deleted_before_it_is_on_disk_has_failed(bench: Bench) -> None:
    held = bench.publish_held()
    deleting = bench.delete()
    bench.wait_until(lambda: "orders" not in bench.broker.topics.catalog.topics)
    bench.gate.open()
    with pytest.raises(UnknownTopic, match="deleted before this was on disk"):
        answer(held)
    answer(deleting)
    with pytest.raises(UnknownTopic):
        answer(bench.publish())
    bench.make_topic("orders")
    assert answer(bench.publish())[0].offset == 0


def test_a_call_for_the_next_round_fails_with_its_topic_too(bench: Bench) -> None:
    bench.make_topic("bills")
    answer(bench.publish("bills"))
    held = bench.publish_held()
    other = bench.publish("bills")
    bench.wait_until_unanswered(2)
    deleting = bench.delete("bills")
    bench.wait_until(lambda: "bills" not in bench.broker.topics.catalog.topics or other.done())
    bench.gate.open()
    assert answer(held)[0].offset == 1
    answer(deleting)
    # With threads it may not have been carried out before the deletion.
    with pytest.raises(UnknownTopic):
        answer(other)


def test_a_call_to_another_topic_hears_nothing_of_a_deletion(bench: Bench) -> None:
    bench.make_topic("bills")
    answer(bench.publish("bills"))
    held = bench.publish_held()
    deleting = bench.delete("bills")
    bench.wait_until(lambda: "bills" not in bench.broker.topics.catalog.topics)
    assert not held.done()
    bench.gate.open()
    assert answer(held)[0].offset == 1
    answer(deleting)


# Failures.


def test_a_failed_sync_fails_every_call_from_then_on_and_is_not_repeated(bench: Bench) -> None:
    held = bench.publish_held()
    waiting = bench.publish()
    bench.wait_until_unanswered(2)
    bench.gate.error = system_error(errno.EIO)
    bench.gate.open()
    later: list[Callable[[], Future[Any]]] = [bench.publish, bench.delete]
    for begin in (lambda: held, lambda: waiting, *later):
        with pytest.raises(SyncFailed, match="check the disk"):
            answer(begin())
    assert bench.driver.failed() is not None
    assert bench.gate.syncs == 1


def test_a_defect_behind_a_round_ends_it_and_leaves_no_call_waiting(bench: Bench) -> None:
    bench.break_on_synced(RuntimeError("a bug of ours"), 1)
    for _ in range(2):
        with pytest.raises(SyncFailed, match="a bug of ours"):
            answer(bench.publish())


@pytest.mark.parametrize(
    "error",
    [system_error(errno.ENOSPC), DiskFull("no room"), system_error(errno.EMFILE)],
    ids=["full", "full in our words", "no files left"],
)
def test_what_ran_out_is_asked_for_again_until_it_is_there(bench: Bench, error: Exception) -> None:
    rounds = bench.break_on_synced(error, 2)
    assert answer(bench.publish())[0].offset == 1
    assert bench.driver.failed() is None
    # Not in a hurry.
    assert len(rounds) == 3


# Time.


def test_what_is_synced_now_and_then_is_synced_when_its_time_has_come(bench: Bench) -> None:
    bench.make_topic("hints", durability="interval", sync_interval_ms=1)
    bench.gate.close()
    assert answer(bench.publish("hints"))[0].offset == 0
    bench.gate.wait_until_reached()


def test_a_short_interval_does_not_wait_for_a_longer_one(bench: Bench) -> None:
    bench.make_topic("slow", durability="interval", sync_interval_ms=3_600_000)
    bench.make_topic("quick", durability="interval", sync_interval_ms=1)
    bench.gate.close()
    answer(bench.publish("slow"))
    answer(bench.publish("quick"))
    bench.gate.wait_until_reached()


# The end.


def test_closing_syncs_everything_whatever_its_durability(bench: Bench) -> None:
    for durability in ("os", "interval"):
        bench.make_topic(durability, durability=durability, sync_interval_ms=3_600_000)
        answer(bench.publish(durability))
    logs = [partition.log for partition in bench.broker.topics]
    assert any(log.synced_end < log.end_offset for log in logs)
    bench.close()
    assert all(log.synced_end == log.end_offset for log in logs)


def test_closing_on_a_full_disk_comes_to_an_end(bench: Bench) -> None:
    bench.break_on_synced(system_error(errno.ENOSPC), 1_000_000)
    bench.close()
    assert bench.driver.failed() is None
