"""What is wrong with a directory, said in the log: once at the start, and when its disk gets
full."""

from __future__ import annotations

import logging

from headrace.engine.broker import Broker

logger = logging.getLogger("headrace")


def report_troubles(broker: Broker) -> None:
    """Now, and from now on."""
    _report_stopped(broker)
    floor = broker.space.floor_bytes

    def report_space(is_full: bool, free: int) -> None:
        numbers = {"free_bytes": free, "floor_bytes": floor}
        if is_full:
            logger.error(
                "the disk is full: publishing is refused until there is room; reading and acking "
                "go on",
                extra=numbers,
            )
        else:
            logger.warning("there is room on the disk again", extra=numbers)

    broker.space.on_change = report_space
    if not broker.read_only:
        broker.space.look()


def _report_stopped(broker: Broker) -> None:
    for partition in broker.topics:
        if partition.is_stopped:
            place = {"topic": partition.topic.name, "partition": partition.index}
            logger.error("%s", partition.stopped or partition.queues_stopped, extra=place)
