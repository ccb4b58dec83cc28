"""Style as a test: what a reader of this code may rely on.

Each rule is one test that lists every place that breaks it, so a rule is learnt
once and not in review after review. The formatter and the linter hold the rules
that they know; these are the ones that they do not.
"""

from __future__ import annotations

import ast
import gc
import inspect
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from headrace.core import errors
from headrace.core.environment import KNOWN, OWN_PREFIX

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 80
SCRIPT_LINES_MAX = 300

PROJECT = Path(__file__).parent.parent
SOURCE = PROJECT / "src" / "headrace"
TESTS = PROJECT / "tests"

# Folders and endings that tell what was written by hand.
NOT_WRITTEN = {"node_modules", "build", "dist", "__pycache__", "data", "results"}
WRITTEN = set(
    ".c .cfg .css .env .h .html .ini .js .md .proto .pxd .py .pyx .sh .toml .ts .yaml .yml".split()
)
VARIABLE = re.compile(r"\bHEADRACE_[A-Z0-9_]*[A-Z0-9]\b")

# Names of modules, packages and classes that say nothing about what is inside.
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "manager", "misc", "common"}

# What the layers write to disk, and the page that describes it byte by byte.
FORMAT_PAGES = {
    "record/batch.py": "record-batch.md",
    "record/attributes.py": "queue-attributes.md",
    "log/segment.py": "segment.md",
}

# Modules of doors that reach the broker without a request, and what for.
AROUND_THE_CALLS = {
    "kafka/client_metrics.py": "configurations say which clients are asked for metrics",
    "kafka/door.py": "the Call itself, and settings that are changed while the node runs",
    "kafka/group_members.py": "members of groups, for whichever door shows them",
    "kafka/groups.py": "coordinators, which time drives as well as requests",
    "kafka/live_settings.py": "settings that are changed while the node runs",
    "kafka/member_journal.py": "coordinators, which time drives as well as requests",
    "kafka/names.py": "topics by name or id, for requests and for runs of them",
    "kafka/partitions.py": "partitions by name",
    "kafka/produce_runs.py": "runs: many requests of one connection as one",
    "kafka/share_groups.py": "share groups, which time drives as well as requests",
    "kafka/transactions.py": "the coordinator, which time drives as well as requests",
}


@pytest.fixture(autouse=True, scope="module")
def trees_for_this_module_only() -> Iterator[None]:
    """A million nodes that hold no cycles: looking for some takes longer than parsing, and so
    it would in every test that follows."""
    gc.disable()
    yield
    tree_of.cache_clear()
    nodes_of.cache_clear()
    gc.enable()


def test_no_module_is_longer_than_its_limit() -> None:
    too_long = []
    for path in python_files(SOURCE, TESTS):
        lines = path.read_text().count("\n")
        if lines > MODULE_LINES_MAX:
            too_long.append(f"{shown(path)}: {lines} lines")
    assert not too_long, listing(f"modules over {MODULE_LINES_MAX} lines", too_long)


def test_no_function_is_longer_than_its_limit() -> None:
    too_long = []
    for path in python_files(SOURCE, TESTS):
        for node in nodes_of(path):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                too_long.append(f"{shown(path)}:{node.lineno}: {node.name}, {lines} lines")
    assert not too_long, listing(f"functions over {FUNCTION_LINES_MAX} lines", too_long)


def test_every_module_opens_with_its_promise() -> None:
    silent = [
        shown(path)
        for path in python_files(SOURCE, TESTS)
        if path.read_text().strip() and not ast.get_docstring(tree_of(path))
    ]
    assert not silent, listing("modules without a docstring", silent)


def test_every_variable_of_the_environment_is_in_the_table() -> None:
    unknown = []
    for path in set(text_files()) - {SOURCE / "core" / "environment.py"}:
        for name in set(VARIABLE.findall(path.read_text(errors="ignore"))) - KNOWN:
            # Guards of C headers are no variables.
            if not name.startswith(OWN_PREFIX) and path.suffix != ".h":
                unknown.append(f"{shown(path)}: {name}")
    assert not unknown, listing("variables that core/environment.py does not know", unknown)


