"""The dashboard as it is served: its files, its policy, and the rule about changes."""

from __future__ import annotations

import re

import httpx
from tests.browser.chromium import Browser
from tests.doors.conftest import DoorsProcess, done, refused

from headrace.core.node_settings import NodeSettings
from headrace.server.http.dashboard import dashboard_routes

OURS = {"x-headrace-dashboard": "1"}


def test_the_root_leads_to_a_page_that_brings_everything_along(http: httpx.Client) -> None:
    moved = http.get("/")
    assert (moved.status_code, moved.headers["location"]) == (307, "/dashboard")
    page = http.get("/dashboard/topics/any")
    assert page.headers["content-type"].startswith("text/html")
    links = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert all(link.startswith(("/", "#")) for link in links)
    assets = [link for link in links if "/assets/" in link]
    assert len(assets) > 25
    for link in set(assets):
        answer = http.get(link)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        unchanged = http.get(link, headers={"if-none-match": answer.headers["etag"]})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert http.get("/dashboard/assets/x/../../node.py").status_code in (404, 200)
    assert http.get("/dashboard/assets/x/no.js").status_code == 404


def test_the_policy_confines_the_page_to_its_own_api(http: httpx.Client) -> None:
    policy = http.get("/dashboard").headers["content-security-policy"]
    host = f"{http.base_url.host}:{http.base_url.port}"
    assert f"connect-src {host}/dashboard/api/;" in policy
    assert "default-src 'none'" in policy and "'unsafe-inline'" not in policy
    assert "require-trusted-types-for 'script'" in policy


def test_a_read_only_dashboard_refuses_every_change(http: httpx.Client, topic: str) -> None:
    assert done(http.get("/dashboard/api/dashboard")) == {"actions": False}
    assert done(http.get(f"/dashboard/api/topics/{topic}"))["name"] == topic
    for method, path in (
        ("POST", f"/topics/{topic}/messages"),
        ("DELETE", f"/topics/{topic}"),
        ("PATCH", f"/topics/{topic}"),
        ("POST", "/transactions/abort"),
        ("POST", "/no/such/route"),
    ):
        answer = http.request(method, f"/dashboard/api{path}", json={}, headers=OURS)
        assert "--dashboard full" in refused(answer, 403, "dashboard-read-only")
    # The API beside it is what it was.
    done(http.post(f"/topics/{topic}/messages", json={"value": 1}))


def test_changes_come_only_from_pages_of_the_dashboard(full: DoorsProcess) -> None:
    with httpx.Client(base_url=full.http, timeout=60) as http:
        body = {"name": "from-elsewhere"}
        refused(http.post("/dashboard/api/topics", json=body), 403, "dashboard-read-only")
        strange = {**OURS, "origin": "http://elsewhere.example"}
        answer = http.post("/dashboard/api/topics", json=body, headers=strange)
        refused(answer, 403, "forbidden-origin")
        done(http.post("/dashboard/api/topics", json=body, headers=OURS), 201)
        assert http.get("/dashboard/api/no/such/route").status_code == 404


def test_a_dashboard_that_is_off_is_not_there() -> None:
    assert dashboard_routes(NodeSettings(dashboard="off"), []) == []
    assert dashboard_routes(NodeSettings(), [])


def test_the_browser_keeps_the_page_from_the_api_beside_its_own(
    browser: Browser, doors: DoorsProcess
) -> None:
    with browser.open(f"{doors.http}/dashboard") as page:
        page.wait("document.querySelector('h1')")
        outcome = page.run("fetch('/topics').then(() => 'reached', () => 'kept away')")
        assert outcome == "kept away"
        inner = "document.body.innerHTML = '<b>x</b>'"
        assert (
            page.run(f"(() => {{ try {{ {inner}; return 'set'; }} catch {{ return 'no'; }} }})()")
            == "no"
        )


def test_a_page_behind_another_goes_on(browser: Browser, doors: DoorsProcess) -> None:
    with browser.open(f"{doors.http}/dashboard") as behind:
        with browser.open(f"{doors.http}/dashboard/node"):
            assert behind.run("document.hidden") is False
            # It asks its node again and again, as if somebody looked at it.
            behind.wait("document.querySelectorAll('.chart .line').length > 0", seconds=60)
        assert behind.take_errors() == []
