"""Publishing and reading over HTTP."""

from __future__ import annotations

import base64
import threading
from typing import Any

import httpx
import pytest
from tests.doors.conftest import DoorsProcess, done, refused

VALUES: list[Any] = [{"a": [1, 2.5, None, True]}, [1, 2], 17, 0.5, True, "text", "grün", None]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_json_that_was_produced_comes_back_as_json(
    http: httpx.Client, topic: str, value: Any
) -> None:
    place = done(http.post("/produce", json={"topic": topic, "key": "k", "value": value}))
    assert place == {"id": f"{topic}:0:0", "partition": 0, "offset": 0}
    read = done(http.get("/consume", params={"topic": topic}))
    assert read["next_offset"] == 1
    [message] = read["messages"]
    assert message["value"] == value
    assert message["key"] == "k"
    assert message["id"] == f"{topic}:0:0"
    assert "encoding" not in message


def test_bytes_go_in_and_out_as_base64(http: httpx.Client, topic: str) -> None:
    raw = bytes(range(256))
    text = base64.b64encode(raw).decode()
    body = {"topic": topic, "value": text, "encoding": "base64"}
    done(http.post("/produce", json=body))
    [message] = done(http.get("/consume", params={"topic": topic}))["messages"]
    assert (message["value"], message["encoding"]) == (text, "base64")


def test_a_raw_body_is_the_value_itself(http: httpx.Client, topic: str) -> None:
    answer = http.post(
        f"/topics/{topic}/messages",
        params={"key": "k", "priority": "high"},
        content=b"\x00\xff",
        headers={"content-type": "application/octet-stream"},
    )
    assert done(answer) == {"id": f"{topic}:0:0", "partition": 0, "offset": 0}
    path = f"/topics/{topic}/messages/0/0"
    raw = http.get(path, headers={"accept": "application/octet-stream"})
    assert raw.content == b"\x00\xff"
    shown = done(http.get(path))
    assert (shown["key"], shown["priority"], shown["encoding"]) == ("k", "high", "base64")


def test_a_value_must_be_said_and_null_too(http: httpx.Client, topic: str) -> None:
    messages = f"/topics/{topic}/messages"
    raw = {"content-type": "application/octet-stream"}
    for answer in (
        http.post("/produce", json={"topic": topic, "key": "k"}),
        http.post(messages),
        http.post(messages, content=b"", headers=raw),
        http.post(messages, json={"key": "k"}),
        http.post(messages, json={"messages": [{"value": 1}, {"key": "k"}]}),
        http.post("/messages", json={"messages": [{"topic": topic}]}),
    ):
        assert "null" in refused(answer, 400, "invalid-argument")
    assert done(http.get("/consume", params={"topic": topic}))["messages"] == []
    done(http.post(messages, json={"value": None}))
    done(http.post(messages, json={"value": ""}))
    read = done(http.get("/consume", params={"topic": topic}))["messages"]
    assert [each["value"] for each in read] == [None, ""]


def test_a_browser_does_not_guess_what_a_raw_message_is(http: httpx.Client, topic: str) -> None:
    http.post(f"/topics/{topic}/messages", content=b"<b>", headers={"content-type": "text/plain"})
    asked = {"accept": "application/octet-stream"}
    answer = http.get(f"/topics/{topic}/messages/0/0", headers=asked)
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_many_messages_are_one_request(http: httpx.Client, topic: str) -> None:
    body = {"messages": [{"value": number, "key": str(number)} for number in range(500)]}
    places = done(http.post(f"/topics/{topic}/messages", json=body))["messages"]
    assert [place["offset"] for place in places] == list(range(500))
    first = done(http.get(f"/topics/{topic}/messages", params={"count": 300}))
    second = done(http.get(f"/topics/{topic}/messages", params={"offset": first["next_offset"]}))
    assert [message["value"] for message in first["messages"]] == list(range(300))
    assert second["messages"][0]["value"] == 300


def test_messages_for_several_topics_are_published_together_or_not_at_all(
    http: httpx.Client, topic: str, name: str
) -> None:
    other = f"{name}-other"
    done(http.post("/topics", json={"name": other, "partitions": 1}), 201)
    body = {"messages": [{"topic": topic, "value": 1}, {"topic": other, "value": 2}]}
    places = done(http.post("/messages", json=body))["messages"]
    assert [(place["topic"], place["offset"]) for place in places] == [(topic, 0), (other, 0)]
    body["messages"].append({"topic": other, "value": "x" * 2_000_000})
    refused(http.post("/messages", json=body), 413, "record-too-large")
    refused(http.post("/messages", json={"messages": []}), 400, "invalid-argument")
    for each, value in ((topic, 1), (other, 2)):
        read = done(http.get("/consume", params={"topic": each}))
        assert [message["value"] for message in read["messages"]] == [value]