def test_no_name_is_empty_of_meaning() -> None:
    empty = []
    for path in python_files(SOURCE, TESTS):
        if EMPTY_NAMES & set(words(path.stem)) or EMPTY_NAMES & set(words(path.parent.name)):
            empty.append(shown(path))
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and EMPTY_NAMES & set(words(node.name)):
                empty.append(f"{shown(path)}:{node.lineno}: {node.name}")
    assert not empty, listing("names that say nothing", empty)


def test_no_work_is_left_for_later_in_a_comment() -> None:
    pattern = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
    found = [
        f"{shown(path)}:{number}: {line.strip()}"
        for path in python_files(SOURCE, TESTS)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, listing("unfinished work", found)


def test_every_module_postpones_its_annotations() -> None:
    late = [
        shown(path)
        for path in python_files(SOURCE, TESTS)
        if path.name != "__init__.py"
        and "from __future__ import annotations" not in path.read_text()
    ]
    assert not late, listing("modules without `from __future__ import annotations`", late)


def test_layers_below_the_platform_do_not_touch_the_world() -> None:
    # import-linter holds this contract too, and follows chains of imports; here
    # it is part of the tests, so that whoever runs only those learns of it.
    contract = forbidden_contract()
    forbidden = set(contract["forbidden_modules"])
    layers = [SOURCE / module.split(".")[1] for module in contract["source_modules"]]
    found = [
        f"{shown(path)}:{line}: {module}"
        for path in python_files(*layers)
        for line, module in imports_of(path)
        if module.split(".")[0] in forbidden
    ]
    assert not found, listing("imports that only the platform may have", found)


def test_doors_reach_the_broker_by_a_request_alone() -> None:
    """Which knows who asks and until when. The calls of `headrace.calls` carry it by themselves;
    a handler of Kafka's door has it in the Call by which it reaches the broker."""
    server = SOURCE / "server"
    doors = [server / name for name in ("http", "grpc", "remote", "kafka")]
    found = {
        path.relative_to(server).as_posix()
        for path in python_files(*doors)
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr in ("broker", "_broker")
        if not (path.parent.name == "kafka" and ast.unparse(node.value) in ("call", "self._call"))
    }
    around = found - AROUND_THE_CALLS.keys()
    assert not around, listing(
        "modules of doors that reach the broker by themselves", sorted(around)
    )
    unneeded = AROUND_THE_CALLS.keys() - found
    assert not unneeded, listing("modules that have no need of their exception", sorted(unneeded))


def test_numbers_of_errno_are_judged_in_one_module() -> None:
    found = []
    for path in python_files(SOURCE):
        if path == SOURCE / "core" / "system_errors.py":
            continue
        for node in nodes_of(path):
            # Whether there is a number at all may be asked anywhere.
            if isinstance(node, ast.Compare) and isinstance(
                node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn
            ):
                sides = [getattr(each, "attr", "") for each in ast.walk(node)]
                if "errno" in sides:
                    found.append(f"{shown(path)}:{node.lineno}")
    assert not found, listing("errors to be asked of core/system_errors.py", found)


def test_no_text_is_read_or_written_in_the_encoding_of_the_locale() -> None:
    # A file that was written under one locale is read under another, and names and values are
    # UTF-8 whatever the terminal is.
    found = []
    for path in python_files(SOURCE):
        for node in nodes_of(path):
            if not isinstance(node, ast.Call):
                continue
            given = {keyword.arg for keyword in node.keywords}
            called = ast.unparse(node.func)
            modes = [ast.unparse(mode) for mode in node.args[1:2]]
            is_text = (
                (called == "open" and not any("b" in mode for mode in modes))
                or called.endswith((".read_text", ".write_text"))
                or (called.startswith("subprocess.") and "text" in given)
            )
            if is_text and "encoding" not in given:
                found.append(f"{shown(path)}:{node.lineno}")
    assert not found, listing("text without encoding=", found)


def test_every_compiled_module_has_its_plain_twin_and_a_promise() -> None:
    odd = []
    for path in sorted(SOURCE.rglob("*.pyx")):
        plain = path.with_name(path.stem.removesuffix("_compiled") + ".py")
        if not path.stem.endswith("_compiled") or "@compiled\n" not in plain.read_text():
            odd.append(f"{shown(path)}: {shown(plain)} marks nothing with @compiled")
        source = path.read_text()
        if source.count("\n") > MODULE_LINES_MAX or '"""' not in source[:200]:
            odd.append(f"{shown(path)}: too long, or without a docstring")
    assert not odd, listing("compiled modules", odd)


def test_no_test_sleeps() -> None:
    # A sleep of our own on a manual clock takes no time, and asyncio.sleep(0)
    # only lets the others run; neither is meant here.
    sleeps = {"time.sleep", "asyncio.sleep", "trio.sleep", "anyio.sleep"}
    found = []
    for path in python_files(TESTS):
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in sleeps:
                if ast.unparse(node) != "asyncio.sleep(0)":
                    found.append(f"{shown(path)}:{node.lineno}")
            elif isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                if names & sleeps:
                    found.append(f"{shown(path)}:{node.lineno}")
    assert not found, listing("tests that sleep; wait for the condition instead", found)


def test_short_tests_say_which_of_them_start_a_process() -> None:
    # tests/short_tests.py holds it for every test as it runs; this finds it without running.
    starters = re.compile(
        r"^import subprocess|import .*\b(NodeProcess|DoorsProcess|Session)\b|\bstart: Start\b", re.M
    )
    folders = [TESTS / name for name in ("unit", "property")]
    silent = [
        shown(path)
        for path in python_files(*folders)
        if path.name.startswith("test_")
        and starters.search(path.read_text())
        and "pytest.mark.process" not in path.read_text()
    ]
    assert not silent, listing("short tests without pytest.mark.process", silent)


def test_no_test_names_a_group_of_workers() -> None:
    # The marker has no effect (tests/scheduling.py says why), and would be believed.
    found = [
        f"{shown(path)}:{node.lineno}"
        for path in python_files(TESTS)
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr == "xdist_group"
    ]
    assert not found, listing("tests marked for a worker; see tests/scheduling.py", found)


def test_every_temporary_directory_comes_from_pytest() -> None:
    # Those of pytest are closed to all other users.
    other_users = TESTS / "packaging" / "test_elsewhere.py"
    found = [
        f"{shown(path)}:{line}"
        for path in python_files(TESTS)
        for line, module in imports_of(path)
        if module == "tempfile" and path != other_users
    ]
    assert not found, listing("tempfile in tests; use tmp_path or tmp_path_factory", found)


def test_every_test_is_named_by_a_sentence() -> None:
    short = [
        f"{shown(path)}:{node.lineno}: {node.name}"
        for path in python_files(TESTS)
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(words(node.name)) < 4
    ]
    assert not short, listing("test names that are not sentences", short)


def test_what_a_test_defines_it_uses() -> None:
    # A scenario that nobody runs promises something, and passes whatever happens.
    unused = []
    for path in python_files(TESTS):
        for test in nodes_of(path):
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                used = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
                unused += [
                    f"{shown(path)}:{each.lineno}: {test.name}"
                    for each in test.body
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                    and each.name not in used
                    and not each.decorator_list
                ]
    assert not unused, listing("functions in tests that are never called", unused)


def test_scripts_of_the_dashboard_are_short_and_make_no_markup_from_data() -> None:
    # What a message holds becomes text, never markup and never code.
    markup = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\("
    )
    odd = []
    for path in sorted((SOURCE / "dashboard").rglob("*.js")):
        text = path.read_text()
        if text.count("\n") > SCRIPT_LINES_MAX or not text.startswith("// "):
            odd.append(f"{shown(path)}: too long, or does not open with its promise")
        if markup.search(text):
            odd.append(f"{shown(path)}: {markup.findall(text)}")
    assert not odd, listing("scripts of the dashboard", odd)


@pytest.mark.parametrize("module", sorted(FORMAT_PAGES))
def test_every_format_on_disk_has_its_page(module: str) -> None:
    page = PROJECT / "docs" / "formats" / FORMAT_PAGES[module]
    assert (SOURCE / module).is_file(), f"{module} moved: correct FORMAT_PAGES"
    assert page.is_file() and page.read_text().startswith("# "), f"{shown(page)} is missing"


def test_every_format_page_that_the_code_points_to_exists() -> None:
    dangling = [
        f"{shown(path)}: {page}"
        for path in python_files(SOURCE)
        for page in re.findall(r"docs/formats/[\w-]+\.md", path.read_text())
        if not (PROJECT / page).is_file()
    ]
    assert not dangling, listing("pages that do not exist", dangling)


def test_every_error_has_a_code_of_its_own() -> None:
    classes = [
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, errors.HeadraceError)
    ]
    inherited = [value.__name__ for value in classes if "code" not in vars(value)]
    assert not inherited, listing("errors without a code of their own", inherited)
    shared = [code for code, count in Counter(c.code for c in classes).items() if count > 1]
    assert not shared, listing("codes that several errors share", shared)
    odd = [c.code for c in classes if not re.fullmatch(r"[a-z]+(-[a-z]+)*", c.code)]
    assert not odd, listing("codes that are not lower-case words", odd)


