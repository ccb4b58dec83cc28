"""Losing power in the middle of transactions: of each, all of it is there or nothing,
and all of it where the answer came."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.crash.power import LONG

from headrace import Headrace, UnknownGroup, UnknownMessage, UnknownPartition, testing
from headrace.testing.fault_disk import FaultDisk, PowerLoss

pytestmark = pytest.mark.power_loss

TRANSACTIONS = 6
STRIDE = 1 if LONG else 7


def work(handle: Headrace, answered: list[int]) -> None:
    """Each transaction takes an order and writes an invoice and a mail for it."""
    handle.create_topic("orders", 1)
    handle.create_topic("invoices", 2)
    handle.create_topic("mails", 1)
    handle.publish_many("orders", list(range(TRANSACTIONS)))
    queue = handle.queue("orders", "billing")
    for message in queue.receive(TRANSACTIONS):
        number = message.value
        # Every third is given up, by an error of its own.
        try:
            with handle.transaction() as tx:
                tx.publish("invoices", number)
                tx.publish("mails", number)
                tx.ack(message)
                if number % 3 == 2:
                    raise ValueError
        except ValueError:
            continue
        answered.append(number)


def values(handle: Headrace, topic: str) -> set[Any]:
    with handle.stream(topic, start="earliest") as stream:
        return {record.value for record in stream.poll(1_000, wait=0)}


def is_acked(handle: Headrace, offset: int) -> bool:
    try:
        return handle.status(f"orders:0:{offset}", "billing").state == "acked"
    except (UnknownGroup, UnknownMessage, UnknownPartition):
        # The power went before there was a group, or a message.
        return False


def check(handle: Headrace, answered: list[int]) -> None:
    if not {"orders", "invoices", "mails"} <= {topic.name for topic in handle.topics()}:
        assert not answered
        return
    invoices, mails = values(handle, "invoices"), values(handle, "mails")
    acked = {offset for offset in range(TRANSACTIONS) if is_acked(handle, offset)}
    assert invoices == mails == acked
    assert set(answered) <= invoices
    # Whatever was left open does not hold back what comes next.
    with handle.transaction() as tx:
        tx.publish("invoices", "after")
        tx.publish("mails", "after")
    assert "after" in values(handle, "invoices") & values(handle, "mails")


def test_no_loss_of_power_tears_a_transaction() -> None:
    whole = FaultDisk()
    answered: list[int] = []
    with testing.open(disk=whole, clock=testing.ManualClock()) as handle:
        work(handle, answered)
        check(handle, answered)
    assert answered == [0, 1, 3, 4]
    trials = 0
    for stop_at in range(1, whole.operations, STRIDE):
        disk, answered = FaultDisk(), []
        disk.stop_at = stop_at
        clock = testing.ManualClock()
        try:
            handle = testing.open(disk=disk, clock=clock)
            work(handle, answered)
        except PowerLoss:
            trials += 1
        except Exception as error:
            # The handle says in its own words that its disk is gone.
            assert isinstance(error.__cause__, PowerLoss) or isinstance(error, OSError), error
            trials += 1
        after = disk.crash(random.Random(stop_at).randrange)
        with testing.open(disk=after, clock=clock) as again:
            check(again, answered)
    assert trials > 20
