"""Topics, stream groups and their members over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.doors.conftest import done, refused

from headrace.core import limits


def subscribe(http: httpx.Client, group: str, *topics: str) -> dict[str, Any]:
    body = {"group": group, "topics": list(topics), "client_id": "billing app"}
    answer: dict[str, Any] = done(http.post("/subscribe", json=body))
    return answer


def member_path(group: str, member: dict[str, Any]) -> str:
    return f"/groups/{group}/members/{member['member_id']}"


def test_a_topic_that_is_subscribed_to_twice_is_read_once(http: httpx.Client, topic: str) -> None:
    member = subscribe(http, topic, topic, topic)
    assert member["assignments"] == {topic: [0]}
    assert member["assigned_partitions"] == [0]
    changed = {"topics": [topic] * 3}
    again = done(http.put(f"{member_path(topic, member)}/topics", json=changed))
    assert again["assignments"] == {topic: [0]}


def test_a_subscription_names_so_many_topics(http: httpx.Client, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(limits.TOPICS_PER_CALL_MAX + 1)]
    member = subscribe(http, topic, topic)
    for answer in (
        http.post("/subscribe", json={"group": topic, "topics": names}),
        http.put(f"{member_path(topic, member)}/topics", json={"topics": names}),
    ):
        assert "1,001 topics in one call; at most 1,000" in refused(answer, 429, "limit-exceeded")


def test_a_topic_is_made_listed_changed_grown_and_deleted(http: httpx.Client, name: str) -> None:
    made = done(http.post("/topics", json={"name": name, "partitions": 2}), 201)
    assert len(made["partitions"]) == 2
    refused(http.post("/topics", json={"name": name}), 409, "topic-exists")
    refused(http.post("/topics", json={"name": "no spaces"}), 400, "invalid-name")
    changed = done(http.patch(f"/topics/{name}", json={"settings": {"retention_ms": 1000}}))
    assert changed["settings"]["retention_ms"] == 1000
    grown = done(http.patch(f"/topics/{name}", json={"partitions": 5}))
    assert len(grown["partitions"]) == 5
    refused(http.patch(f"/topics/{name}", json={"partitions": 2}), 400, "invalid-argument")
    refused(http.patch(f"/topics/{name}", json={}), 400, "invalid-argument")
    assert http.delete(f"/topics/{name}").status_code == 204
    refused(http.get(f"/topics/{name}"), 404, "unknown-topic")


def test_listings_are_paged(http: httpx.Client, name: str) -> None:
    names = [f"{name}-{number}" for number in range(5)]
    for each in names:
        done(http.post("/topics", json={"name": each}), 201)
    seen: list[str] = []
    after: str | None = None
    while True:
        parameters = {"limit": "2", **({"after": after} if after else {})}
        page = done(http.get("/topics", params=parameters))
        seen += [topic["name"] for topic in page["topics"]]
        after = page["next"]
        if after is None:
            break
    assert [each for each in seen if each in names] == names


def test_a_member_polls_commits_and_its_successor_goes_on(http: httpx.Client, topic: str) -> None:
    for number in range(4):
        done(http.post("/produce", json={"topic": topic, "value": number}))
    first = subscribe(http, topic, topic)
    assert first["assigned_partitions"] == [0]
    assert first["assignments"] == {topic: [0]}
    assert first["member_id"].startswith("billing-app-")
    path = member_path(topic, first)
    generation = {"generation": first["generation"]}
    polled = done(http.post(f"{path}/poll", json={**generation, "count": 2}))
    assert [message["value"] for message in polled["messages"]] == [0, 1]
    assert http.post(f"{path}/commit", json=generation).status_code == 204
    done(http.post(f"{path}/poll", json=generation))
    assert http.delete(path).status_code == 204
    refused(http.post(f"{path}/poll", json=generation), 404, "unknown-member")
    second = subscribe(http, topic, topic)
    again = done(
        http.post(f"{member_path(topic, second)}/poll", json={"generation": second["generation"]})
    )
    # What was polled and not committed is read again.
    assert [message["value"] for message in again["messages"]] == [2, 3]
    lag = done(http.get(f"/groups/{topic}/lag"))
    assert (lag["kind"], lag["lag"]) == ("stream", 2)


def test_members_share_by_range_and_an_old_generation_is_shut_out(
    http: httpx.Client, name: str
) -> None:
    done(http.post("/topics", json={"name": name, "partitions": 5}), 201)
    first = subscribe(http, name, name)
    second = subscribe(http, name, name)
    path = member_path(name, first)
    old = {"generation": first["generation"]}
    assert second["generation"] > first["generation"]
    for act in ("poll", "commit", "heartbeat"):
        assert "ask for the assignment" in refused(
            http.post(f"{path}/{act}", json=old), 409, "stale-generation"
        )
    renewed = done(http.get(path))
    shares = [renewed["assigned_partitions"], second["assigned_partitions"]]
    assert sorted(map(len, shares)) == [2, 3]
    assert sorted(shares[0] + shares[1]) == [0, 1, 2, 3, 4]
    assert all(share == list(range(share[0], share[0] + len(share))) for share in shares)
    assert http.delete(member_path(name, second)).status_code == 204
    assert done(http.get(path))["assigned_partitions"] == [0, 1, 2, 3, 4]


def test_a_member_reads_other_topics_when_it_says_so(
    http: httpx.Client, topic: str, name: str
) -> None:
    other = f"{name}-other"
    done(http.post("/topics", json={"name": other, "partitions": 2}), 201)
    member = subscribe(http, topic, topic)
    path = member_path(topic, member)
    changed = done(http.put(f"{path}/topics", json={"topics": [topic, other]}))
    assert changed["assignments"] == {topic: [0], other: [0, 1]}
    assert changed["assigned_partitions"] == []
    strange = {
        "generation": changed["generation"],
        "positions": [{"topic": "elsewhere", "partition": 0, "offset": 0}],
    }
    refused(http.post(f"{path}/commit", json=strange), 409, "stale-generation")


def test_a_group_is_moved_while_nobody_reads(http: httpx.Client, topic: str) -> None:
    for number in range(5):
        done(http.post("/produce", json={"topic": topic, "value": number}))
    move = f"/groups/{topic}/reset"
    assert done(http.post(move, json={"topic": topic, "to": "latest"}))["lag"] == 0
    assert done(http.post(move, json={"topic": topic, "to": "earliest"}))["lag"] == 5
    body = {"topic": topic, "partition": 0, "offset": 3}
    assert done(http.post(move, json=body))["lag"] == 2
    refused(http.post(move, json={"topic": topic}), 400, "invalid-argument")
    refused(http.post(move, json={"topic": topic, "offset": 1}), 400, "invalid-argument")
    subscribe(http, topic, topic)
    refused(http.post(move, json={"topic": topic, "to": "latest"}), 409, "group-in-use")


def test_groups_of_both_kinds_are_listed_and_deleted(http: httpx.Client, topic: str) -> None:
    done(http.post(f"/queues/{topic}-queue/lease", json={"topics": [topic]}))
    done(http.post(f"/groups/{topic}-stream/reset", json={"topic": topic, "to": "latest"}))
    groups = done(http.get("/groups", params={"limit": 1000}))["groups"]
    kinds = {each["name"]: each["kind"] for each in groups}
    assert kinds[f"{topic}-queue"] == "queue"
    assert kinds[f"{topic}-stream"] == "stream"
    assert done(http.get(f"/groups/{topic}-queue/lag"))["kind"] == "queue"
    body = {"group": f"{topic}-queue", "topics": [topic]}
    refused(http.post("/subscribe", json=body), 409, "group-kind-mismatch")
    for each in ("queue", "stream"):
        assert http.delete(f"/groups/{topic}-{each}").status_code == 204
        refused(http.get(f"/groups/{topic}-{each}"), 404, "unknown-group")


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_a_node_says_that_it_is_there(http: httpx.Client, path: str) -> None:
    assert done(http.get(path))["status"] in ("alive", "ready")


def test_the_document_and_its_page_need_nothing_from_elsewhere(http: httpx.Client) -> None:
    document = done(http.get("/openapi.json"))
    assert document["openapi"] == "3.1.0"
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text.replace("http://127.0.0.1", "")
    assert "https://" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    # Also where no script runs.
    for path in document["paths"]:
        assert path in page.text.replace("&#x27;", "'")


def test_settings_of_a_queue_group_are_changed_and_checked(http: httpx.Client, topic: str) -> None:
    done(http.post(f"/queues/{topic}-work/lease", json={"topics": [topic]}))
    where = f"/groups/{topic}-work"
    shown = done(http.patch(where, json={"settings": {"max_attempts": 9}}))
    assert shown["settings"]["max_attempts"] == 9
    assert done(http.get(where)) == shown
    refused(http.patch(where, json={"settings": {"max_attempts": -1}}), 400, "invalid-argument")
    refused(http.patch(where, json={"settings": {"attempts": 1}}), 400, "invalid-argument")
    refused(http.patch(where, json={"settings": {}}), 400, "invalid-argument")
    refused(http.patch(f"{where}s", json={"settings": {"order": "key"}}), 404, "unknown-group")
    done(http.post(f"/groups/{topic}-read/reset", json={"topic": topic, "to": "latest"}))
    wanted = {"settings": {"max_attempts": 9}}
    refused(http.patch(f"/groups/{topic}-read", json=wanted), 409, "group-kind-mismatch")


def test_of_a_group_with_many_partitions_those_furthest_behind_are_shown(
    http: httpx.Client, name: str
) -> None:
    done(http.post("/topics", json={"name": name, "partitions": 40}), 201)
    messages = [{"value": 1, "partition": each} for each in range(40) for _ in range(each % 7)]
    done(http.post(f"/topics/{name}/messages", json={"messages": messages}))
    wanted = {"topic": name, "to": "earliest"}
    whole = done(http.post(f"/groups/{name}-group/reset", json=wanted))
    assert len(whole["partitions"]) == whole["partition_count"] == 40
    shown = done(http.get(f"/groups/{name}-group/lag", params={"limit": 5}))
    assert [each["lag"] for each in shown["partitions"]] == [6] * 5
    assert (shown["lag"], shown["partition_count"]) == (len(messages), 40)
    assert shown["position"] == 0
