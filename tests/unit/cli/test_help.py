"""Every command explains itself, with examples that can be typed as they stand."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from headrace.cli.command import Command, Group
from headrace.cli.main import cli
from headrace.cli.topic import topic

NOWHERE = click.Context(cli)


def all_commands(
    group: click.Group = cli, path: str = "headrace"
) -> Iterator[tuple[str, click.Command]]:
    yield path, group
    for name in group.list_commands(NOWHERE):
        command = group.get_command(NOWHERE, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from all_commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = dict(all_commands())
PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
# Without those in which one command is an argument of another.
DOCUMENTED = [
    line.removeprefix("$ ")
    for line in PAGE.splitlines()
    if line.startswith("$ ") and "$(" not in line
]
EXAMPLES = [
    (path, line.strip())
    for path, command in COMMANDS.items()
    if isinstance(command, Command | Group)
    for line in command.examples.strip().splitlines()
]


@pytest.mark.parametrize("path", COMMANDS)
def test_help_of_each_command_says_what_it_does_and_has_an_example(path: str) -> None:
    result = CliRunner().invoke(cli, [*path.split()[1:], "--help"])
    assert result.exit_code == 0
    assert COMMANDS[path].help
    _, _, examples = result.output.partition("Examples:\n")
    assert "headrace " in examples


@pytest.mark.parametrize(("path", "line"), EXAMPLES)
def test_each_example_can_be_typed_as_it_stands(path: str, line: str) -> None:
    parse(headrace_words(line))


@pytest.mark.parametrize("path", COMMANDS)
def test_the_page_about_the_command_line_has_each_command(path: str) -> None:
    assert path in PAGE


@pytest.mark.parametrize("line", DOCUMENTED)
def test_each_command_on_the_page_can_be_typed_as_it_stands(line: str) -> None:
    parse(headrace_words(line))


@pytest.mark.parametrize("path", [path for path in COMMANDS if path.count(" ") == 2])
def test_each_command_of_a_noun_takes_the_directory_after_its_name(path: str) -> None:
    assert any("--data" in option.opts for option in COMMANDS[path].params)
    assert any("--server" in option.opts for option in COMMANDS[path].params)


def test_the_commands_are_listed_in_the_order_in_which_they_were_added() -> None:
    names = list(topic.commands)
    assert topic.list_commands(NOWHERE) == names
    assert names != sorted(names)


@pytest.mark.parametrize(
    ("typed", "meant"), [("topik", "topic"), ("publsh", "publish"), ("topic lst", "list")]
)
def test_a_misspelt_command_says_which_was_meant(typed: str, meant: str) -> None:
    result = CliRunner().invoke(cli, typed.split())
    assert result.exit_code == 2
    assert "Did you mean" in result.output
    assert f"'{meant}'" in result.output.partition("Did you mean")[2]


@pytest.mark.process
@pytest.mark.parametrize(
    ("typed", "imported"),
    [("completion bash", {"headrace.cli.completion"}), ("completio", set())],
    ids=["known", "misspelt"],
)
def test_a_start_imports_the_command_that_it_uses_and_no_other(
    typed: str, imported: set[str]
) -> None:
    program = (
        "import atexit, sys; from headrace.cli.main import cli; "
        f"atexit.register(lambda: print(*sys.modules)); cli({typed.split()})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    modules = set(done.stdout.splitlines()[-1].split())
    commands = {f"headrace.cli.{name}" for name in cli.list_commands(NOWHERE)}
    assert modules & commands == imported


def test_a_shell_completes_the_names_of_all_commands() -> None:
    completion = ShellComplete(cli, {}, "headrace", "_HEADRACE_COMPLETE")
    found = [item.value for item in completion.get_completions([], "")]
    assert found == cli.list_commands(NOWHERE)


def parse(words: list[str]) -> None:
    """Every option and argument, with its type; runs nothing."""
    command: click.Command = cli
    context = click.Context(cli, info_name="headrace")
    while isinstance(command, click.Group):
        if isinstance(command, Group):
            words = command.spelled_out(words)
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    with command.make_context("example", words, parent=context) as made:
        assert {"directory", "server"} <= made.params.keys()


def headrace_words(line: str) -> list[str]:
    """The words behind `headrace`, up to where a pipe or a redirection begins."""
    words = shlex.split(line.replace('eval "$(', "").replace(')"', ""))
    words = words[words.index("headrace") + 1 :]
    for sign in ("|", ">", ";"):
        if sign in words:
            words = words[: words.index(sign)]
    return words
