"""What is wrong with a directory from the start, said once in the log."""

from __future__ import annotations

import logging

from headrace.engine.broker import Broker

logger = logging.getLogger("headrace")


def report_stopped(broker: Broker) -> None:
    for partition in broker.topics:
        if partition.queues_stopped is not None:
            place = {"topic": partition.topic.name, "partition": partition.index}
            logger.error("%s", partition.queues_stopped, extra=place)
