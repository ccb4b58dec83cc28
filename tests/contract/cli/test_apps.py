"""`headrace work MODULE:APP` as a process: signals, reloading, and names that are wrong."""

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
    assert message in run("work", place, code=1).stderr


def test_options_for_topics_are_refused_beside_an_app(run: Run, shop: Path) -> None:
    assert "give MODULE:APP alone" in run("work", "shop:app", "--count", "1", code=2).stderr
    assert "are for an app" in run("work", "orders", "--reload", code=2).stderr
