"""A fleet of consumers that changes its protocol one member after the other."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import TOPIC, Member, make_topic, share, tell, wait_until
from tests.interop.java_clients import NoJava, programs
from tests.interop.test_groups_confluent import Load
from tests.interop.wire_client import WireClient

from headrace.wire.kafka.generated.list_groups_request import ListGroupsRequest

GROUP = "billing"
PARTITIONS = 6


class JavaMember:
    """Kafka's own consumer, which says what it has and what it reads."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        try:
            command = programs("4.3.0")
        except NoJava as reason:
            pytest.skip(str(reason))
        self.values: list[str] = []
        self.owned: set[tuple[str, int]] = set()
        self.fatal = ""
        self._process = subprocess.Popen(
            [*command, "GroupMember", bootstrap, GROUP, TOPIC, protocol],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        last = ""
        for line in self._process.stdout:
            last, *words = line.split()
            if last == "read":
                self.values.append(words[0])
            elif last == "owned":
                self.owned = {(TOPIC, int(word)) for word in words}
            tell()
        if last != "closed":
            self.fatal = "it ended by itself"

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._thread.join(30)
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        assert not self.fatal


class Fleet:
    def __init__(self, node: NodeProcess) -> None:
        self._bootstrap = node.bootstrap
        self.running: list[Member | JavaMember] = []
        self.all: list[Member | JavaMember] = []

    def start(self, protocol: str, *, is_java: bool = False) -> None:
        member: Member | JavaMember
        if is_java:
            member = JavaMember(self._bootstrap, protocol)
        else:
            member = Member(self._bootstrap, GROUP, protocol)
        self.running.append(member)
        self.all.append(member)
        self._wait(f"with another member that speaks {protocol}")

    def stop(self, index: int) -> None:
        self.running.pop(index).close()
        self._wait("after a member has left")

    def _wait(self, when: str) -> None:
        wait_until(
            lambda: share(self.running, PARTITIONS), f"the members share the topic {when}", 60
        )


def kind_of(node: NodeProcess) -> str:
    with WireClient(node.bootstrap) as client:
        [group] = client.call("ListGroups", 5, ListGroupsRequest()).groups
    return str(group.group_type)


@pytest.fixture
def fleet(node: NodeProcess) -> Iterator[Fleet]:
    make_topic(node.bootstrap, partitions=PARTITIONS)
    fleet = Fleet(node)
    yield fleet
    for member in fleet.running:
        member.close()


@pytest.mark.parametrize("classic", ["range", "cooperative-sticky"])
def test_a_rolling_change_of_protocol_there_and_back_loses_nothing(
    node: NodeProcess, fleet: Fleet, classic: str
) -> None:
    load = Load(node.bootstrap)
    fleet.start(classic)
    fleet.start(classic)
    assert kind_of(node) == "classic"
    # There: each is replaced by one of the other protocol.
    fleet.start("consumer")
    assert kind_of(node) == "consumer"
    fleet.stop(0)
    fleet.start("consumer")
    fleet.stop(0)
    # And back.
    fleet.start(classic)
    fleet.stop(0)
    fleet.start(classic)
    fleet.stop(0)
    assert kind_of(node) == "classic"
    published = load.stop()
    wait_until(
        lambda: published <= {value for member in fleet.all for value in member.values},
        "every message that was acknowledged is seen",
    )
    assert published
    assert not [member.fatal for member in fleet.all if member.fatal]


@pytest.mark.parametrize("classic", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_kafkas_own_consumer_goes_there_and_back(
    node: NodeProcess, fleet: Fleet, classic: str
) -> None:
    load = Load(node.bootstrap)
    fleet.start(classic, is_java=True)
    fleet.start("consumer", is_java=True)
    fleet.start("consumer")
    fleet.stop(0)
    assert kind_of(node) == "consumer"
    fleet.start(classic, is_java=True)
    fleet.stop(0)
    fleet.stop(0)
    assert kind_of(node) == "classic"
    published = load.stop()
    wait_until(
        lambda: published <= {value for member in fleet.all for value in member.values},
        "every message that was acknowledged is seen",
    )
    assert published