def test_attributes_of_a_message_hold_in_both_spellings(http: httpx.Client, topic: str) -> None:
    later = "2999-01-01T00:00:00Z"
    for body in (
        {"value": 1, "deliverAt": later, "maxAttempts": 7},
        {"value": 2, "deliver_at": later, "max_attempts": 7, "headers": {"trace": "t1"}},
    ):
        done(http.post(f"/topics/{topic}/messages", json=body))
    page = done(http.get(f"/topics/{topic}/delayed"))
    assert [each["deliver_at"] for each in page["messages"]] == ["2999-01-01T00:00:00.000Z"] * 2
    assert page["messages"][1]["headers"]["trace"] == "t1"
    for offset in (0, 1):
        assert done(http.delete(f"/topics/{topic}/delayed/0/{offset}")) == {"cancelled": True}
    assert done(http.get(f"/topics/{topic}/delayed"))["messages"] == []
    refused(http.delete(f"/topics/{topic}/delayed/0/0"), 404, "unknown-message")


def test_delayed_messages_are_paged(http: httpx.Client, topic: str) -> None:
    body = {"messages": [{"value": number, "delay": 3600 + number} for number in range(5)]}
    done(http.post(f"/topics/{topic}/messages", json=body))
    seen: list[int] = []
    after: str | None = None
    while True:
        parameters = {"limit": "2", **({"after": after} if after else {})}
        page = done(http.get(f"/topics/{topic}/delayed", params=parameters))
        seen += [each["value"] for each in page["messages"]]
        after = page["next"]
        if after is None:
            break
    assert seen == list(range(5))


def test_reading_by_time_begins_with_the_first_that_is_as_young(
    http: httpx.Client, topic: str
) -> None:
    for number in range(3):
        done(http.post("/produce", json={"topic": topic, "value": number}))
    all_of_them = done(http.get(f"/topics/{topic}/messages"))["messages"]
    at = all_of_them[1]["timestamp"]
    found = done(http.get(f"/topics/{topic}/messages", params={"time": at}))["messages"]
    expected = [each["value"] for each in all_of_them if each["timestamp"] >= at]
    assert [each["value"] for each in found] == expected


def test_reading_waits_for_what_comes(http: httpx.Client, doors: DoorsProcess, topic: str) -> None:
    answers = []

    def read() -> None:
        with httpx.Client(base_url=doors.http, timeout=60) as other:
            answers.append(done(other.get("/consume", params={"topic": topic, "wait": 30})))

    reader = threading.Thread(target=read)
    reader.start()
    done(http.post("/produce", json={"topic": topic, "value": "at last"}))
    reader.join(60)
    assert [each["value"] for each in answers[0]["messages"]] == ["at last"]


