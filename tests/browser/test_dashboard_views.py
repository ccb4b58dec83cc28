"""Every view of the dashboard in a real browser, with a real node's data in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from tests.browser.chromium import Browser, Page
from tests.doors.conftest import DoorsProcess

from headrace.client.kafka.cluster import KafkaCluster
from headrace.client.kafka.offsets import commit_offsets
from headrace.core.values import SPARK_PROGRESS

# A message may hold anything; on no page may it be more than text.
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


class Scene:
    """A node with something of everything, made once for all views."""

    def __init__(self, node: DoorsProcess) -> None:
        self.node = node
        self.http = httpx.Client(base_url=node.http, timeout=60)
        self._producer: Producer
        self.rejected = ""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def fill(self) -> None:
        self.ask("POST", "/topics", {"name": "orders", "partitions": 2})
        messages = [{"key": f"k{each}", "value": {"order": each}} for each in range(20)]
        self.ask("POST", "/topics/orders/messages", {"messages": messages})
        bad = {"key": HOSTILE, "value": HOSTILE, "headers": {"h": HOSTILE}, "priority": "high"}
        self.ask("POST", "/topics/orders/messages", bad)
        self.ask("POST", "/topics/orders/messages", {"value": "later", "delay": 9999})
        wanted = {"topics": ["orders"], "count": 6, "consumer": "worker-1", "visibility": 3600}
        leased = self.ask("POST", "/queues/billing/lease", wanted)["messages"]
        self.rejected = leased[0]["id"]
        for each in leased[:3]:
            self.ask("POST", "/messages/reject", {"receipt": each["receipt"], "reason": HOSTILE})
        member = self.ask("POST", "/subscribe", {"group": "report", "topics": ["orders"]})
        where = f"/groups/report/members/{member['member_id']}"
        self.ask("POST", f"{where}/poll", {"generation": member["generation"], "count": 5})
        self.ask("POST", f"{where}/commit", {"generation": member["generation"]})
        with KafkaCluster((self.node.doors["kafka"],), timeout_ms=30_000) as cluster:
            commit_offsets(cluster, "rollup", {("orders", 0): 2}, metadata=SPARK_PROGRESS)
        self._producer = Producer(
            {"bootstrap.servers": self.node.doors["kafka"], "transactional.id": "planner"}
        )
        self._producer.init_transactions()
        self._producer.begin_transaction()
        self._producer.produce("orders", b"open", partition=1)
        self._producer.flush()

    def close(self) -> None:
        self._producer.abort_transaction()
        self.http.close()


@pytest.fixture(scope="module")
def scene(full: DoorsProcess) -> Iterator[Scene]:
    made = Scene(full)
    made.fill()
    yield made
    made.close()


@pytest.fixture(scope="module")
def page(browser: Browser, scene: Scene) -> Iterator[Page]:
    opened = browser.open(f"{scene.node.http}/dashboard")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def well(page: Page, scene: Scene) -> Iterator[None]:
    """Whatever a test does: no error on the console, no request to elsewhere, and
    nothing of a message that is more than text."""
    yield
    errors, asked = page.take_errors(), page.take_requests()
    assert errors == []
    origins = {url.split("/")[2] for url in asked if url.startswith(("http", "ws"))}
    assert origins <= {scene.node.doors["http"]}
    assert page.run("document.title").endswith("Headrace")
    assert page.run("document.querySelectorAll('main img, main script').length") == 0


def go(page: Page, scene: Scene, where: str) -> None:
    page.go(f"{scene.node.http}/dashboard{where}")


def text(page: Page) -> str:
    found: str = page.run("document.querySelector('main').innerText")
    return found


def wait_text(page: Page, *words: str) -> None:
    for each in words:
        page.wait(f"document.querySelector('main').innerText.includes({json.dumps(each)})")


def test_the_overview_shows_what_needs_attention_and_draws(page: Page, scene: Scene) -> None:
    go(page, scene, "")
    wait_text(page, "Throughput", "Needs attention", "orders", "billing")
    wait_text(page, "3 dead letters")
    page.wait("document.querySelectorAll('.chart .line').length >= 2")
    label = page.run("document.querySelector('.chart svg').getAttribute('aria-label')")
    assert label.startswith("Throughput since ") and "published now" in label


def test_topics_are_found_by_a_part_of_their_name(page: Page, scene: Scene) -> None:
    go(page, scene, "/topics")
    page.wait(
        "[...document.querySelectorAll('tbody a')].some((each) => each.textContent === 'orders')"
    )
    type_into(page, "input[aria-label^='Show topics']", "no topic has this")
    wait_text(page, "No topics")
    type_into(page, "input[aria-label^='Show topics']", "ORD")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    assert "match=ORD" in page.run("location.search")


def test_messages_are_read_as_json_text_and_hex(page: Page, scene: Scene) -> None:
    go(page, scene, "/topics/orders")
    page.wait("document.querySelectorAll('.message-list details').length >= 20")
    wait_text(page, "looked through, to the end")
    go(page, scene, "/topics/orders?value=onerror")
    page.wait("document.querySelectorAll('.message-list details').length === 1")
    page.run("document.querySelector('.message-list summary').click()")
    page.wait("document.querySelector('pre.value')")
    assert page.run("document.querySelector('pre.value').textContent") == HOSTILE
    press(page, "Hex")
    assert page.run("document.querySelector('pre.value').textContent").startswith(
        "00000000  3c 69 6d 67 20 73 72 63  3d 78 20"
    )
    go(page, scene, "/topics/orders?key=k7")
    page.wait("document.querySelectorAll('.message-list details').length === 1")
    page.run("document.querySelector('.message-list summary').click()")
    page.wait("document.querySelector('pre.value .j-key')")
    assert json.loads(page.run("document.querySelector('pre.value').textContent")) == {"order": 7}


def test_a_topic_is_followed_live(page: Page, scene: Scene) -> None:
    go(page, scene, "/topics/orders")
    wait_text(page, "looked through")
    press(page, "Follow live")
    wait_text(page, "Following")
    scene.ask("POST", "/topics/orders/messages", {"value": "just now", "partition": 0})
    wait_text(page, "just now", "1 came in since you follow")
    press(page, "Stop following")
    # What was typed to look for it narrows down what is followed, too.
    type_into(page, "input[placeholder='part of a value']", "need")
    press(page, "Follow live")
    wait_text(page, "and fits")
    for value in ("hay", "needle", "more hay", "a second needle"):
        scene.ask("POST", "/topics/orders/messages", {"value": value, "partition": 0})
    wait_text(page, "2 came in since you follow", "a second needle")
    assert "hay" not in text(page)
    press(page, "Stop following")


def test_a_topic_that_is_deleted_while_it_is_followed_is_said_to_be_gone(
    browser: Browser, scene: Scene
) -> None:
    scene.ask("POST", "/topics", {"name": "passing", "partitions": 1})
    # A window of its own: what it asks for in vain is an error on its console.
    with browser.open(f"{scene.node.http}/dashboard/topics/passing") as page:
        wait_text(page, "looked through")
        press(page, "Follow live")
        wait_text(page, "Following")
        scene.ask("DELETE", "/topics/passing")
        wait_text(page, "there is no topic 'passing'", "Follow live")
        said = "document.querySelector('.offline').innerText"
        assert "goes on by itself" not in page.wait(said)
        assert all("404" in each for each in page.take_errors())


def test_following_is_said_when_the_node_has_begun(page: Page, scene: Scene) -> None:
    go(page, scene, "/topics/orders")
    wait_text(page, "looked through")
    # A node that is slow to answer: the request waits until it is let go.
    page.call("Fetch.enable", patterns=[{"urlPattern": "*/events*"}])
    press(page, "Follow live")
    wait_text(page, "Connecting", "Stop following")
    assert "Following." not in text(page)
    page.call("Fetch.disable")
    wait_text(page, "Following.")
    press(page, "Stop following")


def test_the_life_of_a_message_is_told_by_its_id(page: Page, scene: Scene) -> None:
    go(page, scene, f"/trace?id={scene.rejected}")
    wait_text(page, "published", "leased", "worker-1", "dead-lettered", "orders.dlq:", HOSTILE)
    rows = page.run("document.querySelectorAll('.timeline li').length")
    assert rows >= 3
    states = page.run("[...document.querySelectorAll('tbody tr')].map((each) => each.innerText)")
    assert any("billing" in each and "dead-lettered" in each for each in states)
    assert any("report" in each and "stream" in each for each in states)
    dead = "[...document.querySelectorAll('main a')].find((a) => a.innerText.includes('.dlq:'))"
    page.run(f"{dead}.click()")
    wait_text(page, "It is the dead letter of", scene.rejected)


def test_messages_are_searched_by_what_became_of_them(page: Page, scene: Scene) -> None:
    go(page, scene, "/trace")
    wait_text(page, "Search")
    select = "[...document.querySelectorAll('main select')].at(-1)"
    page.run(f"{select}.value = 'dead-lettered'")
    form = "document.querySelectorAll('main form')[1]"
    page.run(f"{form}.querySelector('input').value = 'orders'")
    page.run(f"{form}.requestSubmit()")
    wait_text(page, "3 messages", scene.rejected)


def test_a_search_goes_on_by_itself_until_it_has_found_something_or_is_stopped(
    page: Page, scene: Scene
) -> None:
    go(page, scene, "/trace")
    wait_text(page, "Search")
    # Pages without a match, as of very many messages; the last one does not come.
    page.run(
        """
        const real = window.fetch;
        window.asked = 0;
        window.fetch = (where, options) => {
          if (!where.includes("/trace?")) return real(where, options);
          window.asked += 1;
          if (window.asked === 4) {
            const { signal } = options;
            return new Promise((_, fail) =>
              signal.addEventListener("abort", () => fail(signal.reason)));
          }
          const body = { traces: [], next: `orders:0:${window.asked}000` };
          const headers = { "content-type": "application/json" };
          return Promise.resolve(new Response(JSON.stringify(body), { headers }));
        };
        """
    )
    page.run("document.querySelectorAll('main form')[1].requestSubmit()")
    wait_text(page, "0 messages so far, looking at orders:0:3000")
    press(page, "Stop")
    wait_text(page, "Look further")
    assert page.run("window.asked") == 4
    assert page.take_errors() == []


def test_a_view_that_is_left_does_not_complain_of_what_it_asked_for(
    page: Page, scene: Scene
) -> None:
    go(page, scene, "/trace")
    wait_text(page, "Search")
    page.call("Fetch.enable", patterns=[{"urlPattern": "*/api/trace*"}])
    page.run("document.querySelectorAll('main form')[1].requestSubmit()")
    page.run("document.querySelector('#nav a[data-name=node]').click()")
    wait_text(page, "partitions_per_topic_max")
    page.call("Fetch.disable")
    assert page.take_errors() == []


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("/topics/orders?tab=partitions", ["First offset", "Segments"]),
        ("/topics/orders?tab=groups", ["billing", "report", "rollup"]),
        ("/topics/orders?tab=settings", ["retention_ms", "durability"]),
        ("/groups", ["billing", "report", "rollup", "queue", "stream"]),
        ("/groups/report", ["orders:0", "Members", "Cursor"]),
        ("/queues", ["billing", "In work"]),
        ("/queues/billing", ["critical", "background", "worker-1 holds 3", "visibility_ms"]),
        ("/queues/billing", ["From publish to lease", "From publish to ack", "p95"]),
        ("/delayed", ["orders:", "later"]),
        ("/letters", ["rejected", HOSTILE, "3 messages"]),
        ("/transactions", ["planner", "Ongoing", "orders:1 from"]),
        ("/pipelines", ["rollup", "orders"]),
        ("/node", ["Python", "partitions_per_topic_max", "kafka_advertised"]),
        ("/trace", ["Find a message", "Search"]),
        ("/no/such/place", ["There is nothing here"]),
        ("/topics/nowhere", ["Not found", "there is no topic"]),
    ],
)
def test_a_view_shows_what_the_node_says(
    page: Page, scene: Scene, where: str, words: list[str]
) -> None:
    # What the page asked for in vain is an error on its console, as it should be.
    go(page, scene, where)
    wait_text(page, *words)
    if where == "/topics/nowhere":
        [error] = page.take_errors()
        assert "404" in error
    assert page.run("document.querySelectorAll('main h1').length") == 1


def press(page: Page, words: str) -> None:
    """A button, by its words or its accessible name."""
    find = (
        "[...document.querySelectorAll('button')].find((each) => !each.disabled && "
        f"(each.getAttribute('aria-label') ?? each.textContent).trim() === {json.dumps(words)})"
    )
    page.wait(find)
    page.run(f"{find}.click()")


def type_into(page: Page, selector: str, words: str) -> None:
    page.wait(f"document.querySelector({json.dumps(selector)})")
    page.run(
        f"""(() => {{
            const field = document.querySelector({json.dumps(selector)});
            field.value = {json.dumps(words)};
            field.dispatchEvent(new Event("input", {{bubbles: true}}));
            field.dispatchEvent(new Event("change", {{bubbles: true}}));
        }})()"""
    )
