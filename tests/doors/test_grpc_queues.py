"""Queues over gRPC: leases that are settled, streamed by credit, and never lost."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.doors.conftest import DoorsProcess
from tests.doors.grpc_client import SECONDS, GrpcClient, refused

from headrace.wire.grpc.generated import headrace_pb2 as pb

NO_BACKOFF = {"backoff_ms": "0"}


@pytest.fixture
def client(doors: DoorsProcess) -> Iterator[GrpcClient]:
    made = GrpcClient(doors.doors["grpc"])
    yield made
    made.close()


class Conversation:
    """A stream of leases whose requests are sent when the test says so."""

    def __init__(self, client: GrpcClient, **opening: Any) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.send(open=pb.ConsumeOpen(**opening))
        self.call = client.queues.Consume(iter(self._requests.get, None), timeout=SECONDS)

    def send(self, **request: Any) -> None:
        self._requests.put(pb.ConsumeRequest(**request))

    def next(self) -> Any:
        return next(self.call)

    def deliveries(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += self.next().deliveries.messages
        assert len(found) == count
        return found

    def end(self) -> None:
        self._requests.put(None)

    def is_over(self) -> bool:
        """After its last answer, which has no messages."""
        return [len(each.deliveries.messages) for each in self.call] == [0]


def test_a_leased_message_is_acked_once(client: GrpcClient, topic: str) -> None:
    client.publish(topic, b"one", key=b"k", headers=[pb.Header(name="h", value=b"v")])
    [message] = client.lease(topic, "g-" + topic, visibility_ms=60_000)
    assert (message.value, message.key, message.attempt) == (b"one", b"k", 1)
    assert message.headers[0] == pb.Header(name="h", value=b"v")
    assert message.id == pb.MessageId(topic=topic, partition=0, offset=0)
    first = client.queues.Ack(pb.AckRequest(receipts=[message.receipt]))
    assert [each.ok for each in first.results] == [True]
    status = client.queues.Status(pb.StatusRequest(id=message.id, group="g-" + topic))
    assert status.state == "acked"
    found = client.queues.Statistics(pb.StatisticsRequest(group="g-" + topic))
    assert (found.acked, found.depth, found.partitions[0].topic) == (1, 0, topic)
    assert [each.lane for each in found.lanes][:2] == ["critical", "high"]
    assert (found.publish_to_lease.count, found.publish_to_ack.count) == (1, 1)
    assert 0 <= found.publish_to_lease.p50_ms <= found.publish_to_ack.p99_ms


def test_a_message_has_its_priority_and_lanes_are_shown_by_partition(
    client: GrpcClient, topic: str
) -> None:
    group = "g-" + topic
    client.publish(topic, b"plain")
    client.publish(topic, b"urgent", priority="high")
    first, second = client.lease(topic, group, count=2)
    assert [(each.value, each.priority) for each in (first, second)] == [
        (b"urgent", "high"), (b"plain", "normal"),
    ]  # fmt: skip
    client.queues.Ack(pb.AckRequest(receipts=[second.receipt]))
    found = client.queues.Statistics(pb.StatisticsRequest(group=group))
    [part] = found.partitions
    by_name = {lane.lane: lane for lane in part.lanes}
    assert (by_name["high"].leased, by_name["normal"].leased) == (1, 0)
    assert (by_name["high"].delivered, by_name["normal"].delivered) == (1, 1)
    assert by_name["high"].last_served_ms == by_name["normal"].last_served_ms > 0
    assert not by_name["low"].HasField("last_served_ms")
    assert sum(lane.rate_out for lane in part.lanes) == pytest.approx(part.rate_out)


def test_messages_are_nacked_released_extended_and_rejected(client: GrpcClient, topic: str) -> None:
    group = "g-" + topic
    client.publish(topic, b"one")
    [message] = client.lease(topic, group, settings=NO_BACKOFF)
    nack = pb.NackRequest(receipts=[message.receipt], error="broken", delay_ms=0)
    assert client.queues.Nack(nack).results[0].ok
    [message] = client.lease(topic, group)
    assert (message.attempt, message.error) == (2, "broken")
    assert client.queues.Release(pb.ReleaseRequest(receipts=[message.receipt])).results[0].ok
    [message] = client.lease(topic, group)
    extend = pb.ExtendRequest(receipts=[message.receipt], visibility_ms=120_000)
    assert client.queues.Extend(extend).results[0].ok
    reject = pb.RejectRequest(receipts=[message.receipt], reason="never", group=group)
    assert client.queues.Reject(reject).results[0].ok
    listing = client.letters.ListDead(pb.ListDeadRequest(topic=topic, group=group))
    [letter] = listing.letters
    assert (letter.value, letter.source.offset) == (b"one", 0)
    assert client.letters.ShowDead(pb.ShowDeadRequest(id=letter.id)) == letter
    dry = client.letters.Redrive(pb.RedriveRequest(topic=topic, ids=[letter.id], dry_run=True))
    assert (dry.matched, dry.redriven) == (1, 1)
    assert client.letters.Redrive(pb.RedriveRequest(topic=topic, ids=[letter.id])).redriven == 1
    [message] = client.lease(topic, group, wait_ms=20_000)
    client.queues.Reject(pb.RejectRequest(receipts=[message.receipt]))
    [letter] = client.letters.ListDead(pb.ListDeadRequest(topic=topic)).letters
    assert client.letters.Purge(pb.PurgeRequest(topic=topic, ids=[letter.id])).purged == 1


def test_each_receipt_has_a_result_of_its_own(client: GrpcClient, topic: str) -> None:
    client.publish(topic, b"one")
    [message] = client.lease(topic, "g-" + topic)
    tokens = [message.receipt, "nonsense", message.receipt]
    answer = client.queues.Ack(pb.AckRequest(receipts=tokens[:2]))
    assert [(each.ok, each.code) for each in answer.results] == [
        (True, ""),
        (False, "invalid-receipt"),
    ]
    other = client.queues.Ack(pb.AckRequest(receipts=tokens[2:], group="another"))
    assert other.results[0].code == "invalid-receipt"
    assert "another" in other.results[0].detail


def test_a_lease_waits_until_a_message_comes(client: GrpcClient, topic: str) -> None:
    client.lease(topic, "g-" + topic)
    wanted = pb.LeaseRequest(topics=[topic], group="g-" + topic, wait_ms=20_000)
    waiting = client.queues.Lease.future(wanted, timeout=SECONDS)
    client.publish(topic, b"late")
    assert [each.value for each in waiting.result().messages] == [b"late"]


def test_a_lease_cancelled_while_it_waits_takes_nothing(client: GrpcClient, topic: str) -> None:
    group = "g-" + topic
    client.lease(topic, group)
    wanted = pb.LeaseRequest(topics=[topic], group=group, wait_ms=20_000, visibility_ms=600_000)
    waiting = client.queues.Lease.future(wanted)
    waiting.cancel()
    client.publish(topic, b"one")
    assert len(client.lease(topic, group, wait_ms=20_000)) == 1


def test_a_deadline_ends_a_lease_that_waits(client: GrpcClient, topic: str) -> None:
    group = "g-" + topic
    wanted = pb.LeaseRequest(topics=[topic], group=group, wait_ms=20_000)
    with pytest.raises(grpc.RpcError) as caught:
        client.queues.Lease(wanted, timeout=0.2)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    client.publish(topic, b"one")
    assert len(client.lease(topic, group, wait_ms=20_000)) == 1


def test_a_stream_delivers_as_far_as_there_is_credit(client: GrpcClient, topic: str) -> None:
    client.publish(topic, *(b"%d" % number for number in range(5)))
    stream = Conversation(client, group="g-" + topic, topics=[topic], credit=2)
    assert stream.next().opened.consumer.startswith("grpc-")
    first = stream.deliveries(2)
    assert [each.value for each in first] == [b"0", b"1"]
    # Had there been more on their way, they would have come before this answer.
    stream.send(id=7, ack=pb.AckRequest(receipts=[each.receipt for each in first]))
    settled = stream.next()
    assert (settled.id, [each.ok for each in settled.settled.results]) == (7, [True, True])
    stream.send(credit=3)
    assert [each.value for each in stream.deliveries(3)] == [b"2", b"3", b"4"]
    stream.end()
    assert stream.is_over()


@pytest.mark.parametrize("how", ["cancelled", "cut"])
def test_what_a_broken_stream_held_comes_back(
    client: GrpcClient, doors: DoorsProcess, topic: str, how: str
) -> None:
    client.publish(topic, b"one", b"two")
    other = GrpcClient(doors.doors["grpc"])
    stream = Conversation(
        other, group="g-" + topic, topics=[topic], credit=2, visibility_ms=3_600_000,
        settings=NO_BACKOFF, consumer="worker",
    )  # fmt: skip
    stream.next()
    held = stream.deliveries(2)
    stream.send(id=1, ack=pb.AckRequest(receipts=[held[0].receipt]))
    stream.next()
    if how == "cancelled":
        stream.call.cancel()
    other.close()
    [again] = client.lease(topic, "g-" + topic, wait_ms=20_000, count=10)
    # Whoever is gone without a word may be gone because of what it was given.
    assert (again.value, again.attempt) == (b"two", 2)
    stream.end()


def test_what_an_ended_stream_held_goes_back_at_no_attempt(client: GrpcClient, topic: str) -> None:
    client.publish(topic, b"one")
    stream = Conversation(client, group="g-" + topic, topics=[topic], credit=1)
    stream.next()
    assert len(stream.deliveries(1)) == 1
    stream.end()
    assert stream.is_over()
    [again] = client.lease(topic, "g-" + topic, wait_ms=20_000)
    assert again.attempt == 1


def test_who_comes_with_the_id_of_an_open_stream_takes_over_what_it_has_in_hand(
    client: GrpcClient, topic: str
) -> None:
    client.publish(topic, *(b"%d" % number for number in range(3)))
    opening = {"group": "g-" + topic, "topics": [topic], "consumer": "worker", "credit": 3}
    first = Conversation(client, **opening)
    first.next()
    held = first.deliveries(3)
    in_hand = [each.receipt for each in held[:2]]
    second = Conversation(client, **opening, in_hand=in_hand)
    second.next()
    refused(first.next, grpc.StatusCode.FAILED_PRECONDITION, "group-in-use")
    # The last one it never got, as far as it knows.
    [again] = second.deliveries(1)
    assert (again.value, again.attempt) == (b"2", 1)
    second.send(id=7, ack=pb.AckRequest(receipts=in_hand))
    assert [each.ok for each in second.next().settled.results] == [True, True]
    for each in (first, second):
        each.end()


def test_a_stream_that_comes_back_is_told_which_of_its_leases_are_over(
    client: GrpcClient, topic: str
) -> None:
    client.publish(topic, *(b"%d" % number for number in range(2)))
    opening = {"group": "g-" + topic, "topics": [topic], "consumer": "worker", "credit": 2}
    first = Conversation(client, **opening)
    assert list(first.next().opened.lost) == []
    receipts = [each.receipt for each in first.deliveries(2)]
    first.send(id=1, ack=pb.AckRequest(receipts=receipts[:1]))
    first.next()
    second = Conversation(client, **opening, in_hand=receipts)
    assert list(second.next().opened.lost) == receipts[:1]
    for each in (first, second):
        each.end()


def test_a_stream_says_what_is_wrong_with_its_requests(client: GrpcClient, topic: str) -> None:
    bad = grpc.StatusCode.INVALID_ARGUMENT
    unopened = client.queues.Consume(iter([pb.ConsumeRequest(credit=1)]))
    assert "open" in refused(lambda: next(unopened), bad, "invalid-argument")
    greedy = Conversation(client, group="g-" + topic, topics=[topic], credit=1_000_000)
    assert "credit" in refused(greedy.next, bad, "invalid-argument")
    greedy.end()
    twice = Conversation(client, group="g-" + topic, topics=[topic], credit=1)
    twice.next()
    twice.send(open=pb.ConsumeOpen(group="g-" + topic, topics=[topic]))
    assert "once" in refused(twice.next, bad, "invalid-argument")
    twice.end()
