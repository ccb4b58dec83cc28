"""Traces over HTTP."""

from __future__ import annotations

import httpx
import pytest
from tests.doors.conftest import done

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def failed(http: httpx.Client, topic: str) -> str:
    """A receipt of a message that was nacked once and then rejected."""
    message = {"value": 1, "key": "k", "headers": {"traceparent": TRACEPARENT}}
    done(http.post(f"/topics/{topic}/messages", json=message))
    lease = {"topics": [topic], "consumer": "worker", "count": 1}
    lease["settings"] = {"backoff_ms": 0}
    [leased] = done(http.post(f"/queues/{topic}/lease", json=lease))["messages"]
    done(http.post("/messages/nack", json={"receipt": leased["receipt"], "error": "busy"}))
    lease["wait"] = 10
    [again] = done(http.post(f"/queues/{topic}/lease", json=lease))["messages"]
    done(http.post("/messages/reject", json={"receipt": again["receipt"], "reason": "bad"}))
    return str(again["receipt"])


def test_a_trace_tells_what_happened_and_where_the_message_is_now(
    http: httpx.Client, topic: str, failed: str
) -> None:
    trace = done(http.get(f"/trace/{topic}:0:0"))
    told = [(each["event"], each.get("error")) for each in trace["events"]]
    assert told == [
        ("published", None),
        ("leased", None),
        ("nacked", "busy"),
        ("leased", None),
        ("dead-lettered", "bad"),
    ]
    assert [each.get("attempt") for each in trace["events"] if each["event"] == "leased"] == [1, 2]
    assert trace["groups"] == [
        {"group": topic, "kind": "queue", "state": "dead-lettered", "attempts": 2}
    ]
    assert trace["traceparent"] == TRACEPARENT
    assert trace["links"] == [{"relation": "dead-letter", "id": f"{topic}.dlq:0:0"}]
    assert done(http.get(f"/trace/{failed}")) == trace


def test_a_search_finds_by_key_header_group_outcome_and_time(
    http: httpx.Client, topic: str, failed: str
) -> None:
    def ids(**query: str) -> list[str]:
        page = done(http.get("/trace", params={"topic": topic, **query}))
        assert page["next"] is None
        return [each["id"] for each in page["traces"]]

    done(http.post(f"/topics/{topic}/messages", json={"value": 2, "key": "other"}))
    first, second = f"{topic}:0:0", f"{topic}:0:1"
    assert ids() == [first, second]
    assert ids(key="k") == [first]
    assert ids(header=f"traceparent={TRACEPARENT}") == [first]
    assert ids(header="traceparent") == [first]
    assert ids(group=topic, outcome="dead-lettered") == [first]
    assert ids(outcome="pending") == [second]
    nobody = http.get("/trace", params={"topic": topic, "group": "nobody"})
    assert (nobody.status_code, nobody.json()["code"]) == (404, "unknown-group")
    assert ids(since="2099-01-01T00:00:00Z") == []
    assert ids(until="2099-01-01T00:00:00Z") == [first, second]


def test_a_search_goes_on_where_a_page_ended(http: httpx.Client, topic: str) -> None:
    many = [{"value": number} for number in range(5)]
    done(http.post(f"/topics/{topic}/messages", json={"messages": many}))
    found, after = [], None
    while True:
        query = {"topic": topic, "limit": "2"} | ({} if after is None else {"after": after})
        page = done(http.get("/trace", params=query))
        found += [each["offset"] for each in page["traces"]]
        after = page["next"]
        if after is None:
            break
    assert found == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("what", ["nonsense", "a:b:c", "never-made:0:0"])
def test_what_is_nothing_is_refused(http: httpx.Client, what: str) -> None:
    assert http.get(f"/trace/{what}").status_code in (400, 404)
