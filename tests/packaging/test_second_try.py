"""What failed is tried once more, alone, and .ci/run asks for that: tests/second_try.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.packaging.conftest import Run

PROJECT = Path(__file__).parent.parent.parent
WORKERS = ("-n", "1", "--dist", "loadgroup")

# `once` is true in the first process that asks, whichever worker that is.
FLAKY = """
import os
import pytest
from pathlib import Path

def once(name):
    try:
        Path(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

def test_good():
    pass

"""


def flaky_tests(count: int) -> str:
    return (
        FLAKY
        + f"""
@pytest.mark.parametrize("number", range({count}))
def test_weak(number):
    print("the weather is bad")
    assert not once(f"weak-{{number}}")
"""
    )


def closing_line(output: str) -> str:
    return output.strip().splitlines()[-1].partition(" in ")[0]


@pytest.mark.parametrize("arguments", [(), WORKERS], ids=["alone", "workers"])
def test_what_passes_when_tried_again_is_named_and_does_not_fail_the_run(
    run: Run, arguments: tuple[str, ...]
) -> None:
    result = run(flaky_tests(3), *arguments, HEADRACE_FLAKY_MAX="3", HEADRACE_NO_SKIPS="1")
    assert result.returncode == 0, result.stdout
    for number in range(3):
        assert f"\nFLAKY tests/test_case.py::test_weak[{number}]\n" in result.stdout
    # What has to be mended is shown as it failed.
    assert "the weather is bad" in result.stdout
    assert "assert not once(" in result.stdout
    assert closing_line(result.stdout) == "1 passed, 3 flaky"


def test_more_flaky_tests_than_may_be_fail_the_run_and_are_all_named(run: Run) -> None:
    result = run(flaky_tests(4), HEADRACE_FLAKY_MAX="3")
    assert result.returncode == 1, result.stdout
    for number in range(4):
        assert f"\nFLAKY tests/test_case.py::test_weak[{number}]\n" in result.stdout
    assert "flaky: 4; at most 3 may be" in result.stdout
    assert closing_line(result.stdout) == "1 passed, 4 flaky"


def test_what_fails_again_fails_the_run(run: Run) -> None:
    body = flaky_tests(1) + "\ndef test_broken():\n    assert once(1) == 'never'\n"
    result = run(body, HEADRACE_FLAKY_MAX="3")
    assert result.returncode == 1, result.stdout
    assert "FLAKY tests/test_case.py::test_weak[0]" in result.stdout
    assert "FLAKY tests/test_case.py::test_broken" not in result.stdout
    assert closing_line(result.stdout) == "1 failed, 1 passed, 1 flaky"


def test_nothing_is_tried_again_where_that_is_not_asked_for(run: Run, tmp_path: Path) -> None:
    result = run(flaky_tests(1))
    assert result.returncode == 1, result.stdout
    assert closing_line(result.stdout) == "1 failed, 1 passed"


def test_what_is_tried_again_runs_in_one_process_and_nothing_else_does(
    run: Run, tmp_path: Path
) -> None:
    body = (
        FLAKY
        + """
@pytest.mark.parametrize("number", range(6))
def test_where(number):
    with open("where", "a") as file:
        file.write(f"{number} {os.getpid()}\\n")
    assert number > 2 or not once(f"weak-{number}")
"""
    )
    result = run(body, "-n", "2", HEADRACE_FLAKY_MAX="3")
    assert result.returncode == 0, result.stdout
    lines = [line.split() for line in (tmp_path / "where").read_text().splitlines()]
    assert sorted(number for number, _ in lines[:6]) == list("012345")
    assert sorted(number for number, _ in lines[6:]) == list("012")
    again = {process for _, process in lines[6:]}
    assert len(again) == 1
    assert not again & {process for _, process in lines[:6]}


def test_tests_of_one_module_share_their_fixtures_when_they_are_tried_again(run: Run) -> None:
    """Also where a test of another module failed between two of theirs."""
    body = (
        FLAKY
        + """
@pytest.fixture(scope="module")
def topic(tmp_path_factory):
    (tmp_path_factory.getbasetemp() / "topic").touch(exist_ok=False)

@pytest.fixture
def well():
    yield
    assert not once("well"), "not well"

def test_whose_teardown_fails(topic, well):
    pass

def test_that_fails(topic):
    assert not once("b")
"""
    )
    files = {"test_other.py": FLAKY + "\ndef test_other():\n    assert not once('other')\n"}
    result = run(body, files=files, HEADRACE_FLAKY_MAX="3")
    assert result.returncode == 0, result.stdout
    # What failed is told at once, in a line each.
    told = (
        "\n  tests/test_case.py::test_whose_teardown_fails (teardown): AssertionError: not well\n"
    )
    assert told in result.stdout


@pytest.mark.parametrize("phase", ["set up", "torn down"])
def test_an_error_in_a_fixture_is_tried_again_with_its_tests(run: Run, phase: str) -> None:
    setup, teardown = ("assert not once('fixture')", "pass")[:: 1 if phase == "set up" else -1]
    body = (
        FLAKY
        + f"""
@pytest.fixture(scope="module")
def node():
    {setup}
    yield
    {teardown}

def test_one(node):
    pass

def test_two(node):
    pass
"""
    )
    result = run(body, HEADRACE_FLAKY_MAX="3")
    assert result.returncode == 0, result.stdout
    assert "\nFLAKY tests/test_case.py::test_two\n" in result.stdout
    assert "error" not in closing_line(result.stdout)


def test_a_test_that_leaves_a_process_each_time_fails_the_run(run: Run) -> None:
    body = """
import subprocess, sys

def test_one():
    subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    raise AssertionError
"""
    result = run(body, HEADRACE_FLAKY_MAX="3")
    assert result.returncode == 1, result.stdout
    assert "FLAKY" not in result.stdout


def test_a_worker_that_crashes_fails_the_run_though_it_would_not_crash_again(run: Run) -> None:
    body = FLAKY + "\ndef test_deadly():\n    if once('life'):\n        os._exit(3)\n"
    result = run(body, *WORKERS, HEADRACE_FLAKY_MAX="3")
    assert result.returncode == 1, result.stdout
    assert "crashed while running" in result.stdout
    assert "FLAKY" not in result.stdout


def test_a_second_try_that_crashes_passes_nothing(run: Run) -> None:
    body = (
        flaky_tests(1)
        + """
def test_worse():
    if not once("worse"):
        os._exit(3)
    raise AssertionError
"""
    )
    result = run(body, HEADRACE_FLAKY_MAX="3")
    assert result.returncode == 1, result.stdout
    assert "FLAKY" not in result.stdout


@pytest.mark.parametrize("arguments", [(), WORKERS], ids=["alone", "workers"])
def test_a_module_that_cannot_be_collected_fails_the_run(
    run: Run, arguments: tuple[str, ...]
) -> None:
    body = FLAKY + "\nassert not once('import')\n"
    files = {"test_other.py": "def test_other():\n    assert False\n"}
    result = run(body, *arguments, files=files, HEADRACE_FLAKY_MAX="3")
    assert result.returncode not in (0, 5), result.stdout
    assert "trying again" not in result.stdout


def test_a_run_without_tests_fails(run: Run) -> None:
    result = run("", HEADRACE_FLAKY_MAX="3")
    assert result.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, result.stdout


def test_a_run_that_was_cut_short_is_not_made_good(run: Run) -> None:
    result = run(flaky_tests(2), "-x", HEADRACE_FLAKY_MAX="3")
    assert result.returncode == 1, result.stdout
    assert "FLAKY" not in result.stdout


def test_a_skip_fails_the_run_also_where_something_was_tried_again(run: Run) -> None:
    body = flaky_tests(1) + "\ndef test_skipping():\n    pytest.skip('no moon')\n"
    result = run(body, HEADRACE_FLAKY_MAX="3", HEADRACE_NO_SKIPS="1")
    assert result.returncode == 1, result.stdout
    assert "a skip is a failure here" in result.stdout


def test_many_failures_are_not_taken_for_a_bad_moment(run: Run) -> None:
    result = run(flaky_tests(21), HEADRACE_FLAKY_MAX="3")
    assert result.returncode == 1, result.stdout
    assert "trying again" not in result.stdout
    assert closing_line(result.stdout) == "21 failed, 1 passed"


def test_a_change_is_accepted_with_three_flaky_tests_and_properties_that_are_always_the_same() -> (
    None
):
    script = (PROJECT / ".ci" / "run").read_text()
    tests = script.index("\nstep make --no-print-directory test\n")
    for line in ("export CI=1", "export HEADRACE_NO_SKIPS=1", "export HEADRACE_FLAKY_MAX=3"):
        assert f"\n{line}\n" in script[:tests]
