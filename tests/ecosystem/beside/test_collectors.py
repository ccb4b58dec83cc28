"""Collectors of Debian send to topics what they collect, each line and each value once, also
when the broker is killed meanwhile; rsyslog reads topics too."""

from __future__ import annotations

import grp
import json
import os
import shutil
import socket
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.kafka.brokers import Broker
from confluent_kafka import Message
from tests.ecosystem.frameworks import broker
from tests.ecosystem.programs import Program, reading, running

__all__ = ["broker"]

PART = 500
BEGUN = 50

# What is in a file goes to the topic `logs`, and all of that to the topic `copies`.
RSYSLOG = """\
global(workDirectory="{folder}")
module(load="imfile")
module(load="imkafka")
module(load="omkafka")
template(name="line" type="string" string="%rawmsg%")
ruleset(name="to-logs") {{
    action(type="omkafka" topic="logs" broker="{bootstrap}" template="line"
        confParam=["enable.idempotence=true"] topicConfParam=["acks=all"]
        resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="{folder}/failed"
        action.resumeRetryCount="-1" action.resumeInterval="1")
}}
ruleset(name="to-copies") {{
    action(type="omkafka" topic="copies" broker="{bootstrap}" template="line"
        confParam=["enable.idempotence=true"] topicConfParam=["acks=all"]
        resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="{folder}/failed-copies"
        action.resumeRetryCount="-1" action.resumeInterval="1")
}}
input(type="imfile" file="{folder}/lines" tag="till" persistStateInterval="1" ruleset="to-logs")
input(type="imkafka" topic="logs" broker="{bootstrap}" consumergroup="copying"
    ruleset="to-copies" confParam=["auto.offset.reset=earliest"])
"""

COLLECTD = """\
Hostname "shop"
FQDNLookup false
BaseDir "{folder}"
PIDFile "{folder}/pid"
Interval 1
LoadPlugin uptime
LoadPlugin unixsock
<Plugin unixsock>
    SocketFile "{folder}/socket"
    SocketGroup "{group}"
</Plugin>
LoadPlugin write_kafka
<Plugin write_kafka>
    Property "metadata.broker.list" "{bootstrap}"
    Property "enable.idempotence" "true"
    <Topic "metrics">
        Format JSON
    </Topic>
</Plugin>
"""


def need(program: str) -> str:
    path = shutil.which(program) or shutil.which(f"/usr/sbin/{program}")
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def values(records: list[Message], topic: str) -> list[str]:
    return [
        (record.value() or b"").decode().strip() for record in records if record.topic() == topic
    ]


def test_rsyslog_sends_and_reads_each_line(broker: Broker, tmp_path: Path) -> None:
    broker.make_topics(broker.admin(), {"logs": 2, "copies": 2}, {})
    settings = tmp_path / "rsyslog.conf"
    settings.write_text(RSYSLOG.format(folder=tmp_path, bootstrap=broker.bootstrap))
    rsyslog = Program(
        [need("rsyslogd"), "-n", "-i", str(tmp_path / "pid"), "-f", str(settings)],
        tmp_path / "rsyslog.log",
    )

    def say(numbers: range) -> set[str]:
        """All lines so far."""
        with open(tmp_path / "lines", "a") as lines:
            lines.writelines(f"line {number}\n" for number in numbers)
        return {f"line {number}" for number in range(numbers.stop)}

    with running(rsyslog), reading(broker.bootstrap, "logs", "copies") as reader:
        said = say(range(PART))
        reader.wait_until(lambda records: set(values(records, "copies")) == said, rsyslog)
        rsyslog.kill()
        rsyslog.start()
        said = say(range(PART, 2 * PART))
        reader.wait_until(lambda records: len(values(records, "logs")) >= PART + BEGUN, rsyslog)
        broker.kill()
        said = say(range(2 * PART, 3 * PART))
        broker.start()
        reader.wait_until(lambda records: set(values(records, "copies")) == said, rsyslog)
        assert Counter(values(reader.records, "logs")) == Counter(said)


def test_collectd_sends_each_value_once(broker: Broker, tmp_path: Path) -> None:
    broker.make_topics(broker.admin(), {"metrics": 2}, {})
    settings = tmp_path / "collectd.conf"
    group = grp.getgrgid(os.getgid()).gr_name
    settings.write_text(COLLECTD.format(folder=tmp_path, bootstrap=broker.bootstrap, group=group))
    collectd = Program([need("collectd"), "-f", "-C", str(settings)], tmp_path / "collectd.log")

    def put(numbers: range) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / "socket"))
            with connection.makefile("rw") as lines:
                for number in numbers:
                    at = f"{1_700_000_000 + number}:{number}"
                    lines.write(f"PUTVAL shop/till/gauge-{number % 10} interval=1 {at}\n")
                    lines.flush()
                    assert lines.readline().startswith("0 ")

    def put_values(records: list[Message]) -> Counter[float]:
        found = [json.loads(value)[0] for value in values(records, "metrics")]
        return Counter(each["values"][0] for each in found if each["plugin"] == "till")

    with running(collectd), reading(broker.bootstrap, "metrics") as reader:
        # It sends the uptime of the machine by itself, once it is ready.
        reader.wait_until(lambda records: len(records) > 0, collectd)
        put(range(PART))
        reader.wait_until(lambda records: len(put_values(records)) >= BEGUN, collectd)
        broker.kill()
        put(range(PART, 2 * PART))
        broker.start()
        reader.wait_until(lambda records: len(put_values(records)) == 2 * PART, collectd)
        assert put_values(reader.records) == Counter(map(float, range(2 * PART)))
