"""`headrace work MODULE:APP` as a process: signals, reloading, functions that hang, and
names that are wrong."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]

# These are about processes that share a directory.
PLACES = ["directory"]
# Functions of 20 seconds run beside what follows; test_work_for_long.py looks at them.
pytestmark = pytest.mark.usefixtures("long_jobs")
Start = Callable[..., "subprocess.Popen[bytes]"]

WAIT_SECONDS = 60

SHOP = """
import threading
import headrace

app = headrace.App()
nothing = 1

@app.worker("orders", group="billing")
def bill(value: bytes) -> None:
    print("VERSION", value.decode(), flush=True)
    if value == b"stuck":
        threading.Event().wait()
"""

# One slot, so that one function that hangs is more than half of them.
HANGING_SHOP = """
import os
import threading
import headrace

app = headrace.App()

@app.worker("orders", group="billing", timeout=0.2, max_attempts=1)
def call(value: bytes) -> None:
    print("called", value.decode(), os.getpid(), os.environ.get("HEADRACE_REPLACED"), flush=True)
    if value == b"stuck":
        threading.Event().wait()
"""


@pytest.fixture
def shop(run: Run, tmp_path: Path) -> Path:
    run("topic", "create", "orders", "--partitions", "1")
    (tmp_path / "shop.py").write_text(SHOP.replace("VERSION", "billed"))
    return tmp_path


def line_of(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=WAIT_SECONDS)
    return line.decode().strip()


def test_an_app_works_until_it_is_told_to_stop(run: Run, start: Start, shop: Path) -> None:
    run("publish", "orders", "one", "two")
    worker = start("work", "shop:app", cwd=shop)
    assert [line_of(worker), line_of(worker)] == ["billed one", "billed two"]
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=WAIT_SECONDS)
    assert worker.returncode == 0
    assert b"stopped" in errors
    assert b"done=2" in errors
    assert '"state": "acked"' in run("status", "orders:0:1", "--group", "billing", "--json").stdout


def test_a_function_that_never_ends_does_not_hold_up_the_end(
    run: Run, start: Start, shop: Path
) -> None:
    run("publish", "orders", "stuck")
    worker = start("work", "shop:app", "--grace", "0s", cwd=shop)
    assert line_of(worker) == "billed stuck"
    worker.send_signal(signal.SIGINT)
    _, errors = worker.communicate(timeout=WAIT_SECONDS)
    assert worker.returncode == 0
    assert b"left alone" in errors
    answer = run("status", "orders:0:0", "--group", "billing", "--json").stdout
    assert '"state": "pending"' in answer
    assert '"attempts": 0' in answer


def test_an_app_is_started_again_when_a_file_changes(run: Run, start: Start, shop: Path) -> None:
    run("publish", "orders", "one")
    worker = start("work", "shop:app", "--reload", cwd=shop)
    assert line_of(worker) == "billed one"
    source = shop / "shop.py"
    lines = SHOP.replace("VERSION", "again").replace("nothing = 1", "print('reloaded', flush=True)")
    source.write_text(lines)
    os.utime(source, (2_000_000_000, 2_000_000_000))
    assert line_of(worker) == "reloaded"
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=WAIT_SECONDS)
    assert worker.returncode == 0


def test_a_process_whose_functions_hang_is_replaced_and_goes_on(
    run: Run, start: Start, shop: Path
) -> None:
    (shop / "shop.py").write_text(HANGING_SHOP)
    run("publish", "orders", "stuck", "fine")
    worker = start("work", "shop:app", cwd=shop)
    assert [line_of(worker), line_of(worker)] == [
        f"called stuck {worker.pid} None",
        # The same process by its number, and another one: it knows that it is.
        f"called fine {worker.pid} 1",
    ]
    worker.send_signal(signal.SIGTERM)
    _, errors = worker.communicate(timeout=WAIT_SECONDS)
    assert worker.returncode == 0
    assert b"1 function did not end when the timeout was over" in errors
    assert b"starting again in 1 s" in errors
    answer = run("status", "orders:0:0", "--group", "billing", "--json").stdout
    assert '"state": "dead-lettered"' in answer


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere:app", "there is no module 'nowhere' here"),
        ("shop:nothing", "'nothing' in shop is not a headrace.App"),
        ("shop:absent", "'absent' in shop is not a headrace.App"),
        (":app", "name an app as MODULE:APP"),
    ],
)
def test_an_app_that_is_not_there_is_named(
    run: Run, shop: Path, monkeypatch: pytest.MonkeyPatch, place: str, message: str
) -> None:
    monkeypatch.chdir(shop)
    monkeypatch.syspath_prepend(str(shop))
    assert message in run("work", place, code=2).stderr


def test_options_for_topics_are_refused_beside_an_app(run: Run, shop: Path) -> None:
    assert "give MODULE:APP alone" in run("work", "shop:app", "--count", "1", code=2).stderr
    assert "is for an app" in run("work", "orders", "--reload", code=2).stderr
    assert "--exec" in run("work", "orders", "--grace", "1s", code=2).stderr
