"""What failed is tried once more, alone, so that one bad moment does not fail a whole run.

With HEADRACE_FLAKY_MAX=n the tests that failed run again when all others are done: in one
process of their own, with nothing beside them.

    passes then         printed as FLAKY, with its name and its first failure; n tests may
    fails again         fails the run, as it would have done before
    flaky beyond n      the run fails, and every flaky test is named

What is not the failure of a test is never tried again: a worker that crashed, a module that
could not be collected, a skip where skips are forbidden, a run that was cut short or had no
tests. Nor are more than TRIED_MAX failures, which are no bad moment.

A flaky test is to be mended: it is not a test that passed. The closing line counts it apart.

Rejected: trying again at once in the same worker, as plugins do. That is under the load under
which it failed, and with the fixtures of its module, which may be what is broken.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

FLAKY_MAX = "HEADRACE_FLAKY_MAX"
# The descriptor of a pipe into which a second try writes how each phase of its tests went.
OUTCOMES = "HEADRACE_OUTCOMES"
TRIED_MAX = 20
REASON_MAX = 200

_flaky_key = pytest.StashKey[list[pytest.TestReport]]()


def try_again(session: pytest.Session, reporter: pytest.TerminalReporter) -> None:
    """Run again what failed, and set the status of the session by what came of it."""
    flaky_max = int(os.environ.get(FLAKY_MAX, "0"))
    failed = _failed_tests(session, reporter)
    if not flaky_max or not failed:
        return
    reporter.line("")
    if len(failed) > TRIED_MAX:
        reporter.line(f"{len(failed)} tests failed; more than {TRIED_MAX} are not tried again")
        return
    reporter.line(f"trying again, alone: {len(failed)} of {session.testscollected} tests")
    for nodeid, report in failed.items():
        reporter.line(f"  {nodeid} ({report.when}): {_reason(report)}")
    passed = _run_alone(session.config, reporter, failed)
    flaky = [report for nodeid, report in failed.items() if nodeid in passed]
    session.config.stash[_flaky_key] = flaky
    _count_apart(session.config, reporter, flaky)
    if len(flaky) == len(failed) <= flaky_max:
        session.exitstatus = pytest.ExitCode.OK


def list_flaky(reporter: pytest.TerminalReporter) -> None:
    """Print every flaky test: first the failure of each, then their names."""
    flaky = reporter.config.stash.get(_flaky_key, [])
    if not flaky:
        return
    flaky_max = int(os.environ[FLAKY_MAX])
    too_many = len(flaky) > flaky_max
    reporter.section("flaky: failed, and passed when tried again alone", yellow=True)
    for report in flaky:
        reporter.write_sep("_", report.nodeid, yellow=True)
        reporter.line(report.longreprtext)
        for name, text in report.sections:
            reporter.write_sep("-", name)
            reporter.line(text.rstrip("\n"))
    reporter.write_sep("-", "to be mended", yellow=True)
    for report in flaky:
        reporter.line(f"FLAKY {report.nodeid}")
    reporter.line(f"flaky: {len(flaky)}; at most {flaky_max} may be", red=too_many)


def note_outcome(report: pytest.TestReport) -> None:
    """In a second try: say of each phase of a test how it went."""
    pipe = os.environ.get(OUTCOMES)
    if pipe:
        line = json.dumps([report.nodeid, report.when, report.outcome]) + "\n"
        os.write(int(pipe), line.encode())


def is_second_try(report: pytest.TestReport) -> bool:
    """Whether a report is the one that stands for a flaky test in the counts."""
    return getattr(report, "second_try", False)


def _failed_tests(
    session: pytest.Session, reporter: pytest.TerminalReporter
) -> dict[str, pytest.TestReport]:
    """The first failure of each test by its name, in the order in which they are written.
    Empty where a second try could not make the run whole.

    That order keeps the tests of a module together. In the order in which they failed, those
    of other workers stand between them, and what a module shares is made twice.
    """
    if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return {}
    if session.shouldfail or session.shouldstop:
        return {}
    failed: dict[str, pytest.TestReport] = {}
    for report in [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]:
        # A module that was not collected has no phase, a worker that crashed one of its own.
        if report.when not in ("setup", "call", "teardown"):
            return {}
        failed.setdefault(report.nodeid, report)
    return dict(sorted(failed.items(), key=lambda item: _place(item[1])))


def _place(report: pytest.TestReport) -> tuple[str, int]:
    file, line, _ = report.location
    return file, line or 0


def _reason(report: pytest.TestReport) -> str:
    """What went wrong, in a line: whoever reads a long log reads this first."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longreprtext
    return text.strip().partition("\n")[0][:REASON_MAX]


def _run_alone(
    config: pytest.Config, reporter: pytest.TerminalReporter, nodeids: Iterable[str]
) -> set[str]:
    """Those that pass."""
    environment = {k: v for k, v in os.environ.items() if k != FLAKY_MAX}
    # Twice quiet: a closing line of its own would be taken for the one of the run.
    command = [sys.executable, "-m", "pytest", "-qq", f"--rootdir={config.rootpath}"]
    # A pipe holds what TRIED_MAX tests can say, so it can be read afterwards.
    outcomes, theirs = os.pipe()
    with os.fdopen(outcomes, encoding="utf-8") as said:
        try:
            done = subprocess.run(
                [*command, *nodeids],
                cwd=config.rootpath,
                env=environment | {OUTCOMES: str(theirs)},
                pass_fds=[theirs],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
        finally:
            os.close(theirs)
        lines = [json.loads(line) for line in said]
    if done.returncode != pytest.ExitCode.OK:
        reporter.section("tried again, alone")
        reporter.line(done.stdout)
    if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return set()
    ran = {nodeid for nodeid, when, outcome in lines if (when, outcome) == ("call", "passed")}
    return ran - {nodeid for nodeid, _, outcome in lines if outcome != "passed"}


def _count_apart(
    config: pytest.Config, reporter: pytest.TerminalReporter, flaky: list[pytest.TestReport]
) -> None:
    """In the closing line these are neither failed nor passed."""
    names = {report.nodeid for report in flaky}
    for category in ("failed", "error"):
        kept = [r for r in reporter.stats.pop(category, []) if r.nodeid not in names]
        if kept:
            reporter.stats[category] = kept
    for report in flaky:
        again = copy.copy(report)
        again.outcome, again.when, again.longrepr, again.sections = "passed", "call", None, []
        again.second_try = True  # type: ignore[attr-defined]
        config.hook.pytest_runtest_logreport(report=again)
