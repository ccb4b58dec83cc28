"""A real browser, Debian's Chromium without a window, driven by its own protocol.

    with Browser(tmp_path) as browser:
        with browser.open("http://127.0.0.1:9080/docs") as page:
            page.run("document.title")

What a page writes to its console as an error, and every request it makes, is noted:
a page that is well has none of the first, and of the second only to its own origin.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from websockets.sync.client import ClientConnection, connect

WAIT_SECONDS = 60
PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")


# What a browser does by itself has no place in a test, and no network to do it in.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    # A page that another one hides rests, and its timers come once a second or a minute.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    "--window-size=1280,900",
)


class Browser:
    def __init__(self, folder: Path) -> None:
        assert PROGRAM is not None
        self._profile = folder / "profile"
        self._process = subprocess.Popen(
            [PROGRAM, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._port = self._read_port()
        self._stack = ExitStack()

    def _read_port(self) -> int:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "DevTools listening on" in line:
                return int(line.split("ws://")[1].split("/")[0].rpartition(":")[2])
        raise AssertionError("Chromium ended before it listened")

    def open(self, url: str) -> Page:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT"
        )
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            target = json.load(answer)
        # Between two tests nobody reads what the browser tells, and nobody answers a ping.
        # A page that is closed does not say goodbye either.
        connection = connect(
            target["webSocketDebuggerUrl"], max_size=None, ping_interval=None, close_timeout=0.5
        )
        page = Page(self._stack.enter_context(connection))
        page.go(url)
        return page

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)
        if self._process.stderr is not None:
            self._process.stderr.close()


class Page:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._last = 0
        self.errors: list[str] = []
        self.requests: list[str] = []
        # Which document the browser turned to last, and which of them is loaded.
        self._loading: str | None = None
        self._loaded: str | None = None
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        # Visible and focused, whichever other pages are open in the same browser.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def close(self) -> None:
        """A page that is left open goes on asking its node."""
        self._connection.send(json.dumps({"id": 0, "method": "Page.close"}))
        self._connection.close()

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def go(self, url: str) -> None:
        self._loading = self._loaded = None
        wanted = self.call("Page.navigate", url=url).get("loaderId")
        if wanted is None:
            # To another place in the same document.
            return
        # The page before, or the empty one of a new window, may be done with loading only now.
        while self._loaded != wanted:
            self._receive()

    def take_errors(self) -> list[str]:
        """What the page complained about since this was asked the last time. Taken, so that
        the errors of one test are never those of the next."""
        # The browser tells things in their order: what was said before is here then.
        self.run("1")
        taken, self.errors = self.errors, []
        return taken

    def forgive(self, *words: str) -> None:
        """Forget the errors in which all these words are."""
        self.run("1")
        self.errors = [each for each in self.errors if not all(word in each for word in words)]

    def take_requests(self) -> list[str]:
        """The addresses that the page asked for since this was asked the last time."""
        taken, self.requests = self.requests, []
        return taken

    def run(self, script: str) -> Any:
        """The value of an expression, also of a promise; AssertionError when it
        fails."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
            userGesture=True,
        )  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str, seconds: int = 30) -> Any:
        """The expression's value as soon as it is true."""
        return self.run(
            f"""new Promise((done, fail) => {{
                const end = performance.now() + {seconds * 1000};
                const look = () => {{
                    let found;
                    try {{ found = {script}; }} catch (error) {{ found = null; }}
                    if (found) done(found);
                    else if (performance.now() > end) fail(new Error({json.dumps(script)}));
                    else setTimeout(look, 30);
                }};
                look();
            }})"""
        )

    def emulate(self, *, scheme: str, reduced_motion: bool = False) -> None:
        """What the system of whoever looks wants."""
        motion = "reduce" if reduced_motion else "no-preference"
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path, *, dark: bool = False) -> None:
        # Colours that are on their way from one to the other are on no picture.
        self.emulate(scheme="dark" if dark else "light", reduced_motion=True)
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def call(self, method: str, **parameters: Any) -> Any:
        """One command of the browser's own protocol, and its result."""
        self._last += 1
        number = self._last
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._connection.recv(timeout=WAIT_SECONDS))
        method, parameters = message.get("method", ""), message.get("params", {})
        if method == "Page.frameNavigated" and "parentId" not in parameters["frame"]:
            self._loading = parameters["frame"]["loaderId"]
        elif method == "Page.loadEventFired":
            self._loaded = self._loading
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.errors.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(json.dumps(parameters["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        return message
