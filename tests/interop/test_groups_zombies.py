"""A member that was away for too long: a whole process, stopped and let go on."""

from __future__ import annotations

import signal
import subprocess
import sys

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import (
    Member,
    make_topic,
    publish,
    quiet,
    settings_of,
    share,
    wait_until,
)

# Reads one message, and commits it when it is told to, which may be much later.
_MEMBER = """
import sys
from confluent_kafka import Consumer, KafkaException
consumer = Consumer({settings!r})
consumer.subscribe(["orders"])
message = None
while message is None or message.error():
    message = consumer.poll(0.1)
print("reading", flush=True)
sys.stdin.readline()
try:
    consumer.commit(message, asynchronous=False)
    print("committed", flush=True)
except KafkaException as error:
    print(error.args[0].name(), flush=True)
"""


def test_a_member_that_wakes_up_too_late_cannot_commit(node: NodeProcess) -> None:
    make_topic(node.bootstrap, partitions=1)
    publish(node.bootstrap, [str(number) for number in range(10)])
    settings = {
        "bootstrap.servers": node.bootstrap,
        "group.id": "billing",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **settings_of("range"),
    }
    zombie = subprocess.Popen(
        [sys.executable, "-c", _MEMBER.format(settings=settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert zombie.stdin is not None and zombie.stdout is not None
    try:
        assert zombie.stdout.readline() == "reading\n"
        zombie.send_signal(signal.SIGSTOP)
        successor = Member(node.bootstrap, "billing", "range")
        try:
            # It has to wait until the session of the other one is over.
            wait_until(lambda: share([successor], 1), "the successor has the partition")
            wait_until(lambda: len(successor.values) == 10, "it reads everything once more")
            zombie.send_signal(signal.SIGCONT)
            zombie.stdin.write("\n")
            zombie.stdin.flush()
            assert zombie.stdout.readline() in ("UNKNOWN_MEMBER_ID\n", "ILLEGAL_GENERATION\n")
        finally:
            successor.close()
    finally:
        zombie.kill()
        zombie.wait(10)
        zombie.stdin.close()
        zombie.stdout.close()
    admin = AdminClient(quiet(node.bootstrap))
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("billing")]).values()
    assert [each.offset for each in found.result(10).topic_partitions] == [10]
