"""The node at a glance, over HTTP: what the survey says, searches, leases, reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from tests.doors.conftest import DoorsProcess, done, refused

from headrace.cli.main import cli


def publish(http: httpx.Client, topic: str, *messages: dict[str, Any]) -> None:
    done(http.post(f"/topics/{topic}/messages", json={"messages": list(messages)}))


def lease(http: httpx.Client, group: str, topic: str, count: int = 10) -> list[dict[str, Any]]:
    wanted = {"topics": [topic], "count": count, "consumer": "worker-1"}
    found: list[dict[str, Any]] = done(http.post(f"/queues/{group}/lease", json=wanted))["messages"]
    return found


def eventually(http: httpx.Client, ask: Callable[[], Any], holds: Callable[[Any], Any]) -> Any:
    """The first answer of which this is true. A look of the survey is a second old at
    most; between two answers a long poll on a topic without messages passes the time."""
    done(http.post("/topics", json={"name": "silent", "partitions": 1}), 201)
    try:
        for _ in range(300):
            answer = ask()
            if holds(answer):
                return answer
            done(http.get("/consume", params={"topic": "silent", "wait": 0.2}))
        raise AssertionError(answer)
    finally:
        http.delete("/topics/silent")


def test_a_topic_that_was_just_made_is_in_the_table(http: httpx.Client, name: str) -> None:
    done(http.post("/topics", json={"name": name, "partitions": 4}), 201)
    rows = done(http.get("/overview/topics", params={"match": name[3:].upper()}))
    assert rows["total"] == 1
    [row] = rows["topics"]
    assert (row["name"], row["partitions"], row["messages"]) == (name, 4, 0)
    glance = done(http.get("/overview"))
    assert glance["topics"] >= 1 and glance["partitions"] >= 4


def test_rows_are_sorted_and_paged(http: httpx.Client, name: str) -> None:
    for number in range(3):
        body = {"name": f"{name}-{number}", "partitions": number + 1}
        done(http.post("/topics", json=body), 201)
    rows = done(
        http.get(
            "/overview/topics",
            params={"match": name, "sort": "partitions", "descending": "true"},
        )
    )
    assert [row["partitions"] for row in rows["topics"]] == [3, 2, 1]
    second = done(http.get("/overview/topics", params={"match": name, "limit": 2, "page": 1}))
    assert (second["total"], len(second["topics"])) == (3, 1)
    refused(http.get("/overview/topics", params={"sort": "colour"}), 400, "invalid-argument")


def test_a_topic_in_numbers_has_a_page_of_its_partitions(http: httpx.Client, name: str) -> None:
    done(http.post("/topics", json={"name": name, "partitions": 7}), 201)
    publish(http, name, *({"value": each, "partition": 5} for each in range(3)))
    first = done(http.get(f"/topics/{name}/partitions", params={"limit": 4}))
    assert (first["partition_count"], first["next"]) == (7, 3)
    rest = done(http.get(f"/topics/{name}/partitions", params={"limit": 4, "after": 3}))
    assert [each["partition"] for each in rest["partitions"]] == [4, 5, 6]
    assert rest["partitions"][1]["high_watermark"] == 3
    assert rest["next"] is None
    refused(http.get("/topics/nowhere/partitions"), 404, "unknown-topic")


def test_messages_are_found_by_key_value_and_header_newest_first(
    http: httpx.Client, name: str
) -> None:
    done(http.post("/topics", json={"name": name, "partitions": 3}), 201)
    for number in range(30):
        message = {
            "key": f"k{number % 4}",
            "value": {"number": number, "city": "Lyon" if number % 5 == 0 else "Graz"},
            "headers": {"source": "web" if number % 2 else "shop"},
        }
        publish(http, name, message)
    path = f"/topics/{name}/search"

    def numbers(**wanted: Any) -> list[int]:
        found = done(http.get(path, params={"limit": 200, **wanted}))
        return [each["value"]["number"] for each in found["messages"]]

    assert sorted(numbers(), reverse=True) == list(range(29, -1, -1))
    assert set(numbers(value="Lyon")) == {0, 5, 10, 15, 20, 25}
    assert set(numbers(key="k3")) == {3, 7, 11, 15, 19, 23, 27}
    assert set(numbers(header="source=web", value="Lyon")) == {5, 15, 25}
    assert set(numbers(header="source")) == set(range(30))
    assert numbers(value="nothing has this") == []
    times = [each["timestamp"] for each in done(http.get(path))["messages"]]
    assert times == sorted(times, reverse=True)


def test_a_search_goes_on_where_the_page_before_ended(http: httpx.Client, name: str) -> None:
    done(http.post("/topics", json={"name": name, "partitions": 3}), 201)
    publish(http, name, *({"key": str(each), "value": each} for each in range(250)))
    for newest_first in ("true", "false"):
        seen: list[int] = []
        wanted: dict[str, str | int] = {"limit": 40, "newest_first": newest_first}
        while True:
            page = done(http.get(f"/topics/{name}/search", params=wanted))
            seen += [each["value"] for each in page["messages"]]
            if page["next"] is None:
                break
            wanted["after"] = page["next"]
        assert sorted(seen) == list(range(250))


def test_a_search_keeps_to_its_times_and_its_limits(http: httpx.Client, name: str) -> None:
    done(http.post("/topics", json={"name": name, "partitions": 65}), 201)
    publish(http, name, {"value": "early", "partition": 64})
    path = f"/topics/{name}/search"
    assert "name one of them" in refused(http.get(path), 400, "invalid-argument")
    [early] = done(http.get(path, params={"partition": 64}))["messages"]
    at = early["timestamp"]
    assert done(http.get(path, params={"partition": 64, "since": at}))["messages"] == [early]
    assert done(http.get(path, params={"partition": 64, "until": at}))["messages"] == [early]
    past: dict[str, str | int] = {"partition": 64, "until": "2001-01-01T00:00:00Z"}
    assert done(http.get(path, params=past)) == {"messages": [], "scanned": 0, "next": None}
    refused(http.get(path, params={"partition": 64, "after": "x"}), 400, "invalid-argument")


def test_leases_are_shown_extended_and_taken_away(http: httpx.Client, topic: str) -> None:
    publish(http, topic, *({"value": each} for each in range(3)))
    held = lease(http, topic, topic)
    shown = done(http.get(f"/queues/{topic}/leases"))
    assert shown["total"] == 3
    assert {each["consumer"] for each in shown["leases"]} == {"worker-1"}
    assert [each["id"] for each in shown["leases"]] == [each["id"] for each in held]
    assert "receipt" not in json.dumps(shown)

    path = f"/queues/{topic}/leases"
    ids = [held[0]["id"], f"{topic}:0:999"]
    longer = done(http.post(f"{path}/extend", json={"ids": ids, "visibility": 3600}))
    assert longer == {"changed": 1, "gone": [f"{topic}:0:999"]}
    last = done(http.get(path))["leases"][-1]
    assert last["id"] == held[0]["id"] and last["deadline"] > shown["leases"][-1]["deadline"]

    freed = done(http.post(f"{path}/release", json={"ids": [held[1]["id"]]}))
    assert freed == {"changed": 1, "gone": []}
    late = http.post("/messages/ack", json={"receipt": held[1]["receipt"]})
    refused(late, 410, "stale-receipt")
    [again] = lease(http, topic, topic)
    assert again["id"] == held[1]["id"]
    # It was given back, so this is no second attempt.
    assert again["attempt"] == 1
    refused(http.get("/queues/nowhere/leases"), 404, "unknown-group")


def test_dead_letters_are_grouped_by_why_they_failed(http: httpx.Client, topic: str) -> None:
    publish(http, topic, *({"value": each} for each in range(5)))
    for number, each in enumerate(lease(http, topic, topic)):
        reason = "card declined" if number < 3 else "no such customer"
        body = {"receipt": each["receipt"], "reason": reason}
        done(http.post("/messages/reject", json=body))
    grouped = done(http.get(f"/topics/{topic}/dead-letters/reasons"))
    assert [(each["error"], each["count"]) for each in grouped["reasons"]] == [
        ("card declined", 3),
        ("no such customer", 2),
    ]
    assert (grouped["counted"], grouped["more"]) == (5, False)
    assert len(grouped["reasons"][0]["samples"]) == 3
    counts = eventually(
        http,
        lambda: done(http.get("/dead-letters"))["topics"],
        lambda found: {"topic": topic, "count": 5} in found,
    )
    assert counts
    words = done(http.get("/overview"))["attention"]
    assert any(each["kind"] == "letters" and each["name"] == topic for each in words)


def test_the_dashboard_and_top_agree_on_what_needs_attention(
    http: httpx.Client, doors: DoorsProcess, topic: str
) -> None:
    publish(http, topic, *({"value": each} for each in range(3)))
    for each in lease(http, topic, topic):
        done(http.post("/messages/reject", json={"receipt": each["receipt"]}))
    words = eventually(
        http,
        lambda: [
            each for each in done(http.get("/overview"))["attention"] if each["name"] == topic
        ],
        lambda found: found,
    )
    once = ["--server", doors.doors["kafka"], "top", "--once", "--every", "1ms", "--json"]
    answer = CliRunner().invoke(cli, once)
    assert answer.exit_code == 0, answer.output
    noted = [each for each in json.loads(answer.output)["attention"] if each["about"] == topic]
    assert [(each["code"], each["level"], each["text"]) for each in words] == [
        ("dead-letters", "warning", "3 dead letters")
    ]
    assert [(each["level"], each["what"]) for each in noted] == [("warn", "3 dead letters")]


def test_an_open_transaction_is_listed_and_aborted(
    http: httpx.Client, doors: DoorsProcess, topic: str
) -> None:
    id = f"{topic}/with a slash"
    producer = Producer({"bootstrap.servers": doors.doors["kafka"], "transactional.id": id})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"not yet")
    producer.flush()
    [found] = [each for each in done(http.get("/transactions"))["transactions"] if each["id"] == id]
    assert found["is_open"] and found["state"] == "Ongoing"
    assert found["partitions"] == [{"topic": topic, "partition": 0, "first_offset": 0}]
    assert done(http.get(f"/topics/{topic}/search"))["messages"] == []
    aborted = done(http.post("/transactions/abort", json={"id": id}))
    assert aborted["state"] in ("PrepareAbort", "CompleteAbort")
    ended = done(http.get("/transactions", params={"all": "true"}))["transactions"]
    assert any(each["id"] == id and not each["is_open"] for each in ended)
    refused(http.post("/transactions/abort", json={"id": "nobody"}), 404, "unknown-transaction")


def test_members_of_a_group_are_shown_whichever_door_they_came_by(
    http: httpx.Client, doors: DoorsProcess, name: str
) -> None:
    done(http.post("/topics", json={"name": name, "partitions": 2}), 201)
    body = {"group": f"{name}-http", "topics": [name]}
    member = done(http.post("/subscribe", json=body))
    [shown] = done(http.get(f"/groups/{name}-http/members"))["members"]
    assert shown["id"] == member["member_id"]
    assert shown["assigned"] == [f"{name}:0", f"{name}:1"]

    consumer = Consumer(
        {
            "bootstrap.servers": doors.doors["kafka"],
            "group.id": f"{name}-kafka",
            "client.id": "report",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        publish(http, name, {"value": 1, "partition": 0})
        consumer.subscribe([name])
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        consumer.commit(message=message, asynchronous=False)
        [shown] = done(http.get(f"/groups/{name}-kafka/members"))["members"]
        assert shown["client_id"] == "report"
        assert shown["assigned"] == [f"{name}:0", f"{name}:1"]
    finally:
        consumer.close()


def test_a_group_with_members_is_listed_and_left_alone_before_it_commits_anything(
    http: httpx.Client, doors: DoorsProcess, topic: str
) -> None:
    # Kafka's groups are called whatever their clients like.
    group = f"team/{topic} reader"
    quoted = quote(group, safe="")
    consumer = Consumer(
        {
            "bootstrap.servers": doors.doors["kafka"],
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        publish(http, topic, {"value": 1})
        consumer.subscribe([topic])
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        shown = done(http.get(f"/groups/{quoted}"))
        assert (shown["kind"], shown["topics"]) == ("stream", [topic])
        assert len(shown["consumers"]) == 1
        assert done(http.get(f"/dashboard/api/groups/{quoted}")) == shown
        assert group in {each["name"] for each in done(http.get("/groups?limit=1000"))["groups"]}
        assert done(http.get(f"/groups/{quoted}/lag"))["lag"] == 0
        [row] = eventually(
            http,
            lambda: done(http.get("/overview/groups", params={"match": group}))["groups"],
            lambda rows: rows,
        )
        assert (row["members"], row["topics"]) == (1, [topic])
        # Its members would go on where they are, and their next commit undo it.
        wanted = {"topic": topic, "to": "latest"}
        refused(http.post(f"/groups/{quoted}/reset", json=wanted), 409, "group-in-use")
        refused(http.delete(f"/groups/{quoted}"), 409, "group-in-use")
        moved = CliRunner().invoke(
            cli,
            ["--server", doors.doors["kafka"], "group", "reset", group, "--topic", topic,
             "--to", "latest", "--yes"],
        )  # fmt: skip
        assert moved.exit_code == 1 and "let them leave" in moved.output
    finally:
        consumer.close()
    refused(http.get(f"/groups/{quoted}"), 404, "unknown-group")


def test_the_node_says_how_it_is_set_up(http: httpx.Client, doors: DoorsProcess) -> None:
    facts = done(http.get("/node"))
    assert facts["settings"]["data"] == str(doors.data)
    assert facts["settings"]["dashboard"] == "read-only"
    assert facts["limits"]["partitions_per_topic_max"] == 10_000
    assert facts["uptime_seconds"] >= 0 and facts["memory_bytes"] > 0


def test_samples_of_the_last_minutes_come_in_order(http: httpx.Client, topic: str) -> None:
    publish(http, topic, *({"value": each} for each in range(50)))
    samples = eventually(
        http, lambda: done(http.get("/node/live"))["samples"], lambda found: len(found) >= 2
    )
    times = [each["time"] for each in samples]
    assert times == sorted(times)
    later = done(http.get("/node/live", params={"after": times[-1]}))["samples"]
    assert all(each["time"] > times[-1] for each in later)


def test_progress_of_spark_is_told_from_other_groups(
    http: httpx.Client, doors: DoorsProcess, topic: str
) -> None:
    from headrace.client.kafka.cluster import KafkaCluster
    from headrace.client.kafka.offsets import commit_offsets
    from headrace.core.values import SPARK_PROGRESS, note_spark_rows

    publish(http, topic, *({"value": each} for each in range(10)))
    with KafkaCluster((doors.doors["kafka"],), timeout_ms=30_000) as cluster:
        commit_offsets(cluster, f"{topic}-rollup", {(topic, 0): 4}, metadata=SPARK_PROGRESS)
        commit_offsets(cluster, f"{topic}-other", {(topic, 0): 4})
        note = note_spark_rows(30)
        commit_offsets(cluster, f"__spark.{topic}-sink.0", {(topic, 0): 8}, metadata=note)
        commit_offsets(cluster, f"__spark.{topic}-sink.1", {(topic, 0): 7})

    def ours(found: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        return (
            [each for each in found["sources"] if each["name"].startswith(topic)],
            [each for each in found["sinks"] if each["name"].startswith(topic)],
        )

    found = eventually(
        http,
        lambda: done(http.get("/pipelines")),
        lambda found: ours(found)[0] and ours(found)[0][0]["lag"] == 6,
    )
    [source], [sink] = ours(found)
    assert (source["name"], source["read"], source["topics"]) == (f"{topic}-rollup", 4, [topic])
    assert (sink["tasks"], sink["batch"], sink["topics"]) == (2, 7, [topic])
    assert sink["rows"] == 30
    names = [each["name"] for each in done(http.get("/overview/groups"))["groups"]]
    assert not any(each.startswith("__spark.") for each in names)
