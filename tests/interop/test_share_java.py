"""Share groups as Kafka's own KafkaShareConsumer lives in them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic
from tests.interop.java_clients import NoJava, programs
from tests.interop.share_members import (
    GROUP,
    TOPIC,
    configure,
    letters_of,
    member,
    poll,
    publish,
    publish_mixed,
    seen,
    take,
)

# Offset, deliveries and value.
Found = tuple[int, int, str]


class JavaMember:
    def __init__(self, bootstrap: str, mode: str, errors: Path) -> None:
        try:
            command = programs("4.3.0")
        except NoJava as reason:
            pytest.skip(str(reason))
        self._errors = errors
        with errors.open("w") as stderr:
            self.process = subprocess.Popen(
                [*command, "ShareMember", bootstrap, GROUP, TOPIC, mode],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self._answer() == "ready"

    def order(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline().strip()
        assert answer, self._errors.read_text()
        return answer

    def poll(self, seconds: float = 60) -> list[Found]:
        """The next records; none when nothing came in time."""
        end = time.monotonic() + seconds
        while True:
            kind, *records = self.order("poll 500").split(" ")
            assert kind == "records", records
            if records or time.monotonic() > end:
                parts = [record.split(":", 2) for record in records]
                return [(int(offset), int(count), value) for offset, count, value in parts]

    def settle(self, kinds: dict[int, str]) -> None:
        for offset, kind in kinds.items():
            assert self.order(f"ack {offset} {kind}") == "ok"
        assert self.order("commit") == "ok 1"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def java_member(bootstrap: str, folder: Path, mode: str = "explicit") -> Iterator[JavaMember]:
    started = JavaMember(bootstrap, mode, folder / f"java-{time.monotonic_ns()}.log")
    try:
        yield started
    finally:
        started.kill()


@pytest.fixture
def served(node: NodeProcess) -> str:
    make_topic(node.bootstrap, TOPIC, 1)
    configure(node.bootstrap, start="earliest", backoff_ms=0)
    return node.bootstrap


def test_implicit_acknowledgement_accepts_what_was_polled(served: str, tmp_path: Path) -> None:
    publish(served, [b"%d" % number for number in range(20)])
    with java_member(served, tmp_path, "implicit") as java:
        assert java.poll() == [(number, 1, str(number)) for number in range(20)]
        publish(served, [b"20", b"21"])
        # This poll accepts the first twenty, and the commit accepts these.
        assert [offset for offset, _, _ in java.poll()] == [20, 21]
        assert java.order("commit") == "ok 1"
        assert java.order("close") == "closed"
    publish(served, [b"22"])
    with member(served) as another:
        assert seen(take(another, 1)) == [(22, 1)]


def test_a_poll_gets_500_messages_of_mixed_priorities(served: str, tmp_path: Path) -> None:
    publish_mixed(served, 1_000)
    with java_member(served, tmp_path, "implicit") as java:
        first = java.poll()
        assert len(first) == 500
        rest: list[Found] = []
        while len(rest) < 500:
            # A poll accepts what came before, and the commit accepts the last.
            rest += java.poll()
        assert java.order("commit") == "ok 1"
        assert java.order("close") == "closed"
    assert len({offset for offset, _, _ in first + rest}) == 1_000
    publish(served, [b"last"])
    with member(served) as another:
        assert seen(take(another, 1)) == [(1_000, 1)]


def test_explicit_acknowledgement_of_every_type(served: str, tmp_path: Path) -> None:
    publish(served, [b"%d" % number for number in range(4)])
    with java_member(served, tmp_path) as java:
        assert len(java.poll()) == 4
        java.settle({0: "accept", 1: "release", 2: "reject", 3: "accept"})
        assert java.poll() == [(1, 2, "1")]
        java.settle({1: "accept"})
        assert java.order("close") == "closed"
    [letter] = letters_of(served, 1)
    assert letter.value() == b"2"


def test_acknowledgements_that_closing_sends_count(served: str, tmp_path: Path) -> None:
    publish(served, [b"x"] * 2)
    with java_member(served, tmp_path) as java:
        assert len(java.poll()) == 2
        assert java.order("ack 0 accept") == "ok"
        assert java.order("ack 1 release") == "ok"
        assert java.order("close") == "closed"
    with member(served) as another:
        assert seen(take(another, 1)) == [(1, 2)]


def test_a_renewed_lock_outlives_its_first_end(served: str, tmp_path: Path) -> None:
    configure(served, lock_ms=6000)
    publish(served, [b"x"])
    with java_member(served, tmp_path) as java, member(served) as another:
        assert java.poll() == [(0, 1, "x")]
        for _ in range(4):
            assert poll(another, 2) == []
            java.settle({0: "renew"})
            # The renewed record is handed out again by the client itself.
            assert java.poll() == [(0, 1, "x")]
        java.settle({0: "accept"})
        assert java.order("close") == "closed"
        publish(served, [b"y"])
        assert seen(take(another, 1)) == [(1, 1)]


def test_what_a_java_client_skips_in_a_batch_is_not_lost(served: str, tmp_path: Path) -> None:
    """A Java client walks a batch upwards and calls what it was not given a gap."""
    configure(served, held=50)
    publish(served, [b"%d" % number for number in range(200)])
    with java_member(served, tmp_path) as java, member(served) as other:
        done: list[int] = []
        end = time.monotonic() + 60
        while len(done) < 200:
            assert time.monotonic() < end
            records = java.poll(0.1)
            kinds = {
                offset: "release" if count == 1 and offset % 3 == 0 else "accept"
                for offset, count, _ in records
            }
            if kinds:
                java.settle(kinds)
                done += [offset for offset, kind in kinds.items() if kind == "accept"]
            if len(done) < 150:
                done += [offset for offset, _ in seen(take(other, 1))]
        assert java.order("close") == "closed"
    assert sorted(done) == list(range(200))


def test_a_closed_java_member_gives_back_at_no_cost(served: str, tmp_path: Path) -> None:
    publish(served, [b"x"] * 3)
    with java_member(served, tmp_path) as java:
        assert len(java.poll()) == 3
        assert java.order("close") == "closed"
    with member(served) as another:
        assert [count for _, count in seen(take(another, 3))] == [1] * 3


def test_a_killed_java_members_leases_come_back_at_once(served: str, tmp_path: Path) -> None:
    publish(served, [b"x"] * 3)
    with java_member(served, tmp_path) as java:
        assert len(java.poll()) == 3
        java.kill()
        with member(served) as another:
            assert [count for _, count in seen(take(another, 3, 10))] == [2] * 3


def administer(bootstrap: str, *order: str) -> str:
    try:
        command = programs("4.3.0")
    except NoJava as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [*command, "ShareOffsets", bootstrap, GROUP, TOPIC, *order],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip() or done.stderr


def test_an_administrator_sees_moves_and_forgets_offsets(served: str) -> None:
    publish(served, [b"%d" % number for number in range(5)])
    with member(served) as consumer:
        assert len(take(consumer, 5)) == 5
        assert administer(served, "describe") == "Stable 1"
        assert "GroupNotEmptyException" in administer(served, "alter", "3")
    assert administer(served, "describe") == "Empty 0"
    assert administer(served, "offsets") == "5 lag 0"
    assert administer(served, "alter", "3") == "ok"
    assert administer(served, "offsets") == "3 lag 2"
    with member(served) as again:
        assert seen(take(again, 2)) == [(3, 1), (4, 1)]
    assert administer(served, "delete") == "ok"
    assert administer(served, "offsets") == "none"
