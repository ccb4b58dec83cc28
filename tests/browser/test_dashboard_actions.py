"""What the dashboard may change, done in a real browser and looked up at the node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import KafkaException, Producer
from tests.browser.chromium import Browser, Page
from tests.browser.test_dashboard_views import press, type_into, wait_text
from tests.doors.conftest import DoorsProcess, done

from headrace.client.kafka.cluster import KafkaCluster
from headrace.client.kafka.offsets import commit_offsets
from headrace.core.values import SPARK_PROGRESS


@pytest.fixture(scope="module")
def node(full: DoorsProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=full.http, timeout=60) as client:
        yield client


@pytest.fixture
def page(browser: Browser, full: DoorsProcess, changing: Page) -> Iterator[Page]:
    yield changing
    errors = changing.take_errors()
    assert errors == []


@pytest.fixture(scope="module")
def changing(browser: Browser, full: DoorsProcess) -> Iterator[Page]:
    opened = browser.open(f"{full.http}/dashboard/node")
    yield opened
    opened.close()


def make(node: httpx.Client, topic: str, *messages: dict[str, Any]) -> None:
    done(node.post("/topics", json={"name": topic, "partitions": 1}), 201)
    if messages:
        done(node.post(f"/topics/{topic}/messages", json={"messages": list(messages)}))


def reject_all(node: httpx.Client, topic: str, reason: str) -> None:
    wanted = {"topics": [topic], "count": 100, "consumer": "worker"}
    for each in done(node.post(f"/queues/{topic}-group/lease", json=wanted))["messages"]:
        body = {"receipt": each["receipt"], "reason": reason}
        done(node.post("/messages/reject", json=body))


def letters_of(node: httpx.Client, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = done(node.get(f"/topics/{topic}/dead-letters"))["messages"]
    return found


def tick(page: Page, label: str) -> None:
    """A box, by its accessible name."""
    box = f"document.querySelector('[aria-label={json.dumps(label)}]')"
    page.wait(box)
    page.run(f"{box}.click()")


def forgive_gone(page: Page, name: str) -> None:
    """Of what was just deleted the page may have asked once more before it left."""
    page.wait("!location.pathname.includes(" + json.dumps(name) + ")")
    page.forgive("404", name)


def told(page: Page, words: str) -> None:
    """What the dashboard says when it has done something."""
    page.wait(f"document.getElementById('notices').innerText.includes({json.dumps(words)})")


def test_a_message_is_published_with_everything_it_can_have(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name)
    page.go(f"{full.http}/dashboard/topics/{name}")
    press(page, "Publish")
    page.wait("document.querySelector('dialog[open]')")
    type_into(page, "dialog textarea", '{"half": ')
    press_in_dialog(page, "Publish")
    page.wait("document.querySelector('dialog .problem').innerText.includes('not JSON')")
    type_into(page, "dialog textarea", '{"id": 7}')
    fill(page, {"Key": "k1", "Priority": "high", "Delay, in seconds": "3600", "Partition": "0"})
    press(page, "Add a header")
    type_into(page, "dialog [data-part=name]", "source")
    type_into(page, "dialog [data-part=value]", "dashboard")
    press_in_dialog(page, "Publish")
    told(page, f"Published as {name}:0:0")
    stored = done(node.get(f"/topics/{name}/messages/0/0"))
    assert (stored["key"], stored["value"], stored["priority"]) == ("k1", {"id": 7}, "high")
    assert stored["headers"]["source"] == "dashboard"
    [waiting] = done(node.get(f"/topics/{name}/delayed"))["messages"]
    assert waiting["id"] == f"{name}:0:0"


def test_a_delayed_message_is_cancelled_after_a_question(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name, {"value": "first", "delay": 999}, {"value": "second", "delay": 9999})
    page.go(f"{full.http}/dashboard/delayed?topic={name}")
    wait_text(page, "first", "second")
    press(page, f"Cancel {name}:0:0")
    page.wait("document.querySelector('dialog[open] h2').innerText.includes(':0:0')")
    press_in_dialog(page, "Cancel the message")
    told(page, "was cancelled")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    [left] = done(node.get(f"/topics/{name}/delayed"))["messages"]
    assert left["value"] == "second"


def test_dead_letters_are_redriven_after_a_dry_run(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name, *({"value": each} for each in range(3)))
    reject_all(node, name, "card declined")
    page.go(f"{full.http}/dashboard/letters/{name}")
    wait_text(page, "card declined", "3 messages")
    press(page, f"Redrive dead letters of {name}-group with “card declined”")
    page.wait("document.querySelector('dialog[open]').innerText.includes('A dry run says')")
    page.wait("document.querySelector('dialog[open]').innerText.includes('ready again in place')")
    # Nothing has happened yet.
    assert len(done(node.get(f"/topics/{name}/dead-letters"))["messages"]) == 3
    press_in_dialog(page, "Redrive 3")
    told(page, "3 messages went back (3 in place, 0 as copies)")
    wait_text(page, "No dead letters")
    assert done(node.get(f"/topics/{name}/dead-letters"))["messages"] == []
    wanted = {"topics": [name], "count": 10}
    again = done(node.post(f"/queues/{name}-group/lease", json=wanted))["messages"]
    assert sorted(each["value"] for each in again) == [0, 1, 2]


def test_a_redrive_says_before_and_afterwards_what_it_publishes_as_copies(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name, *({"value": each} for each in range(2)))
    reject_all(node, name, "card declined")
    # The group is made again, and has seen nothing of what the one before rejected.
    done(node.delete(f"/groups/{name}-group"), 204)
    wanted = {"topics": [name], "count": 10}
    for each in done(node.post(f"/queues/{name}-group/lease", json=wanted))["messages"]:
        done(node.post("/messages/ack", json={"receipt": each["receipt"]}))
    page.go(f"{full.http}/dashboard/letters/{name}")
    wait_text(page, "card declined", "2 messages")
    press(page, f"Redrive dead letters of {name}-group with “card declined”")
    words = f"2 messages would be published to {name} as a copy, which streams see"
    page.wait(f"document.querySelector('dialog[open]').innerText.includes({json.dumps(words)})")
    assert (
        page.run("document.querySelector('dialog[open]').innerText.includes('in place')") is False
    )
    press_in_dialog(page, "Redrive 2")
    told(page, "2 messages went back (0 in place, 2 as copies)")


def test_several_dead_letters_are_selected_and_redriven_or_purged(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name, *({"value": each} for each in range(5)))
    reject_all(node, name, "card declined")
    ids = {each["source"]: each["id"] for each in letters_of(node, name)}
    page.go(f"{full.http}/dashboard/letters/{name}")
    wait_text(page, "none selected")
    tick(page, f"Select {name}:0:1")
    tick(page, f"Select {name}:0:3")
    wait_text(page, "2 selected")
    every = "document.querySelector('[aria-label=\"Select all on this page\"]')"
    assert page.run(f"{every}.indeterminate") is True
    press(page, "Redrive selected")
    page.wait("document.querySelector('dialog[open]').innerText.includes('A dry run says')")
    assert len(letters_of(node, name)) == 5
    press_in_dialog(page, "Redrive 2")
    told(page, "2 messages went back")
    # What went is not selected any more.
    wait_text(page, "none selected")
    left = {each["id"] for each in letters_of(node, name)}
    assert left == set(ids.values()) - {ids[f"{name}:0:1"], ids[f"{name}:0:3"]}

    tick(page, "Select all on this page")
    wait_text(page, "3 selected")
    assert page.run(f"{every}.indeterminate") is False
    tick(page, f"Select {name}:0:0")
    wait_text(page, "2 selected")
    press(page, "Purge selected")
    page.wait("document.querySelector('dialog[open] h2').innerText === 'Purge 2 dead letters?'")
    type_into(page, "dialog input", name)
    press_in_dialog(page, "Purge them")
    told(page, "2 dead letters")
    wait_text(page, "none selected")
    assert [each["source"] for each in letters_of(node, name)] == [f"{name}:0:0"]


def test_a_message_that_was_redriven_and_acked_says_so(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name, {"value": 1})
    reject_all(node, name, "card declined")
    [letter] = letters_of(node, name)
    redrive = f"/topics/{name}/dead-letters/redrive"
    assert done(node.post(redrive, json={"all": True}))["redriven"] == 1
    wanted = {"topics": [name], "consumer": "worker", "wait": 30}
    [again] = done(node.post(f"/queues/{name}-group/lease", json=wanted))["messages"]
    done(node.post("/messages/ack", json={"receipt": again["receipt"]}))
    # From the dead letter one sees that what it became is done.
    page.go(f"{full.http}/dashboard/trace?id={letter['id']}")
    wait_text(page, "It was redriven", f"acked in {name}-group")
    # And from the message that it was redriven.
    page.go(f"{full.http}/dashboard/trace?id={letter['source']}")
    dead = "[...document.querySelectorAll('.facts dd')].map((each) => each.innerText)"
    page.wait(f"{dead}.some((each) => each.includes('.dlq:') && each.includes('redriven'))")


def test_purging_wants_the_name_typed(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name, {"value": 1})
    reject_all(node, name, "no such customer")
    page.go(f"{full.http}/dashboard/letters/{name}")
    wait_text(page, "no such customer")
    press(page, "Purge all")
    page.wait("document.querySelector('dialog[open]')")
    is_off = "[...document.querySelectorAll('dialog button')].at(-1).disabled"
    assert page.run(is_off) is True
    type_into(page, "dialog input", name[:-1])
    assert page.run(is_off) is True
    type_into(page, "dialog input", name)
    press_in_dialog(page, "Purge them")
    told(page, "1 dead letter")
    assert done(node.get(f"/topics/{name}/dead-letters"))["messages"] == []


def test_a_lease_is_extended_and_released(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name, {"value": 1})
    group = f"{name}-group"
    wanted = {"topics": [name], "consumer": "worker", "visibility": 300}
    [held] = done(node.post(f"/queues/{group}/lease", json=wanted))["messages"]
    page.go(f"{full.http}/dashboard/queues/{group}")
    wait_text(page, "worker holds 1")
    press(page, f"Extend the lease on {held['id']}")
    type_into(page, "dialog input", "3000")
    press_in_dialog(page, "Extend")
    told(page, "50 min")
    press(page, "Change a setting")
    fill(page, {"Setting": "max_attempts", "Value, as JSON": "9"})
    press_in_dialog(page, "Change it")
    told(page, f"max_attempts of {group} is 9 now")
    assert done(node.get(f"/groups/{group}"))["settings"]["max_attempts"] == 9
    [longer] = done(node.get(f"/queues/{group}/leases"))["leases"]
    assert longer["deadline"] > held["deadline"]
    press(page, f"Release {held['id']}")
    press_in_dialog(page, "Release it")
    told(page, "is back in the queue")
    assert done(node.get(f"/queues/{group}/leases"))["total"] == 0


def test_cursors_are_moved_and_a_group_is_deleted(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name, *({"value": each} for each in range(8)))
    group = f"{name}-report"
    done(node.post(f"/groups/{group}/reset", json={"topic": name, "to": "latest"}))
    page.go(f"{full.http}/dashboard/groups/{group}")
    wait_text(page, f"{name}:0")
    press(page, "Move the cursors")
    fill(page, {"To": "offset", "Offset": "3", "Partition": "0"})
    press_in_dialog(page, "Move the cursors")
    told(page, "5 messages behind")
    assert done(node.get(f"/groups/{group}/lag"))["lag"] == 5
    press(page, "Delete")
    type_into(page, "dialog input", group)
    press_in_dialog(page, "Delete the group")
    told(page, "was deleted")
    assert node.get(f"/groups/{group}").status_code == 404
    forgive_gone(page, group)


def test_a_transaction_is_aborted_by_its_name(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name)
    producer = Producer(
        {"bootstrap.servers": full.doors["kafka"], "transactional.id": f"{name}/planner"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(name, b"never seen")
    producer.flush()
    page.go(f"{full.http}/dashboard/transactions")
    wait_text(page, f"{name}/planner", f"{name}:0 from 0")
    press(page, f"Abort {name}/planner")
    page.wait("document.querySelector('dialog[open]').innerText.includes('1 partition')")
    type_into(page, "dialog input", f"{name}/planner")
    press_in_dialog(page, "Abort the transaction")
    told(page, f"{name}/planner: ")
    page.wait(f"!document.querySelector('main').innerText.includes({json.dumps(name)})")
    done(node.post(f"/topics/{name}/messages", json={"value": "seen"}))
    seen = done(node.get("/consume", params={"topic": name, "partition": 0, "offset": 0}))
    assert [each["value"] for each in seen["messages"]] == ["seen"]
    press(page, "All ids")
    wait_text(page, f"{name}/planner", "CompleteAbort")
    with pytest.raises(KafkaException):
        producer.commit_transaction()


def test_progress_of_spark_is_forgotten_and_not_moved(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name, *({"value": each} for each in range(8)))
    group = f"{name}/rollup"
    with KafkaCluster((full.doors["kafka"],), timeout_ms=30_000) as cluster:
        commit_offsets(cluster, group, {(name, 0): 5}, metadata=SPARK_PROGRESS)
    page.go(f"{full.http}/dashboard/pipelines")
    link = f"[...document.querySelectorAll('main a')].find((a) => a.textContent === '{group}')"
    page.wait(link)
    page.run(f"{link}.click()")
    wait_text(page, "goes on from its own checkpoint", f"{name}:0")
    names = page.run("[...document.querySelectorAll('main button')].map((each) => each.innerText)")
    assert "Move the cursors" not in names
    press(page, "Delete")
    type_into(page, "dialog input", group)
    press_in_dialog(page, "Delete the group")
    told(page, "was deleted")
    forgive_gone(page, quote(group, safe=""))
    assert group not in {each["name"] for each in done(node.get("/pipelines"))["sources"]}


def test_a_topic_is_made_changed_and_deleted(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    page.go(f"{full.http}/dashboard/topics")
    press(page, "New topic")
    fill(page, {"Name": name, "Partitions": "2"})
    press_in_dialog(page, "Make it")
    told(page, f"{name} was made")
    page.go(f"{full.http}/dashboard/topics/{name}?tab=settings")
    press(page, "Change a setting")
    fill(page, {"Setting": "retention_ms", "Value, as JSON": "60000"})
    press_in_dialog(page, "Change it")
    told(page, "retention_ms")
    wait_text(page, "1 min (60,000)")
    assert done(node.get(f"/topics/{name}"))["settings"]["retention_ms"] == 60_000
    page.go(f"{full.http}/dashboard/topics/{name}?tab=partitions")
    press(page, "More partitions")
    fill(page, {"Partitions": "5"})
    press_in_dialog(page, "Let it grow")
    told(page, f"{name} has 5 partitions now")
    page.wait("document.querySelectorAll('tbody tr').length === 5")
    press(page, "Delete")
    type_into(page, "dialog input", name)
    press_in_dialog(page, "Delete the topic")
    told(page, f"{name} was deleted")
    page.wait("location.pathname === '/dashboard/topics'")
    assert node.get(f"/topics/{name}").status_code == 404
    forgive_gone(page, name)


def test_what_the_node_refuses_is_said_in_its_words(
    page: Page, node: httpx.Client, full: DoorsProcess, name: str
) -> None:
    make(node, name)
    page.go(f"{full.http}/dashboard/topics")
    press(page, "New topic")
    fill(page, {"Name": name})
    press_in_dialog(page, "Make it")
    page.wait("document.querySelector('dialog .problem').innerText.includes('already')")
    press_in_dialog(page, "Cancel")
    page.wait("!document.querySelector('dialog')")
    [error] = page.take_errors()
    assert "409" in error


def test_a_read_only_dashboard_offers_nothing_that_changes(
    browser: Browser, doors: DoorsProcess, http: httpx.Client, topic: str
) -> None:
    done(http.post(f"/topics/{topic}/messages", json={"value": 1}))
    with browser.open(f"{doors.http}/dashboard/topics/{topic}") as page:
        page.wait("document.querySelectorAll('.message-list details').length === 1")
        assert "read-only" in page.wait("document.getElementById('side-foot').innerText")
        names = page.run("[...document.querySelectorAll('button')].map((each) => each.textContent)")
        assert not {"Publish", "Delete"} & set(names)
        page.go(f"{doors.http}/dashboard/topics")
        wait_text(page, topic)
        names = page.run("[...document.querySelectorAll('button')].map((each) => each.textContent)")
        assert "New topic" not in names


def press_in_dialog(page: Page, words: str) -> None:
    find = (
        "[...document.querySelectorAll('dialog[open] .buttons button')].find((each) => "
        f"!each.disabled && each.textContent === {json.dumps(words)})"
    )
    page.wait(find)
    page.run(f"{find}.click()")


def fill(page: Page, fields: dict[str, str]) -> None:
    """The fields of the open dialog, by their labels."""
    for label, value in fields.items():
        find = (
            "[...document.querySelectorAll('dialog[open] label')].find((each) => "
            f"each.firstChild.textContent === {json.dumps(label)})"
        )
        page.wait(find)
        page.run(
            f"""(() => {{
                const field = {find}.querySelector("input, select, textarea");
                field.value = {json.dumps(value)};
                field.dispatchEvent(new Event("input", {{bubbles: true}}));
                field.dispatchEvent(new Event("change", {{bubbles: true}}));
            }})()"""
        )