def test_a_tail_ends_when_its_topic_is_made_again(http: httpx.Client, topic: str) -> None:
    body = {"messages": [{"value": number} for number in range(3)]}
    done(http.post(f"/topics/{topic}/messages", json=body))
    found: list[str] = []
    url = f"/topics/{topic}/events"
    with http.stream("GET", url, params={"start": "earliest"}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                found.append(line[6:])
            if len(found) == 3 and not line:
                assert http.delete(f"/topics/{topic}").status_code == 204
                done(http.post("/topics", json={"name": topic, "partitions": 1}), 201)
                done(http.post(f"/topics/{topic}/messages", json=body))
                done(http.post(f"/topics/{topic}/messages", json=body))
    # It may have looked between the two.
    assert "topic-replaced" in found[-1] or "unknown-topic" in found[-1]
    assert len(found) == 4


def test_a_tail_goes_on_where_the_last_one_ended(http: httpx.Client, topic: str) -> None:
    body = {"messages": [{"value": number} for number in range(3)]}
    done(http.post(f"/topics/{topic}/messages", json=body))

    def events(headers: dict[str, str], count: int) -> tuple[list[str], str]:
        found: list[str] = []
        last = ""
        url = f"/topics/{topic}/events"
        with http.stream("GET", url, params={"start": "earliest"}, headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    last = line[4:]
                if line.startswith("data: "):
                    found.append(line[6:])
                    if len(found) == count:
                        break
        return found, last

    first, last = events({}, 2)
    assert ['"value":0' in first[0], '"value":1' in first[1]] == [True, True]
    second, _ = events({"last-event-id": last}, 1)
    assert '"value":2' in second[0]


def test_the_topic_can_be_left_out_only_where_there_is_one(
    http: httpx.Client, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alone = DoorsProcess(tmp_path_factory.mktemp("alone") / "data")
    try:
        with httpx.Client(base_url=alone.http) as other:
            detail = refused(other.get("/consume"), 400, "invalid-argument")
            assert "'topic'" in detail
            done(other.post("/produce", json={"topic": "only", "value": 1, "partition": 0}))
            assert len(done(other.get("/consume"))["messages"]) == 1
            done(other.post("/topics", json={"name": "second"}), 201)
            assert "'topic'" in refused(other.get("/consume"), 400, "invalid-argument")
    finally:
        assert alone.stop() == 0


@pytest.mark.parametrize(
    ("body", "status", "code", "detail"),
    [
        (b"{", 400, "invalid-argument", "the body is not what this takes"),
        (b"[]", 400, "invalid-argument", "Expected `object`, got `array`"),
        (b'{"value": 1, "prority": "high"}', 400, "invalid-argument", "unknown field `prority`"),
        (b'{"value": 1, "priority": "urgent"}', 400, "invalid-argument", "Invalid enum value"),
        (b'{"value": 1, "delay": -1}', 400, "invalid-argument", "`$.delay`"),
        (b'{"value": 1, "delay": 1, "deliver_at": 2}', 400, "invalid-argument", "not both"),
        (b'{"value": 1, "deliver_at": "tomorrow"}', 400, "invalid-argument", "a moment as in"),
        (b'{"value": 1, "deliver_at": "2030-01-01T00:00:00"}', 400, "invalid-argument", "a zone"),
        (b'{"value": "###", "encoding": "base64"}', 400, "invalid-argument", "not valid base64"),
        (b'{"value": 1e999}', 400, "invalid-argument", "cannot be read back as JSON"),
        (b'{"value": 1, "messages": []}', 400, "invalid-argument", "not both"),
        (b'{"value": 1, "partition": 9}', 404, "unknown-partition", ""),
        (b'{"value": "' + b"x" * 2_000_000 + b'"}', 413, "record-too-large", "record_bytes_max"),
    ],
    ids=lambda part: part[:30].decode() if isinstance(part, bytes) else "",
)
def test_a_wrong_message_is_refused_and_nothing_is_stored(
    http: httpx.Client, topic: str, body: bytes, status: int, code: str, detail: str
) -> None:
    assert detail in refused(http.post(f"/topics/{topic}/messages", content=body), status, code)
    assert done(http.get(f"/topics/{topic}/messages"))["messages"] == []


def test_bad_paths_methods_types_and_sizes(http: httpx.Client, topic: str) -> None:
    assert "see /docs" in refused(http.get("/nowhere"), 404, "unknown-path")
    answer = http.delete("/produce")
    refused(answer, 405, "method-not-allowed")
    assert "POST" in answer.headers["allow"]
    refused(
        http.post("/produce", content=b"x", headers={"content-type": "text/csv"}),
        415,
        "unsupported-media-type",
    )
    path = f"/topics/{topic}/messages"
    refused(http.get(path, params={"count": "many"}), 400, "invalid-argument")
    refused(http.get(path, params={"cuont": "1"}), 400, "invalid-argument")
    refused(http.get(path, params={"offset": 9}), 416, "offset-out-of-range")
    refused(http.get(f"/topics/{topic}/messages/0/9"), 416, "offset-out-of-range")
    refused(http.get(f"/topics/{topic}/messages/0/nine"), 400, "invalid-argument")
    refused(http.get("/topics/absent"), 404, "unknown-topic")
    large = {"messages": [{"value": "x" * 1_000_000}] * 34}
    refused(http.post(f"/topics/{topic}/messages", json=large), 413, "body-too-large")


def test_a_web_page_cannot_drive_a_local_node(http: httpx.Client, topic: str) -> None:
    for headers, code in (
        ({"host": "evil.example"}, "forbidden-host"),
        ({"host": "evil.example:9080"}, "forbidden-host"),
        ({"origin": "http://evil.example"}, "forbidden-origin"),
        ({"origin": "null"}, "forbidden-origin"),
    ):
        body = {"topic": topic, "value": 1}
        refused(http.post("/produce", json=body, headers=headers), 403, code)
    own = str(http.base_url).rstrip("/")
    done(http.post("/produce", json={"topic": topic, "value": 1}, headers={"origin": own}))
    assert len(done(http.get("/consume", params={"topic": topic}))["messages"]) == 1


@pytest.mark.parametrize(
    "values",
    [
        ["text ä \U0001f389"] * 200,
        [{"id": 7, "list": [1.5, None, True]}] * 200,
        ["text", {"a": 1}, None, 17, [], "", False] * 40,
    ],
    ids=["text", "json", "mixed"],
)
def test_a_large_batch_of_values_comes_back_as_it_was(
    http: httpx.Client, topic: str, values: list[Any]
) -> None:
    body = {"messages": [{"value": value} for value in values]}
    places = done(http.post(f"/topics/{topic}/messages", json=body))["messages"]
    assert places == [
        {"id": f"{topic}:0:{number}", "partition": 0, "offset": number}
        for number in range(len(values))
    ]
    read = done(http.get(f"/topics/{topic}/messages", params={"count": 1000}))["messages"]
    assert [each["value"] for each in read] == values


def test_what_is_wrong_in_a_large_batch_is_said_of_that_message(
    http: httpx.Client, topic: str
) -> None:
    messages: list[dict[str, Any]] = [{"value": "x" * 20}] * 100
    wrong = {"messages": [*messages, {"value": 1, "prority": "high"}]}
    detail = refused(http.post(f"/topics/{topic}/messages", json=wrong), 400, "invalid-argument")
    assert "prority" in detail and "messages[100]" in detail
    assert done(http.get(f"/topics/{topic}/messages"))["messages"] == []
