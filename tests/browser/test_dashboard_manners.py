"""How the dashboard behaves: by keyboard, for a screen reader, in the dark, under load,
and with ten thousand partitions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.browser.chromium import Browser, Page
from tests.browser.test_dashboard_views import wait_text
from tests.doors.conftest import DoorsProcess, done

VIEWS = (
    "", "/topics", "/groups", "/queues", "/trace", "/delayed", "/letters", "/transactions",
    "/pipelines", "/node",
)  # fmt: skip
PARTITIONS = 10_000
# What a first view may take, however large the node: requests, and bytes of answers.
API_REQUESTS_MAX = 6
API_BYTES_MAX = 100_000
ASSET_BYTES_MAX = 150_000


@pytest.fixture(scope="module")
def page(browser: Browser, doors: DoorsProcess) -> Iterator[Page]:
    opened = browser.open(f"{doors.http}/dashboard")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def well(page: Page) -> Iterator[None]:
    yield
    errors = page.take_errors()
    assert errors == []


def press_key(page: Page, key: str) -> None:
    code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37}.get(key, 0)
    text = key if len(key) == 1 else ""
    page.call(
        "Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code
    )
    page.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)


def focused(page: Page) -> str:
    """What has the focus, as somebody would call it."""
    found: str = page.run(
        "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText)"
    )
    return found.strip()


@pytest.mark.parametrize("width", [390, 2560])
def test_no_view_is_wider_than_its_window(
    browser: Browser, doors: DoorsProcess, http: httpx.Client, topic: str, width: int
) -> None:
    wanted = {"topics": [topic], "count": 1, "consumer": "worker"}
    done(http.post(f"/queues/{topic}-group/lease", json=wanted))
    done(http.post(f"/topics/{topic}/messages", json={"value": "x" * 500}))
    [held] = done(http.post(f"/queues/{topic}-group/lease", json=wanted))["messages"]
    body = {"receipt": held["receipt"], "reason": "a reason with many words in it " * 9}
    done(http.post("/messages/reject", json=body))
    page = browser.open(f"{doors.http}/dashboard")
    page.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
        mobile=False,
    )  # fmt: skip
    more = (f"/topics/{topic}", f"/queues/{topic}-group", f"/letters/{topic}", "/trace")
    empty = {"/delayed", "/transactions", "/pipelines"}
    for view in (*(each for each in VIEWS if each not in empty), *more):
        page.go(f"{doors.http}/dashboard{view}")
        page.wait(
            "document.querySelector('main td, main .line, main .facts, main form, main .card')"
        )
        assert page.run("document.documentElement.scrollWidth") <= width, view
    # Words have room, also where they are what gives way.
    page.go(f"{doors.http}/dashboard/letters/{topic}")
    page.wait("document.querySelector('td.fill')")
    assert page.run("document.querySelector('td.fill').offsetWidth") >= 140
    page.close()


def test_a_page_goes_on_by_itself_when_its_node_is_back(browser: Browser, tmp_path: Path) -> None:
    node = DoorsProcess(tmp_path / "data")
    page = browser.open(f"{node.http}/dashboard")
    try:
        wait_text(page, "0 topics")
        node.process.kill()
        node.stop()
        page.wait("document.querySelector('.offline')?.innerText.includes('Is it running?')")
        node = DoorsProcess(tmp_path / "data", "--http", node.doors["http"])
        done(httpx.post(f"{node.http}/topics", json={"name": "orders", "partitions": 3}), 201)
        wait_text(page, "1 topic", "3 partitions")
        assert page.run("document.querySelector('.offline')") is None
    finally:
        page.close()
        node.stop()


# By keyboard.


def test_the_first_tab_skips_to_the_content(page: Page, doors: DoorsProcess) -> None:
    page.go(f"{doors.http}/dashboard/node")
    wait_text(page, "Limits")
    press_key(page, "Tab")
    assert focused(page) == "Skip to the content"
    ring = page.run("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid"
    press_key(page, "Enter")
    page.wait("location.hash === '#main'")


def test_tab_walks_through_everything_that_can_be_used(
    page: Page, doors: DoorsProcess, http: httpx.Client, topic: str
) -> None:
    done(http.post(f"/groups/{topic}/reset", json={"topic": topic, "to": "latest"}))
    page.go(f"{doors.http}/dashboard/groups")
    wait_text(page, topic)
    seen = []
    for _ in range(30):
        press_key(page, "Tab")
        seen.append(focused(page))
    for name in ("Overview", "Node", "Keyboard shortcuts", "Dark theme", "Streams", "Behind"):
        assert name in seen, (name, seen)


def test_g_and_a_letter_goes_to_a_view(page: Page, doors: DoorsProcess) -> None:
    page.go(f"{doors.http}/dashboard")
    page.wait("document.querySelector('.finder')")
    for letter, path in (("t", "/topics"), ("q", "/queues"), ("n", "/node"), ("o", "/")):
        press_key(page, "g")
        press_key(page, letter)
        page.wait(f"location.pathname === '/dashboard{path}'")
        current = page.run("document.querySelectorAll('#nav [aria-current=page]').length")
        assert current == 1


def test_a_slash_finds_topics_and_messages(
    page: Page, doors: DoorsProcess, http: httpx.Client, topic: str
) -> None:
    done(http.post(f"/topics/{topic}/messages", json={"value": 1}))
    page.go(f"{doors.http}/dashboard")
    page.wait("document.querySelector('.finder')")
    press_key(page, "/")
    assert page.run("document.activeElement.getAttribute('role')") == "combobox"
    page.call("Input.insertText", text=topic[:9])
    page.wait(f"document.getElementById('found').innerText.includes({json.dumps(topic)})")
    press_key(page, "Enter")
    page.wait(f"location.pathname === '/dashboard/topics/{topic}'")
    wait_text(page, topic)


def test_a_question_mark_lists_the_keys(page: Page, doors: DoorsProcess) -> None:
    page.go(f"{doors.http}/dashboard/node")
    page.wait("document.querySelector('.finder')")
    press_key(page, "?")
    page.wait("document.querySelector('dialog[open]').innerText.includes('Dead letters')")
    press_key(page, "Escape")
    page.wait("!document.querySelector('dialog')")


# For a screen reader.


def tree(page: Page) -> list[dict[str, Any]]:
    """What the browser tells assistive technology, without what it leaves out."""
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    return [
        {
            "role": node.get("role", {}).get("value"),
            "name": node.get("name", {}).get("value", ""),
        }
        for node in nodes
        if not node.get("ignored")
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_everything_has_a_name_and_a_place(page: Page, doors: DoorsProcess, view: str) -> None:
    page.go(f"{doors.http}/dashboard{view}")
    page.wait("document.querySelector('main h1') && document.querySelector('.finder')")
    page.wait("document.getElementById('side-foot').innerText !== ''")
    nodes = tree(page)
    roles = [node["role"] for node in nodes]
    for landmark in ("banner", "navigation", "main", "search"):
        assert roles.count(landmark) >= 1, (landmark, roles)
    needs_a_name = ("button", "link", "textbox", "combobox", "searchbox", "table", "img", "image")
    unnamed = [each for each in nodes if each["role"] in needs_a_name and not each["name"].strip()]
    assert unnamed == []
    headings = page.run(
        "[...document.querySelectorAll('main h1, main h2')].map((each) => each.tagName)"
    )
    assert headings.count("H1") == 1


def test_charts_are_read_with_arrow_keys(page: Page, doors: DoorsProcess) -> None:
    page.go(f"{doors.http}/dashboard")
    page.wait("document.querySelectorAll('.chart .line').length > 0")
    page.run("document.querySelector('.chart svg').focus()")
    press_key(page, "ArrowLeft")
    page.wait("!document.querySelector('.readout').hidden")
    assert "published" in page.run("document.querySelector('.readout').innerText")
    spoken = page.run("document.querySelector('.panel-body [aria-live]').textContent")
    assert "delivered" in spoken


# In the dark, and without motion.


def test_the_theme_follows_the_system_and_can_be_chosen(page: Page, doors: DoorsProcess) -> None:
    def light(color: str) -> int:
        return sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(",")))

    ground = "getComputedStyle(document.body).backgroundColor"
    page.emulate(scheme="light")
    page.go(f"{doors.http}/dashboard/node")
    page.wait("document.querySelector('[aria-label=\"Dark theme\"]')")
    assert light(page.run(ground)) > 600
    page.emulate(scheme="dark")
    assert light(page.run(ground)) < 150
    page.run("document.querySelector('[aria-label=\"Dark theme\"]').click()")
    assert light(page.run(ground)) > 600
    # It is remembered, and there before the page is painted.
    page.go(f"{doors.http}/dashboard/topics")
    assert page.run("document.documentElement.dataset.theme") == "light"
    page.run("localStorage.removeItem('headrace-theme')")
    page.emulate(scheme="light")


def test_nothing_moves_for_those_who_do_not_want_it(page: Page, doors: DoorsProcess) -> None:
    page.emulate(scheme="light", reduced_motion=True)
    page.go(f"{doors.http}/dashboard/topics")
    page.wait("document.querySelector('.button')")
    moving = page.run(
        "[...document.querySelectorAll('*')].filter((each) => "
        "parseFloat(getComputedStyle(each).transitionDuration) > 0 || "
        "getComputedStyle(each).animationName !== 'none').length"
    )
    assert moving == 0
    page.emulate(scheme="light")


# On a telephone.


@pytest.mark.parametrize("view", ["/topics", "/letters"])
def test_a_narrow_window_is_filled_from_edge_to_edge(
    page: Page, doors: DoorsProcess, view: str
) -> None:
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=390, height=1600, deviceScaleFactor=1, mobile=True,
    )  # fmt: skip
    try:
        page.go(f"{doors.http}/dashboard{view}")
        page.wait("document.querySelector('main h1') && document.querySelector('.finder')")
        assert page.run("document.documentElement.scrollWidth") == 390
        # Between the navigation and what is below it there is a line, and no band.
        gap = page.run(
            "document.querySelector('.top').getBoundingClientRect().top - "
            "document.getElementById('nav').getBoundingClientRect().bottom"
        )
        assert 0 <= gap <= 10
        shown = page.run(
            "(() => { const all = document.getElementById('nav').getBoundingClientRect(), "
            "own = document.querySelector('#nav a').getBoundingClientRect(); "
            "return all.height - own.height; })()"
        )
        assert 0 <= shown <= 10
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")


# Times.


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        ("Asia/Kolkata", "2026-07-01 17:30:00.250 +05:30"),
        ("America/New_York", "2026-07-01 08:00:00.250 -04:00"),
        ("UTC", "2026-07-01 12:00:00.250 UTC"),
    ],
)
def test_times_say_in_which_zone_they_are(
    page: Page, doors: DoorsProcess, http: httpx.Client, topic: str, where: str, shown: str
) -> None:
    done(http.post(f"/topics/{topic}/messages", json={"value": 1}))
    page.call("Emulation.setTimezoneOverride", timezoneId=where)
    try:
        page.go(f"{doors.http}/dashboard/topics/{topic}")
        page.wait("document.querySelector('.message-list time')")
        at = done(http.get(f"/topics/{topic}/messages/0/0"))["timestamp"]
        assert (
            page.run(
                f"{in_module(page, 'format.js')}.then((m) => m.moment('2026-07-01T12:00:00.250Z'))"
            )
            == shown
        )
        said = page.run(f"{in_module(page, 'format.js')}.then((m) => m.moment({json.dumps(at)}))")
        # In UTC on hover.
        time = "document.querySelector('.message-list time')"
        assert page.run(f"[{time}.innerText, {time}.title, {time}.dateTime]") == [said, utc(at), at]
        assert page.run("document.querySelector('.filters').innerText").count(said.split()[-1]) == 2
        page.go(f"{doors.http}/dashboard")
        page.wait("document.querySelectorAll('.chart .line').length > 0")
        label = page.run("document.querySelector('.chart svg').getAttribute('aria-label')")
        assert re.search(rf"since \d\d:\d\d:\d\d {re.escape(said.split()[-1])}:", label), label
        page.wait("document.getElementById('side-foot').innerText.includes('Times are')")
    finally:
        page.call("Emulation.setTimezoneOverride", timezoneId="")


def utc(moment: str) -> str:
    """As a browser writes it, with milliseconds."""
    at = datetime.fromisoformat(moment).astimezone(UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_module(page: Page, module: str) -> str:
    folder = page.run("document.querySelector('script[type=module]').src.replace(/main.js$/, '')")
    return f"import('{folder}{module}')"


# What is computed in the page.


@pytest.mark.parametrize(
    ("module", "expression", "value"),
    [
        ("format.js", "[0, 0.04, 9.95, 950, 12_400, 3.1e6, 999_999].map(m.short)",
         ["0", "0", "9.9", "950", "12.4k", "3.1M", "1M"]),
        ("format.js", "[0, 1023, 1024, 1536, 5 * 2 ** 30].map(m.bytes)",
         ["0 B", "1023 B", "1 KiB", "1.5 KiB", "5 GiB"]),
        ("format.js", "[0.4, 250, 59_999, 60_000, 3_725_000, 90_000_000].map(m.duration)",
         ["0.4 ms", "250 ms", "59 s", "1 min", "1 h 2 min", "1 d 1 h"]),
        ("format.js", "m.relative('2026-01-01T00:01:00Z', Date.parse('2026-01-01T00:00:00Z'))",
         "in 1 min"),
        ("format.js", "[0.01, 0, 1.5, 10_000].map((each) => m.setting('trace_sample', each))",
         ["0.01", "0", "1.5", "10,000"]),
        ("chart.js", "[0, 0.7, 3, 25, 41, 100].map(m.nice)", [1, 0.8, 4, 40, 60, 100]),
        ("chart.js", "m.summary('T', [{name: 'a', key: 'a'}], [], String)", "T: no samples yet"),
        ("value.js", "m.hexRows(new Uint8Array([72, 105, 0, 255]))",
         "00000000  48 69 00 ff                                        Hi··"),
        ("value.js", "m.textOf({value: 'AAE=', encoding: 'base64'})", None),
        ("value.js", "m.jsonOf({value: 'eyJhIjoxfQ==', encoding: 'base64'})", {"a": 1}),
        ("publish.js", "m.valueOf('base64', ' aGk= ')", {"value": "aGk=", "encoding": "base64"}),
        ("publish.js", "m.valueOf('JSON', ' [1] ')", {"value": [1]}),
    ],
)  # fmt: skip
def test_numbers_times_and_values_are_shown_as_people_read_them(
    page: Page, doors: DoorsProcess, module: str, expression: str, value: Any
) -> None:
    if "/dashboard" not in page.run("location.pathname"):
        page.go(f"{doors.http}/dashboard/node")
    assert page.run(f"{in_module(page, module)}.then((m) => {expression})") == value


# Under load.


def test_charts_move_while_messages_come_in(
    page: Page, doors: DoorsProcess, http: httpx.Client, topic: str
) -> None:
    page.go(f"{doors.http}/dashboard")
    page.wait("document.querySelectorAll('.chart .line').length > 0")
    line = "document.querySelector('.chart .line').getAttribute('d')"
    before = page.run(line)
    for _ in range(40):
        messages = [{"value": "x" * 100}] * 100
        done(http.post(f"/topics/{topic}/messages", json={"messages": messages}))
    page.wait(f"{line} !== {json.dumps(before)}", seconds=60)
    wait_text(page, topic)
    tall = "[...document.querySelectorAll('.tile dd')][0].innerText !== '0/s'"
    page.wait(f"{tall} || {line}.split('L').length > 3", seconds=60)


# Ten thousand partitions.


def test_the_first_view_of_ten_thousand_partitions_is_as_small_as_any(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    node = DoorsProcess(tmp_path_factory.mktemp("many") / "data")
    try:
        with httpx.Client(base_url=node.http, timeout=120) as http:
            for number in range(4):
                body = {"name": f"many-{number}", "partitions": PARTITIONS // 4}
                done(http.post("/topics", json=body), 201)
            page = browser.open(f"{node.http}/dashboard")
            wait_text(page, "10,000 partitions", "many-0")
            api = [url for url in page.requests if "/dashboard/api/" in url]
            assert len(api) <= API_REQUESTS_MAX, api
            sizes = {url: len(http.get(url.removeprefix(node.http)).content) for url in api}
            assert sum(sizes.values()) <= API_BYTES_MAX, sizes
            assets = {url for url in page.requests if "/assets/" in url}
            packed = {"accept-encoding": "gzip"}
            total = 0
            for url in assets:
                with http.stream("GET", url.removeprefix(node.http), headers=packed) as answer:
                    total += sum(map(len, answer.iter_raw()))
            assert total <= ASSET_BYTES_MAX
            page.go(f"{node.http}/dashboard/topics/many-1?tab=partitions")
            page.wait("document.querySelectorAll('tbody tr').length === 100")
            assert page.take_errors() == []
            page.close()
    finally:
        node.stop()
