"""The rules of tests/conftest.py, seen from outside: runs of small test files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.packaging.conftest import TESTS, Run
from tests.short_tests import SHORT

SKIPPING = """
import pytest

def test_one():
    pytest.skip("the moon is not full")

def test_two():
    pass
"""

SKIPPING_MODULE = """
import pytest

pytest.importorskip("a_module_that_nobody_has")

def test_one():
    pass
"""


def test_skips_are_listed_with_their_reason_at_the_end(run: Run) -> None:
    result = run(SKIPPING)
    assert result.returncode == 0, result.stdout
    assert "the moon is not full" in result.stdout
    assert "skipped: 1" in result.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "workers"])
def test_a_skip_fails_the_run_where_skips_are_forbidden(
    run: Run, arguments: tuple[str, ...]
) -> None:
    result = run(SKIPPING, *arguments, HEADRACE_NO_SKIPS="1")
    assert result.returncode == 1, result.stdout
    assert "the moon is not full" in result.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "workers"])
def test_a_skipped_module_fails_the_run_where_skips_are_forbidden(
    run: Run, arguments: tuple[str, ...]
) -> None:
    result = run(SKIPPING_MODULE, *arguments, HEADRACE_NO_SKIPS="1")
    assert result.returncode == 1, result.stdout
    assert "a_module_that_nobody_has" in result.stdout


def test_a_run_without_skips_passes_where_skips_are_forbidden(run: Run) -> None:
    result = run("def test_one():\n    pass\n", HEADRACE_NO_SKIPS="1")
    assert result.returncode == 0, result.stdout


def test_a_test_that_leaves_a_process_running_is_failed(run: Run) -> None:
    result = run(
        """
import subprocess, sys

kept = []

def test_one():
    kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_two():
    kept.pop().communicate(b"", 30)
"""
    )
    assert result.returncode == 1, result.stdout
    assert "the test left running: process" in result.stdout
    assert "2 passed, 1 error" in result.stdout


@pytest.mark.parametrize("daemon", [False, True])
def test_a_test_that_leaves_a_thread_running_is_failed(run: Run, daemon: bool) -> None:
    result = run(
        f"""
import threading

end = threading.Event()

def test_one():
    threading.Thread(target=end.wait, name="forgotten", daemon={daemon}).start()

def test_two():
    end.set()
"""
    )
    assert result.returncode == 1, result.stdout
    assert "the test left running: thread 'forgotten'" in result.stdout


def test_what_has_ended_is_not_a_leftover(run: Run) -> None:
    result = run(
        """
import subprocess, sys, threading
from hypothesis import given, strategies

def test_one():
    subprocess.Popen([sys.executable, "-c", "pass"]).wait(30)
    threading.Thread(target=int, daemon=True).start()

@given(strategies.integers())
def test_two(number):
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
"""
    )
    assert result.returncode == 0, result.stdout


BESIDE_A_PROPERTY = """
import threading
import pytest
from hypothesis import given, strategies

@pytest.fixture(scope="session", autouse=True)
def wide():
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="NAME")
    thread.start()
    yield
    end.set()
    thread.join()

@given(strategies.integers())
def test_one(number):
    pass

def test_two():
    pass
"""


def test_a_property_is_not_tried_beside_a_thread_that_nobody_knows(run: Run) -> None:
    result = run(BESIDE_A_PROPERTY.replace("NAME", "pinging"))
    assert "threads run beside a property: pinging" in result.stdout
    assert "1 passed, 1 error" in result.stdout


def test_a_property_is_tried_beside_a_thread_that_leaves_chance_alone(run: Run) -> None:
    result = run(BESIDE_A_PROPERTY.replace("NAME", "headrace-sync-0"))
    assert result.returncode == 0, result.stdout


# Workers.

WHERE = """
import os
import pytest

