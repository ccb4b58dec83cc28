"""The reference of the HTTP API at /docs, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from tests.browser.chromium import Browser, Page
from tests.browser.test_dashboard_views import press, type_into
from tests.doors.conftest import DoorsProcess, done

SHOWN = "[...document.querySelectorAll('.operation')].filter((each) => each.offsetParent)"
SEARCH = "input[aria-label='Search the reference']"


@pytest.fixture(scope="module")
def page(browser: Browser, doors: DoorsProcess) -> Iterator[Page]:
    opened = browser.open(f"{doors.http}/docs")
    opened.wait("document.querySelector('.operation')")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def well(page: Page, doors: DoorsProcess) -> Iterator[None]:
    """No error on the console, and nothing from elsewhere."""
    yield
    errors, asked = page.take_errors(), page.take_requests()
    assert errors == []
    assert {url.split("/")[2] for url in asked if "://" in url} <= {doors.doors["http"]}


def test_every_operation_is_there_with_what_it_takes_and_answers(
    page: Page, http: httpx.Client
) -> None:
    document = done(http.get("/openapi.json"))
    wanted = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    shown = page.run(
        f"{SHOWN}.map((each) => each.querySelector('.method').innerText + ' ' + "
        "each.querySelector('h3').innerText)"
    )
    assert set(shown) == wanted and len(shown) == len(wanted)
    lease = "document.getElementById('post-queues-group-lease').innerText"
    for words in (
        "group",
        "topics",
        "list of text",
        "required",
        "whole number, 1 to 1000",
        "Leased",
    ):
        assert words in page.run(lease), words
    # What a field holds is behind a fold, made when it is opened.
    fold = "document.querySelector('#post-queues-group-lease .statuses details')"
    page.run(f"{fold}.open = true")
    page.wait(f"{fold}.innerText.includes('messages')")


def test_a_request_is_shown_for_a_shell_and_for_python(page: Page, doors: DoorsProcess) -> None:
    article = "document.getElementById('post-topics-topic-dead-letters-redrive')"
    shown = f"{article}.querySelector('.snippet pre').textContent"
    assert page.run(shown) == (
        f"curl -X POST '{doors.http}/topics/orders/dead-letters/redrive' \\\n"
        "  -H 'content-type: application/json' \\\n"
        '  -d \'{"group":"billing","reason":"the bank does not answer","dry_run":true}\''
    )
    page.run(
        f"[...{article}.querySelectorAll('button')].find((b) => b.innerText === 'Python').click()"
    )
    compile(page.run(shown), "the snippet", "exec")
    assert '"dry_run": True}' in page.run(shown)


def test_a_snippet_for_python_reads_what_is_answered(page: Page, http: httpx.Client) -> None:
    shown = page.run(
        f"""Object.fromEntries({SHOWN}.map((each) => {{
          [...each.querySelectorAll('button')].find((b) => b.innerText === 'Python').click();
          return [each.id, each.querySelector('.snippet pre').textContent];
        }}))"""
    )
    for text in shown.values():
        compile(text, "the snippet", "exec")
    paths = done(http.get("/openapi.json"))["paths"]
    answers = [each["responses"] for methods in paths.values() for each in methods.values()]
    empty = [name for name, text in shown.items() if "print" not in text]
    assert len(empty) == sum("204" in each for each in answers) > 0
    assert "delete-groups-group" in empty
    events = shown["get-topics-topic-events"]
    assert "httpx.stream(" in events and "timeout=None" in events and ".json()" not in events
    assert '/consume?topic=orders"' in shown["get-consume"]
    # It waits for longer than httpx does by itself.
    assert "timeout=15)" in shown["post-queues-group-lease"]
    assert "/groups/report/reset" in shown["post-groups-group-reset"]
    assert "/groups/billing" in shown["patch-groups-group"]


def test_words_find_operations(page: Page) -> None:
    type_into(page, SEARCH, "dead-letters purge")
    page.wait(f"{SHOWN}.length === 1")
    assert page.run(f"{SHOWN}[0].id") == "post-topics-topic-dead-letters-purge"
    assert page.run("document.getElementById('top').innerText").startswith("/\n1 operations")
    type_into(page, SEARCH, "no operation has this")
    page.wait(f"{SHOWN}.length === 0")
    # A link leads to its operation, also where the search hides it.
    page.run("location.hash = '#get-topics-topic'")
    page.wait("document.querySelector('.is-here')?.id === 'get-topics-topic'")
    page.wait(f"{SHOWN}.length > 50")


def test_a_link_leads_to_an_operation(page: Page, doors: DoorsProcess) -> None:
    page.go("about:blank")
    page.go(f"{doors.http}/docs#post-messages-ack")
    page.wait("document.querySelector('.is-here')?.id === 'post-messages-ack'")
    top = page.wait("document.querySelector('.is-here').getBoundingClientRect().top")
    assert 0 <= top < 400


def test_reading_is_tried_from_the_page(page: Page, topic: str) -> None:
    article = "document.getElementById('get-topics-topic')"
    page.wait(article)
    page.run(f"{article}.querySelector('form').closest('details').open = true")
    page.run(f"{article}.querySelector('form input').value = {json.dumps(topic)}")
    page.run(f"{article}.querySelector('form').requestSubmit()")
    page.wait(f"{article}.querySelector('form').innerText.includes('200 OK')")
    shown = json.loads(page.run(f"{article}.querySelector('form pre').textContent"))
    assert shown["name"] == topic
    # What changes something is for the snippets.
    assert page.run("document.querySelector('#delete-topics-topic form')") is None


def test_it_is_dark_and_narrow_where_that_is_wanted(page: Page, doors: DoorsProcess) -> None:
    page.emulate(scheme="dark")
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=390, height=844, deviceScaleFactor=1, mobile=True,
    )  # fmt: skip
    try:
        page.go("about:blank")
        page.go(f"{doors.http}/docs")
        page.wait("document.querySelector('.operation')")
        assert page.run("document.documentElement.scrollWidth") == 390
        dark = page.run("getComputedStyle(document.body).backgroundColor")
        press(page, "Dark theme")
        assert page.run("getComputedStyle(document.body).backgroundColor") != dark
    finally:
        page.run("localStorage.removeItem('headrace-theme')")
        page.call("Emulation.clearDeviceMetricsOverride")
        page.emulate(scheme="light")
