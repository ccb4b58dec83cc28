"""A shell completes every name that a command takes, from the directory that it would
work on."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem, ShellComplete
from tests.unit.cli.test_help import COMMANDS

import headrace
from headrace.cli.main import cli

# A word whose values are known, by its name in the function of the command.
TOPICS, QUEUES, STREAMS = ["clicks", "orders"], ["billing"], ["audit"]
STARTS = ["earliest", "latest"]
KNOWN: dict[str, list[str]] = {
    "topic": TOPICS,
    "topics": TOPICS,
    "start": STARTS,
    "priority": ["background", "critical", "high", "low", "normal"],
    "group": QUEUES,
}
# Where the same name is another thing.
ELSEWHERE: dict[tuple[str, str], list[str]] = {
    ("headrace consume", "group"): STREAMS,
    ("headrace topic describe", "name"): TOPICS,
    ("headrace topic alter", "name"): TOPICS,
    ("headrace topic grow", "name"): TOPICS,
    ("headrace topic delete", "name"): TOPICS,
    ("headrace group describe", "name"): STREAMS + QUEUES,
    ("headrace group alter", "name"): QUEUES,
    ("headrace group reset", "name"): STREAMS + QUEUES,
    ("headrace group delete", "name"): STREAMS + QUEUES,
    # A day, and not where a stream starts.
    ("headrace pipeline rebuild", "start"): [],
    ("headrace txn describe", "name"): [],
    ("headrace txn abort", "name"): [],
}
WORDS = [
    (path, parameter, ELSEWHERE.get((path, parameter.name or ""), KNOWN.get(parameter.name or "")))
    for path, command in COMMANDS.items()
    for parameter in command.params
]
# Anything may be in these: values, keys, ids, numbers, durations, addresses, other programs.
FREE = {
    "values", "key", "key_separator", "headers", "header", "dedup_id", "shell_command", "reason",
    "id_text", "ids", "what", "key_text", "text", "server", "kafka", "kafka_advertised", "http",
    "http_hosts", "http_origins", "grpc", "otlp_endpoint", "master", "only", "size", "z_order",
    # Settings of a pipeline, which has to be named first.
    "changes",
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completing") / "data"
    with headrace.open(path) as handle:
        for topic in TOPICS:
            handle.create_topic(topic, 1)
        handle.queue("orders", group="billing").close()
        with handle.stream("orders", group="audit") as stream:
            stream.seek("latest")
            stream.commit()
    return path


def completed(*words: str, begun: str = "") -> list[CompletionItem]:
    shell = ShellComplete(cli, {}, "headrace", "_HEADRACE_COMPLETE")
    return shell.get_completions(list(words), begun)


def values(*words: str, begun: str = "") -> list[str]:
    return [item.value for item in completed(*words, begun=begun)]


def way_to(path: str, parameter: click.Parameter) -> list[str]:
    """What is typed before the word itself."""
    option = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
    return [*path.split()[1:], *option]


@pytest.mark.parametrize(
    ("path", "parameter", "known"),
    [pytest.param(*each, id=f"{each[0]} {each[1].name}") for each in WORDS if each[2] is not None],
)
def test_names_are_completed_from_the_directory(
    data: Path, path: str, parameter: click.Parameter, known: list[str]
) -> None:
    found = values("--data", str(data), *way_to(path, parameter))
    assert [name for name in found if name in known] == known
    assert known or found == []


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        pytest.param(path, each, id=f"{path} {each.name}")
        for path, each, known in WORDS
        if known is None
    ],
)
def test_every_other_word_is_completed_too_or_may_be_anything(
    path: str, parameter: click.Parameter
) -> None:
    if isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count):
        return
    is_free = (
        parameter.name in FREE
        or (path, parameter.name) == ("headrace topic create", "name")
        or isinstance(parameter.type, type(click.INT) | type(click.FLOAT))
        or parameter.type.name in ("duration", "moment")
    )
    found = completed(*way_to(path, parameter))
    assert bool(found) is not is_free


def test_only_what_begins_like_it_is_offered(data: Path) -> None:
    assert values("--data", str(data), "consume", begun="or") == ["orders"]
    assert values("consume", "--data", str(data), begun="cl") == ["clicks"]
    assert values("work", "orders", "--data", str(data), "--group", begun="b") == ["billing"]
    assert values("work", "orders", "--data", str(data), "--group", begun="x") == []
    assert "retention_ms=" in values("topic", "create", "new", "--set", begun="ret")
    assert values("pipeline", "run", "rollup", "--set", begun="la") == ["lake="]
    assert values("--data", begun="da") == ["da"]


def test_what_works_on_files_alone_is_completed_from_them(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_URL", "127.0.0.1:1")
    assert values("log", "verify", "--data", str(data)) == TOPICS


@pytest.mark.parametrize("place", [["--data", "absent"], ["--server", "127.0.0.1:1"], []])
def test_what_cannot_be_looked_at_completes_nothing(
    place: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert values(*place, "consume") == []
    assert list(tmp_path.iterdir()) == []