@pytest.mark.parametrize("number", range(10))
def test_where(number):
    # Where there is no group, these would go to both workers in turn.
    with open("where", "a") as file:
        file.write(f"{__name__.rpartition('.')[2]} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""


def test_what_shares_its_fixtures_runs_in_one_worker(run: Run, tmp_path: Path) -> None:
    browser = {f"browser/test_{name}.py": WHERE for name in ("first", "second")}
    result = run(WHERE, "-n", "2", "--dist", "loadgroup", files=browser)
    assert result.returncode == 0, result.stdout
    lines = (tmp_path / "where").read_text().splitlines()
    assert len(lines) == 30
    workers: dict[str, set[str]] = {}
    for line in lines:
        module, worker = line.split()
        workers.setdefault(module, set()).add(worker)
    assert len(workers["test_case"]) == 1
    assert len(workers["test_first"] | workers["test_second"]) == 1
    assert set.union(*workers.values()) == {"gw0", "gw1"}


def test_what_takes_longest_begins_and_the_rest_keeps_its_order(run: Run, tmp_path: Path) -> None:
    files = {"spark/test_long.py": WHERE, "browser/test_first.py": WHERE}
    result = run(WHERE, "-n", "1", "--dist", "loadgroup", files=files)
    assert result.returncode == 0, result.stdout
    lines = (tmp_path / "where").read_text().splitlines()
    order = list(dict.fromkeys(line.split()[0] for line in lines))
    assert order == ["test_long", "test_first", "test_case"]


def test_a_test_that_would_start_a_second_spark_is_refused(run: Run) -> None:
    result = run("def test_one(spark):\n    pass\n")
    assert "tests/test_case.py::test_one uses Spark" in result.stdout + result.stderr
    assert result.returncode == pytest.ExitCode.USAGE_ERROR


def test_the_plugin_is_found_without_any_set_up(run: Run) -> None:
    result = run("", "--fixtures")
    assert "headrace_memory" in result.stdout


def test_a_long_run_tries_more_examples(run: Run) -> None:
    body = """
from hypothesis import given, settings, strategies

def test_one():
    print("examples:", settings.default.max_examples)
"""
    result = run(body, "-s", HEADRACE_LONG="1")
    assert "examples: 2000" in result.stdout


def test_what_tests_start_keeps_its_bytecode_also_where_the_run_was_told_not_to(run: Run) -> None:
    body = """
import subprocess, sys

def test_one(tmp_path):
    (tmp_path / "module.py").touch()
    subprocess.run([sys.executable, "-c", "import module"], cwd=tmp_path, check=True)
    assert (tmp_path / "__pycache__").exists()
"""
    result = run(body, "-n", "1", PYTHONDONTWRITEBYTECODE="1")
    assert result.returncode == 0, result.stdout


def test_a_run_may_do_without_a_cache(run: Run, tmp_path: Path) -> None:
    settings = '[tool.pytest.ini_options]\naddopts = ["--strict-config"]\ncache_dir = "cache"\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    result = run("def test_one():\n    pass\n", "-p", "no:cacheprovider")
    assert result.returncode == 0, result.stdout + result.stderr
    assert not (tmp_path / "cache").exists()


# However it is started.

SIGNALS = """
import signal, subprocess, sys
import pytest

IGNORED = [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP]

@pytest.mark.parametrize("number", [*IGNORED, signal.SIGTERM])
def test_a_child_is_ended(number):
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with child:
        child.stdout.readline()
        child.send_signal(number)
        # Not ended by the signal, it would end well.
        child.communicate(b"\\n", 30)
    assert child.returncode == -number

def test_we_are_not():
    for number in IGNORED:
        signal.raise_signal(number)
"""


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "workers"])
def test_children_hear_signals_also_where_the_run_does_not(
    run: Run, arguments: tuple[str, ...]
) -> None:
    before = ["env", "--ignore-signal=INT,QUIT,HUP", "--block-signal=TERM"]
    result = run(SIGNALS, *arguments, before=before)
    assert result.returncode == 0, result.stdout


# Short tests.

STARTING = """
import subprocess, sys
import pytest

@pytest.fixture(scope="module")
def node():
    subprocess.run([sys.executable, "-c", ""])

@pytest.mark.process
def test_said():
    subprocess.run([sys.executable, "-c", ""])

def test_unsaid(node):
    pass
"""


def test_a_short_test_that_starts_a_process_has_to_say_so(run: Run) -> None:
    result = run("", files={"unit/test_one.py": STARTING, "doors/test_two.py": STARTING})
    assert result.returncode == 1, result.stdout
    said = "tests/unit/test_one.py::test_unsaid starts a process: mark it with pytest.mark.process"
    assert said in result.stdout
    assert "3 passed" in result.stdout


def test_the_inner_loop_has_the_short_tests_and_nothing_that_starts_a_process() -> None:
    recipes = (TESTS.parent / "Makefile").read_text().replace("\n\t", "\t").splitlines()
    [check] = [line for line in recipes if line.startswith("check:")]
    assert '-m "not process" $(SHORT_TESTS)' in check
    [folders] = [line for line in recipes if line.startswith("SHORT_TESTS :=")]
    assert folders == f"SHORT_TESTS := {' '.join(folder.rstrip('/') for folder in SHORT)}"