def test_every_extra_that_the_code_asks_for_exists() -> None:
    extras = project_file()["project"]["optional-dependencies"]
    unknown = [
        f"{shown(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in python_files(SOURCE)
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and called_name(node) == "require" and len(node.args) == 2
        if not (isinstance(node.args[1], ast.Constant) and node.args[1].value in extras)
    ]
    assert not unknown, listing("extras that pyproject.toml does not have", unknown)


def test_constraints_pin_versions_and_name_no_place() -> None:
    lines = (PROJECT / "constraints.txt").read_text().splitlines()
    odd = [
        line
        for line in lines
        if line and not line.startswith("#") and not re.fullmatch(r"[\w.-]+==[\w.]+", line)
    ]
    assert not odd, listing("constraints that are not name==version", odd)
    addressed = [
        f"{name}: {line}"
        for name in ("constraints.txt", "pyproject.toml", "Makefile", "scripts/setup")
        for line in (PROJECT / name).read_text().splitlines()
        if re.search(r"https?://|--(extra-)?index-url|--find-links", line)
    ]
    assert not addressed, listing("addresses of registries", addressed)


# What the rules are made of.


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


def text_files() -> Iterator[Path]:
    """What people wrote: not what was built, fetched or recorded."""
    for folder, folders, names in os.walk(PROJECT):
        folders[:] = [
            each
            for each in folders
            if each not in NOT_WRITTEN and (each[0] != "." or each == ".ci")
        ]
        for path in (Path(folder, name) for name in names):
            if path.suffix in WRITTEN or path.name in ("Makefile", "run"):
                yield path


def python_files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            # Generated code keeps to the shape its generator gives it.
            if "generated" not in path.parts:
                yield path


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module


def called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def words(name: str) -> list[str]:
    """`ReadThing` and `read_thing` both become read, thing."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word for word in spaced.lower().split("_") if word]


def project_file() -> dict[str, Any]:
    return tomllib.loads((PROJECT / "pyproject.toml").read_text())


def forbidden_contract() -> dict[str, list[str]]:
    for contract in project_file()["tool"]["importlinter"]["contracts"]:
        if contract["id"] == "no-world-below-platform":
            return dict(contract)
    raise AssertionError("pyproject.toml has lost the contract about the platform")


def shown(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def listing(title: str, places: list[str]) -> str:
    return "\n  ".join([f"{title}:", *places])
