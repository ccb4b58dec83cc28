"""What holds for every test, whatever it tests.

Nothing outlives its test: a child process or a thread, daemon or not, that is still
running afterwards fails the test that left it, not a later and innocent one. What a
fixture of a module or a session started may run on, but while hypothesis draws only
those threads that are known to leave Python's chance alone: it takes every change of
that for one by the strategy, and fails.

Nothing is skipped in silence: the run ends with a list of what was skipped and
why. With HEADRACE_NO_SKIPS=1 a skip makes the run fail, which is how a change is
accepted.

    variable              effect
    HEADRACE_LONG=1       many more examples for every property
    HEADRACE_KILLS=n      how often a crash test kills
    HEADRACE_FLIPS=n      how many bits a rot test flips
    HEADRACE_ECOSYSTEM=1  also what runs for minutes in tests/ecosystem/beside
    HEADRACE_ELSEWHERE=x  which tests run in another place and time zone (test_elsewhere.py)
    HEADRACE_NO_SKIPS=1   a skip is a failure
    HEADRACE_FLAKY_MAX=n  what failed is tried again, alone; n may pass that way (second_try.py)
    CI=1                  properties try the same examples each time

Rejected: looking for leftovers once, at the end of the run. It is cheaper, but
it cannot say which test to repair.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from tests import second_try
from tests.scheduling import CompanyScheduling, check_companies, put_longest_first
from tests.short_tests import no_process_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

LEFTOVER_GRACE_MS = 2_000

# The long runs, each a marker. A file whose name has one of these in it, such as
# test_log_power_loss.py, is marked as a whole.
SOAKS = ("crash", "power_loss", "rot")

_PROJECT = Path(__file__).parent.parent
# Threads of fixtures that live as long as a session, by a part of their names. None of
# them draws from Python's chance.
_KEPT_BY_FIXTURES = {
    "loop-node": "the node in this process over which the contract of the doors is run",
    "headrace-sync-": "its syncs",
    "asyncio_": "the calls of its loop that can wait for a disk",
    "(_poll_wrapper)": "its gRPC, which sleeps until something comes",
    "headrace-link-": "the SDK's connection to the node whose metrics are compared",
    "headrace-watch-": "its watch for silence, which waits for a while and looks",
    "(serve_forever)": "what Spark's Python hears of its accumulators",
    "(recv_events)": "a WebSocket that reads; one that pings has a second thread, (keepalive)",
}
# What shells, nohup and runners ignore. Python itself ignores SIGPIPE, and gives it back.
_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
# Processes that Python's multiprocessing starts once and keeps for its own use.
_KEPT_BY_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")

# Images of Docker forbid bytecode, to be small. Every Python that a test starts would compile
# the whole product anew, which takes longer than most of them run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What Spark's own scripts give to every Java they start, also in programs and pages that
# run by themselves. Runs are short and cores are shared: one compiler and the simplest
# collector take a third less of them, and a start takes a sixth less of them when it does
# not verify the classes of Spark's own jars.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", os.environ["SPARK_SUBMIT_OPTS"])


def _register_profiles() -> None:
    database = DirectoryBasedExampleDatabase(_PROJECT / ".cache" / "hypothesis")
    # A deadline for each example would be an assertion on wall time, and slow
    # machines are not wrong.
    common = settings(
        deadline=None,
        database=database,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile("fast", common, max_examples=50)
    # Derandomized, so that a red run is red again on the next machine.
    settings.register_profile("ci", common, max_examples=50, derandomize=True, database=None)
    settings.register_profile("long", common, max_examples=2_000)
    if os.environ.get("HEADRACE_LONG") == "1":
        settings.load_profile("long")
    elif os.environ.get("CI"):
        settings.load_profile("ci")
    else:
        settings.load_profile("fast")


_register_profiles()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    # pyproject.toml says where the cache lies, and every setting must be known to some plugin:
    # runs that want no cache have none that knows this one.
    if pluginmanager.is_blocked("cacheprovider"):
        parser.addini("cache_dir", "where pytest would keep its cache")


@pytest.fixture(scope="session")
def kills() -> int:
    """How often a crash test kills the process under test."""
    return int(os.environ.get("HEADRACE_KILLS", "10"))


@pytest.fixture(scope="session")
def flips() -> int:
    """How many stored bits a rot test flips, one at a time."""
    return int(os.environ.get("HEADRACE_FLIPS", "300"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark of a test run: two cores, tasks tried up to four times. Whoever
    uses it runs in the same worker."""
    from tests.spark.session import start_session

    session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _plain_loggers() -> Iterator[None]:
    """When PySpark tells of a query's error it makes its own class that of all loggers that are
    made later, and those write JSON."""
    yield
    logging.setLoggerClass(logging.Logger)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for soak in SOAKS:
            if f"_{soak}_" in f"_{item.path.stem}_":
                item.add_marker(soak)
    check_companies(items)
    if hasattr(config, "workerinput"):
        put_longest_first(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    # Thousands of tests and their modules stay to the end. Python need not look through them
    # each time it looks for garbage.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with no_process_in(item):
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return CompanyScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


# However the run was started.


@pytest.fixture(scope="session", autouse=True)
def children_hear_signals() -> Iterator[None]:
    """A run in the background, under nohup or of some runner has signals ignored or blocked,
    and every process would inherit that. Ignored ones get a handler that does nothing: this
    process stays as it was told to be, and what it starts gets the signals as usual."""
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, [])
    ignored = [number for number in _SIGNALS if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, _ignore)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


