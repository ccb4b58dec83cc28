"""The queue and the tail over a WebSocket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
import pytest
from tests.doors.conftest import DoorsProcess, done
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headrace.core import limits

WAIT_SECONDS = 30


class Peer:
    """A client that speaks JSON or msgpack and expects one answer at a time."""

    def __init__(self, connection: ClientConnection, *, binary: bool = False) -> None:
        self.connection = connection
        self._binary = binary
        self.consumer: str = self.read()["consumer"]

    def send(self, **frame: Any) -> None:
        if self._binary:
            self.connection.send(msgspec.msgpack.encode(frame))
        else:
            self.connection.send(json.dumps(frame))

    def read(self) -> dict[str, Any]:
        received = self.connection.recv(timeout=WAIT_SECONDS)
        decoded = (
            json.loads(received) if isinstance(received, str) else msgspec.msgpack.decode(received)
        )
        assert isinstance(decoded, dict)
        return decoded

    def ask(self, **frame: Any) -> dict[str, Any]:
        self.send(**frame)
        return self.read()


@contextmanager
def peer(doors: DoorsProcess, consumer: str = "", *, binary: bool = False) -> Iterator[Peer]:
    query = f"?consumer={consumer}" if consumer else ""
    with connect(f"ws://{doors.doors['http']}/ws{query}") as connection:
        yield Peer(connection, binary=binary)


@pytest.mark.parametrize("binary", [False, True], ids=["json", "msgpack"])
def test_enqueued_dequeued_and_acked(doors: DoorsProcess, topic: str, binary: bool) -> None:
    values: list[Any] = [{"id": 7}, "text", None, 17]
    with peer(doors, binary=binary) as one:
        messages = [{"value": value, "key": "k"} for value in values]
        places = one.ask(op="enqueue", id=1, topic=topic, messages=messages)["messages"]
        assert [place["offset"] for place in places] == [0, 1, 2, 3]
        answer = one.ask(op="dequeue", id="q", topics=[topic], group="g-" + topic, credit=10)
        assert answer == {"op": "done", "id": "q"}
        frames = [one.read() for _ in values]
        assert {frame["subscription"] for frame in frames} == {"q"}
        assert [frame["message"]["value"] for frame in frames] == values
        receipts = [frame["message"]["receipt"] for frame in frames]
        results = one.ask(op="ack", id=3, receipts=receipts)["results"]
        assert [result["ok"] for result in results] == [True] * 4
        assert [r["ok"] for r in one.ask(op="ack", id=4, receipts=receipts)["results"]] == [
            False
        ] * 4


def test_bytes_stay_bytes_in_a_binary_frame(doors: DoorsProcess, topic: str) -> None:
    with peer(doors, binary=True) as one:
        one.ask(op="enqueue", id=1, topic=topic, messages=[{"value": b"\x00\xff"}])
        one.ask(op="tail", id=2, topic=topic, start="earliest")
        assert one.read()["message"]["value"] == b"\x00\xff"


def test_nothing_comes_beyond_the_credit(
    doors: DoorsProcess, http: httpx.Client, topic: str
) -> None:
    body = {"messages": [{"value": number} for number in range(10)]}
    done(http.post(f"/topics/{topic}/messages", json=body))
    with peer(doors) as one:
        one.ask(op="dequeue", id=1, topics=[topic], group=topic, credit=3)
        first = [one.read()["message"]["value"] for _ in range(3)]
        # An answer that comes next shows that no message was waiting before it.
        assert one.ask(op="ack", id=2, receipts=[])["op"] == "done"
        one.send(op="credit", subscription=1, credit=4)
        second = [one.read()["message"]["value"] for _ in range(4)]
        assert first + second == list(range(7))


@pytest.mark.parametrize("binary", [False, True], ids=["json", "msgpack"])
def test_only_what_publishes_may_be_as_large_as_messages_are(
    doors: DoorsProcess, topic: str, binary: bool
) -> None:
    large = "x" * limits.HTTP_REQUEST_BYTES_MAX
    with peer(doors, binary=binary) as one:
        for frame in (
            {"op": "dequeue", "topics": [topic, large], "group": topic},
            {"op": "commit", "subscription": 1, "positions": {large: 1}},
            {"op": "ack", "receipts": [large]},
        ):
            refused = one.ask(id=1, **frame)
            assert (refused["op"], refused["id"]) == ("error", 1)
            assert refused["code"] == "limit-exceeded"
            assert "bytes" in refused["detail"]
        messages = [{"value": large[:900_000]}] * 3
        assert one.ask(op="enqueue", id=2, topic=topic, messages=messages)["op"] == "done"


@pytest.mark.parametrize("binary", [False, True], ids=["json", "msgpack"])
def test_a_value_must_be_said_and_null_too(doors: DoorsProcess, topic: str, binary: bool) -> None:
    with peer(doors, binary=binary) as one:
        for number, message in enumerate(({}, {"key": "k"}, {"headers": {}})):
            messages = [{"value": 1}, message]
            refused = one.ask(op="enqueue", id=number, topic=topic, messages=messages)
            assert (refused["op"], refused["id"]) == ("error", number)
            assert refused["code"] == "invalid-argument"
            assert "value" in refused["detail"]
        # Nothing of those was published.
        [place] = one.ask(op="enqueue", id=9, topic=topic, messages=[{"value": None}])["messages"]
        assert place["offset"] == 0


def test_what_a_broken_connection_held_comes_back_after_the_grace_and_counts(
    doors: DoorsProcess, topic: str
) -> None:
    with peer(doors) as one, peer(doors) as other:
        one.ask(op="enqueue", id=1, topic=topic, messages=[{"value": 1}, {"value": 2}])
        one.ask(op="dequeue", id=2, topics=[topic], group=topic, credit=2, visibility=3600)
        held = [one.read()["message"] for _ in range(2)]
        one.ask(op="ack", id=3, receipts=[held[0]["receipt"]])
        other.ask(op="dequeue", id=1, topics=[topic], group=topic, credit=2)
        one.connection.socket.close()
        again = other.read()["message"]
        assert (again["value"], again["attempt"]) == (2, 2)


def test_what_a_closed_connection_held_is_delivered_again_at_no_attempt(
    doors: DoorsProcess, topic: str
) -> None:
    with peer(doors) as other:
        with peer(doors) as one:
            one.ask(op="enqueue", id=1, topic=topic, messages=[{"value": 1}])
            one.ask(op="dequeue", id=2, topics=[topic], group=topic, credit=1, visibility=3600)
            assert one.read()["message"]["attempt"] == 1
            other.ask(op="dequeue", id=1, topics=[topic], group=topic, credit=2)
        assert other.read()["message"]["attempt"] == 1


def test_who_comes_back_keeps_what_it_has_in_hand(doors: DoorsProcess, topic: str) -> None:
    with peer(doors) as one:
        one.ask(op="enqueue", id=1, topic=topic, messages=[{"value": n} for n in range(3)])
        one.ask(op="dequeue", id=2, topics=[topic], group=topic, credit=3, visibility=3600)
        held = [one.read()["message"] for _ in range(3)]
        one.connection.socket.close()
        with peer(doors, one.consumer) as back:
            # The last one it never got, as far as it knows.
            in_hand = [each["receipt"] for each in held[:2]]
            back.ask(op="dequeue", id=1, topics=[topic], group=topic, credit=3, in_hand=in_hand)
            again = back.read()["message"]
            assert (again["value"], again["attempt"]) == (2, 1)
            answer = back.ask(op="ack", id=2, receipts=in_hand)
            assert [each["ok"] for each in answer["results"]] == [True, True]
            wrong = back.ask(op="dequeue", id=3, topics=[topic], group=topic, in_hand=["x"])
            assert wrong["code"] == "invalid-receipt"


def test_who_comes_back_is_told_which_of_its_leases_are_over(
    doors: DoorsProcess, topic: str
) -> None:
    with peer(doors) as one:
        one.ask(op="enqueue", id=1, topic=topic, messages=[{"value": n} for n in range(3)])
        one.ask(op="dequeue", id=2, topics=[topic], group=topic, credit=3, visibility=3600)
        receipts = [one.read()["message"]["receipt"] for _ in range(3)]
        one.ask(op="ack", id=3, receipts=receipts[1:2])
        one.connection.socket.close()
        with peer(doors, one.consumer) as back:
            asked = {"op": "dequeue", "topics": [topic], "group": topic, "in_hand": receipts}
            assert back.ask(id=1, **asked)["lost"] == receipts[1:2]
            # It may ask again, and is told again.
            assert back.ask(id=2, **asked)["lost"] == receipts[1:2]
            assert "lost" not in back.ask(op="dequeue", id=3, topics=[topic], group=topic)


def test_who_comes_back_with_its_id_goes_on_after_its_last_ack(
    doors: DoorsProcess, http: httpx.Client, topic: str
) -> None:
    body = {"messages": [{"value": number} for number in range(4)]}
    done(http.post(f"/topics/{topic}/messages", json=body))
    with peer(doors) as one:
        consumer = one.consumer
        assert consumer.startswith("ws-")
        one.ask(op="tail", id="t", topic=topic, start="earliest")
        assert [one.read()["message"]["value"] for _ in range(4)] == [0, 1, 2, 3]
        assert one.ask(op="commit", id=2, subscription="t", positions={"0": 2})["op"] == "done"
    with peer(doors, consumer) as again:
        assert again.consumer == consumer
        again.ask(op="tail", id="t", topic=topic, start="earliest")
        assert [again.read()["message"]["value"] for _ in range(2)] == [2, 3]
        with peer(doors) as other:
            assert other.consumer != consumer


def test_who_comes_with_the_id_of_a_connection_that_is_open_takes_over(
    doors: DoorsProcess, topic: str
) -> None:
    with peer(doors) as one:
        one.ask(op="enqueue", id=1, topic=topic, messages=[{"value": 1}, {"value": 2}])
        one.ask(op="dequeue", id=2, topics=[topic], group=topic, credit=2, visibility=3600)
        held = [one.read()["message"] for _ in range(2)]
        one.ask(op="ack", id=3, receipts=[held[0]["receipt"]])
        with peer(doors, one.consumer) as second, peer(doors, one.consumer) as third:
            for gone in (one, second):
                with pytest.raises(ConnectionClosed, match="has come with this id"):
                    gone.read()
            third.ask(op="dequeue", id=2, topics=[topic], group=topic, credit=2)
            again = third.read()["message"]
            assert (again["value"], again["attempt"]) == (2, 1)
            assert third.ask(op="ack", id=3, receipts=[again["receipt"]])["results"][0]["ok"]


def test_json_that_msgpack_cannot_hold_comes_as_bytes(
    doors: DoorsProcess, http: httpx.Client, topic: str
) -> None:
    values = [b"123456789012345678901234567890", b'{"id":7}']
    for value in values:
        body = b'{"value":' + value + b"}"
        headers = {"content-type": "application/json"}
        done(http.post(f"/topics/{topic}/messages", content=body, headers=headers))
    with peer(doors, binary=True) as one:
        one.ask(op="tail", id=1, topic=topic, start="earliest")
        assert one.read()["message"]["value"] == values[0]
        assert one.read()["message"]["value"] == {"id": 7}


@pytest.mark.parametrize("value", [float("nan"), {"deep": [float("inf")]}], ids=str)
def test_a_number_that_json_does_not_have_is_refused(
    doors: DoorsProcess, topic: str, value: Any
) -> None:
    with peer(doors, binary=True) as one:
        answer = one.ask(op="enqueue", id=9, topic=topic, messages=[{"value": value}])
        assert (answer["id"], answer["code"]) == (9, "invalid-argument")
        assert "JSON has no number" in answer["detail"]


def test_every_way_to_settle(doors: DoorsProcess, topic: str) -> None:
    with peer(doors) as one:
        one.ask(op="enqueue", id=1, topic=topic, messages=[{"value": n} for n in range(4)])
        one.ask(op="dequeue", id=2, topics=[topic], group=topic, credit=4)
        receipts = [one.read()["message"]["receipt"] for _ in range(4)]
        for frame in (
            {"op": "nack", "receipts": [receipts[0]], "delay": 0, "error": "no"},
            {"op": "reject", "receipts": [receipts[1]], "reason": "bad"},
            {"op": "extend", "receipts": [receipts[2]], "visibility": 60},
            {"op": "release", "receipts": [receipts[3]]},
        ):
            assert one.ask(id=3, **frame)["results"][0]["ok"] is True
        one.send(op="credit", subscription=2, credit=2)
        again = sorted((one.read()["message"] for _ in range(2)), key=lambda each: each["offset"])
        assert [(each["value"], each["attempt"]) for each in again] == [(0, 2), (3, 1)]
        assert one.ask(op="stop", id=4, subscription=2)["op"] == "done"


@pytest.mark.parametrize(
    ("frame", "detail"),
    [
        ("{", "the frame is not what this takes"),
        ('{"op": "ack", "id": 1, "receipts": 7}', "`$.receipts`"),
        ('{"op": "fly", "id": 1}', "Invalid value 'fly'"),
        ('{"op": "ack", "id": 1}', "missing required field `receipts`"),
        ('{"op": "dequeue", "id": 1, "topics": [], "group": "g"}', "at least one topic"),
        ('{"op": "dequeue", "id": 1, "topics": ["x"], "group": "g", "credit": 0}', "`$.credit`"),
        ('{"op": "tail", "id": 1, "topic": "absent-topic"}', "absent-topic"),
        ('{"op": "stop", "id": 1, "subscription": 9}', "no subscription 9"),
        ('{"op": "commit", "id": 1, "subscription": 9, "positions": {}}', "no tail"),
    ],
)
def test_a_wrong_frame_is_answered_and_the_connection_lives_on(
    doors: DoorsProcess, topic: str, frame: str, detail: str
) -> None:
    with peer(doors) as one:
        one.connection.send(frame)
        answer = one.read()
        assert answer["op"] == "error"
        assert detail in answer["detail"]
        # Whoever waits for the answer to its request knows that this is it.
        assert answer["id"] == (1 if '"id"' in frame else None)
        assert one.ask(op="enqueue", id=2, topic=topic, messages=[{"value": 1}])["op"] == "done"


def test_a_page_of_another_origin_is_not_let_in(doors: DoorsProcess) -> None:
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        connect(
            f"ws://{doors.doors['http']}/ws", additional_headers={"origin": "http://evil.example"}
        )
