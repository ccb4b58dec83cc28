"""A web page that uses the queue: enqueue and dequeue from a real browser."""

from __future__ import annotations

from tests.browser.chromium import Browser
from tests.doors.conftest import DoorsProcess

SCRIPT = """
new Promise((done, fail) => {
    const socket = new WebSocket(`ws://${location.host}/ws`);
    const seen = [];
    socket.onerror = () => fail(new Error("the socket failed"));
    socket.onmessage = (event) => {
        const frame = JSON.parse(event.data);
        if (frame.op === "welcome") {
            socket.send(JSON.stringify({op: "enqueue", id: 1, topic: "TOPIC",
                                        messages: [{value: {from: "a page"}}, {value: "text"}]}));
        } else if (frame.op === "done" && frame.id === 1) {
            socket.send(JSON.stringify({op: "dequeue", id: 2, topics: ["TOPIC"], group: "TOPIC",
                                        credit: 2}));
        } else if (frame.op === "message") {
            seen.push(frame.message);
            if (seen.length === 2) {
                socket.send(JSON.stringify({op: "ack", id: 3,
                                            receipts: seen.map((each) => each.receipt)}));
            }
        } else if (frame.op === "done" && frame.id === 3) {
            done({values: seen.map((each) => each.value),
                  acked: frame.results.map((each) => each.ok)});
        } else if (frame.op === "error") {
            fail(new Error(frame.detail));
        }
    };
})
"""


def test_a_page_enqueues_and_dequeues(browser: Browser, doors: DoorsProcess, topic: str) -> None:
    with browser.open(f"{doors.http}/docs") as page:
        answer = page.run(SCRIPT.replace("TOPIC", topic))
        assert answer == {"values": [{"from": "a page"}, "text"], "acked": [True, True]}
        assert page.take_errors() == []
        assert {url.split("/")[2] for url in page.requests if "://" in url} == {doors.doors["http"]}


def test_a_page_from_elsewhere_is_not_let_in(browser: Browser, doors: DoorsProcess) -> None:
    with browser.open("about:blank") as page:
        outcome = page.run(
            f"""new Promise((done) => {{
                const socket = new WebSocket("ws://{doors.doors["http"]}/ws");
                socket.onopen = () => done("open");
                socket.onclose = () => done("refused");
            }})"""
        )
        assert outcome == "refused"
