"""Leasing and settling over HTTP, dead letters and statistics."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
from tests.doors.conftest import DoorsProcess, done, refused

from headrace.core import limits


def publish(http: httpx.Client, topic: str, *values: Any, **attributes: Any) -> None:
    body = {"messages": [{"value": value, **attributes} for value in values]}
    done(http.post(f"/topics/{topic}/messages", json=body))


def lease(http: httpx.Client, topic: str, **options: Any) -> list[dict[str, Any]]:
    body = {"topics": [topic], **options}
    leased = done(http.post(f"/queues/{topic}-workers/lease", json=body))
    messages: list[dict[str, Any]] = leased["messages"]
    return messages


def settle(http: httpx.Client, act: str, messages: list[dict[str, Any]], **more: Any) -> list[bool]:
    receipts = [message["receipt"] for message in messages]
    results = done(http.post(f"/messages/{act}", json={"receipts": receipts, **more}))["results"]
    return [result["ok"] for result in results]


def test_leased_acked_and_gone(http: httpx.Client, topic: str) -> None:
    publish(http, topic, "a", {"b": 1})
    messages = lease(http, topic)
    assert [message["value"] for message in messages] == ["a", {"b": 1}]
    assert [message["attempt"] for message in messages] == [1, 1]
    assert settle(http, "ack", messages) == [True, True]
    assert lease(http, topic) == []
    read = done(http.get(f"/topics/{topic}/messages", params={"group": f"{topic}-workers"}))
    assert [(each["state"], each["attempts"]) for each in read["messages"]] == [("acked", 1)] * 2


def test_a_single_receipt_answers_with_a_status(http: httpx.Client, topic: str) -> None:
    publish(http, topic, 1)
    [message] = lease(http, topic)
    receipt = message["receipt"]
    assert done(http.post("/messages/ack", json={"receipt": receipt}))["ok"] is True
    refused(http.post("/messages/ack", json={"receipt": receipt}), 410, "stale-receipt")
    refused(http.post("/messages/ack", json={"receipt": "AAAA"}), 400, "invalid-receipt")
    refused(http.post("/messages/ack", json={}), 400, "invalid-argument")


def test_a_receipt_of_another_group_is_refused(http: httpx.Client, topic: str) -> None:
    publish(http, topic, 1)
    [message] = lease(http, topic)
    body = {"receipt": message["receipt"], "group": "others"}
    answer = http.post("/messages/ack", json=body)
    assert "not of 'others'" in refused(answer, 400, "invalid-receipt")


def test_each_of_many_receipts_has_its_own_result(http: httpx.Client, topic: str) -> None:
    publish(http, topic, 1, 2)
    first, second = lease(http, topic)
    assert settle(http, "ack", [first]) == [True]
    body = {"receipts": [first["receipt"], "nonsense", second["receipt"]]}
    results = done(http.post("/messages/ack", json=body))["results"]
    assert [result["ok"] for result in results] == [False, False, True]
    assert [result.get("code") for result in results] == ["stale-receipt", "invalid-receipt", None]


def test_an_expired_lease_is_over(http: httpx.Client, topic: str) -> None:
    publish(http, topic, 1)
    [message] = lease(http, topic, visibility=0.05)
    [again] = lease(http, topic, wait=30)
    assert again["attempt"] == 2
    refused(http.post("/messages/ack", json={"receipt": message["receipt"]}), 410, "stale-receipt")


def test_more_time_keeps_a_message(http: httpx.Client, topic: str) -> None:
    publish(http, topic, 1)
    messages = lease(http, topic, visibility=5)
    assert settle(http, "visibility", messages, visibility=3600) == [True]
    assert settle(http, "release", messages) == [True]
    [again] = lease(http, topic)
    assert again["attempt"] == 1


def test_a_nack_says_why_and_when(http: httpx.Client, topic: str) -> None:
    publish(http, topic, 1)
    assert settle(http, "nack", lease(http, topic), delay=0, error="no bank") == [True]
    [again] = lease(http, topic, wait=30)
    assert (again["attempt"], again["error"]) == (2, "no bank")


def test_dead_letters_are_listed_shown_redriven_and_purged(http: httpx.Client, topic: str) -> None:
    publish(http, topic, *range(4))
    assert settle(http, "reject", lease(http, topic), reason="bad order") == [True] * 4
    path = f"/topics/{topic}/dead-letters"
    page = done(http.get(path, params={"limit": 3}))
    rest = done(http.get(path, params={"limit": 3, "after": page["next"]}))
    letters = page["messages"] + rest["messages"]
    assert [letter["value"] for letter in letters] == [0, 1, 2, 3]
    assert {letter["error"] for letter in letters} == {"bad order"}
    assert done(http.get(f"{path}/0/0"))["source"] == f"{topic}:0:0"
    # An empty body chooses nothing, and so must not choose everything.
    refused(http.post(f"{path}/purge", json={}), 400, "invalid-argument")
    dry = done(http.post(f"{path}/redrive", json={"ids": [letters[0]["id"]], "dry_run": True}))
    assert dry["matched"] == 1
    assert lease(http, topic) == []
    assert done(http.post(f"{path}/redrive", json={"ids": [letters[0]["id"]]}))["redriven"] == 1
    assert [message["value"] for message in lease(http, topic, wait=30)] == [0]
    assert done(http.post(f"{path}/purge", json={"reason": "nothing like it"}))["purged"] == 0
    assert done(http.post(f"{path}/purge", json={"all": True}))["purged"] == 3
    assert done(http.get(path))["messages"] == []


@pytest.mark.parametrize("act", ["redrive", "purge"])
def test_one_request_names_so_many_dead_letters(http: httpx.Client, topic: str, act: str) -> None:
    ids = [f"{topic}.dlq:0:0"] * (limits.LISTED_ITEMS_MAX + 1)
    answer = http.post(f"/topics/{topic}/dead-letters/{act}", json={"ids": ids})
    assert "10000" in refused(answer, 400, "invalid-argument")


def test_priorities_are_served_in_order_and_counted(http: httpx.Client, topic: str) -> None:
    publish(http, topic, "later", priority="background")
    publish(http, topic, "first", priority="critical")
    assert [each["value"] for each in lease(http, topic, count=1)] == ["first"]
    group = f"{topic}-workers"
    [lanes] = done(http.get("/priority/stats", params={"group": group}))["groups"]
    by_name = {lane["priority"]: lane for lane in lanes["lanes"]}
    assert by_name["critical"]["leased"] == 1
    assert by_name["background"]["ready"] == 1
    # By partition too, with the same fields.
    [part] = lanes["partitions"]
    assert (part["topic"], part["partition"]) == (topic, 0)
    assert {lane["priority"]: lane["ready"] for lane in part["lanes"]} == {
        name: lane["ready"] for name, lane in by_name.items()
    }
    served = {lane["priority"]: lane["last_served"] for lane in part["lanes"]}
    assert served["critical"] is not None and served["background"] is None
    assert set(part["lanes"][0]) == set(by_name["critical"])
    [reliability] = done(http.get("/reliability/stats", params={"group": group}))["groups"]
    assert (reliability["depth"], reliability["delivered"], reliability["leased"]) == (2, 1, 1)
    waited = reliability["publish_to_lease"]
    assert waited["count"] == 1
    assert 0 <= waited["p50_ms"] <= waited["p95_ms"] <= waited["p99_ms"]
    nothing = {"count": 0, "p50_ms": None, "p95_ms": None, "p99_ms": None}
    assert reliability["publish_to_ack"] == nothing
    # The end of the lease is no message that comes due.
    nothing_due = {"group": group, "delayed": 0, "retrying": 0, "next_due": None}
    assert done(http.get("/delay/stats", params={"group": group}))["groups"] == [nothing_due]
    publish(http, topic, "tomorrow", delay=86_400)
    [delay] = done(http.get("/delay/stats", params={"group": group}))["groups"]
    assert delay["delayed"] == 1
    assert group in {each["group"] for each in done(http.get("/delay/stats"))["groups"]}
    [waiting] = done(http.get(f"/topics/{topic}/delayed"))["messages"]
    assert delay["next_due"] == waiting["deliver_at"]
    done(http.delete(f"/topics/{topic}/delayed/{waiting['partition']}/{waiting['offset']}"))
    ended = {"topic": topic, "delivered": 0, "cancelled": 1, "expired": 0}
    delay = done(http.get("/delay/stats", params={"group": group}))
    assert (delay["groups"], delay["topics"]) == ([nothing_due], [ended])
    assert ended in done(http.get("/delay/stats"))["topics"]


def test_a_lease_waits_for_what_comes(http: httpx.Client, doors: DoorsProcess, topic: str) -> None:
    answers: list[list[dict[str, Any]]] = []

    def wait() -> None:
        with httpx.Client(base_url=doors.http, timeout=60) as other:
            answers.append(lease(other, topic, wait=30))

    waiter = threading.Thread(target=wait)
    waiter.start()
    publish(http, topic, "at last")
    waiter.join(60)
    assert [message["value"] for message in answers[0]] == ["at last"]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"topics": []}, "name at least one topic"),
        ({"topics": ["x"], "count": 0}, "`$.count`"),
        ({"topics": ["x"], "wait": 31}, "`$.wait`"),
        ({"topics": ["x"], "settings": {"max_attemps": 1}}, "unknown setting"),
        ({}, "missing required field `topics`"),
    ],
)
def test_a_wrong_lease_is_refused(http: httpx.Client, name: str, body: Any, detail: str) -> None:
    answer = http.post(f"/queues/{name}/lease", json=body)
    assert detail in refused(answer, 400, "invalid-argument")


def test_a_lease_is_cut_by_its_size_and_the_rest_is_for_the_next(
    http: httpx.Client, topic: str
) -> None:
    publish(http, topic, *("x" * 100_000 for _ in range(30)))
    sizes = []
    while messages := lease(http, topic, count=100):
        sizes.append(len(messages))
        assert settle(http, "ack", messages) == [True] * len(messages)
    assert sum(sizes) == 30
    assert max(sizes) <= 12
    publish(http, topic, "x" * 900_000)
    assert len(lease(http, topic, count=100)) == 1