# Leftovers.


@pytest.fixture(autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    # What wider fixtures started before this test is theirs to end.
    threads_before = set(threading.enumerate())
    if is_hypothesis_test(getattr(request.node, "obj", None)):
        _check_that_chance_is_left_alone(threads_before)
    children_before = _children()
    yield
    threads = [
        thread
        for thread in threading.enumerate()
        if thread not in threads_before and not _is_foreign(thread)
    ]
    # What is just ending gets the time to do so, and threads of what was dropped end when it
    # is collected, which is not to depend on chance; waiting is only paid for then.
    if threads:
        gc.collect()
    for thread in threads:
        thread.join(LEFTOVER_GRACE_MS / 1000)
    left = [f"thread {thread.name!r}" for thread in threads if thread.is_alive()]
    for pid in _children() - children_before:
        if not _ends_soon(pid):
            left.append(f"process {pid} ({_command_line(pid)})")
    if left:
        pytest.fail(f"the test left running: {', '.join(left)}", pytrace=False)


def _check_that_chance_is_left_alone(threads: set[threading.Thread]) -> None:
    unknown = sorted(
        thread.name
        for thread in threads
        if thread is not threading.main_thread()
        and not _is_foreign(thread)
        and not any(known in thread.name for known in _KEPT_BY_FIXTURES)
    )
    if unknown:
        pytest.fail(
            f"threads run beside a property: {', '.join(unknown)}; end them with their module, "
            "or name them in tests/conftest.py when they never use Python's random",
            pytrace=False,
        )


def _is_foreign(thread: threading.Thread) -> bool:
    """Whether nobody here can end a thread: one of a library written in C that once called
    into Python, which keeps its name for good, and those on which Spark's Java calls
    back, which end with the session of Spark. Neither uses Python's chance."""
    # Py4J has classes of its own for some threads, and functions of its own in the others.
    made_by = {type(thread).__module__, getattr(getattr(thread, "_target", None), "__module__", "")}
    return isinstance(thread, threading._DummyThread) or any(
        str(module).startswith("py4j.") for module in made_by
    )


def _children() -> set[int]:
    """Our child processes, of any thread; empty where there is no /proc."""
    pids: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            pids.update(int(pid) for pid in task.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            # The thread ended while we looked; its children moved to another.
            continue
    return pids


def _ends_soon(pid: int) -> bool:
    """Whether a process is over, or is within the grace. One that has ended and
    was not waited for is over too: it runs nothing."""
    command_line = _command_line(pid)
    if any(kept in command_line for kept in _KEPT_BY_PYTHON):
        return True
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(LEFTOVER_GRACE_MS))
    finally:
        os.close(descriptor)


def _command_line(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


# How the run ends: what was skipped, and what is tried again.


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    second_try.note_outcome(report)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    # Counted as what it is, and not shown as one more test.
    return ("flaky", "", "") if second_try.is_second_try(report) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    second_try.list_flaky(terminalreporter)
    _list_skips(terminalreporter)


def _list_skips(reporter: pytest.TerminalReporter) -> None:
    reasons = Counter(map(_reason, reporter.stats.get("skipped", [])))
    if not reasons:
        return
    forbidden = _skips_are_forbidden()
    reporter.section("a skip is a failure here" if forbidden else "skipped", red=forbidden)
    for reason, count in sorted(reasons.items()):
        reporter.line(f"{count:5}  {reason}")
    reporter.line(
        f"skipped: {sum(reasons.values())}; programs that tests need are installed with: make tools"
    )


# Within the reporter's own, which prints the closing line, and when all workers have ended.
@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    # Workers of pytest-xdist have no reporter; their controller counts for all.
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    second_try.try_again(session, reporter)
    if _skips_are_forbidden() and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _skips_are_forbidden() -> bool:
    return os.environ.get("HEADRACE_NO_SKIPS") == "1"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    location = report.nodeid or "collection"
    if isinstance(report.longrepr, tuple):
        return f"{location.split('::')[0]}: {report.longrepr[2].removeprefix('Skipped: ')}"
    return location
