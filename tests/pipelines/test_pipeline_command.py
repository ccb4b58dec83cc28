"""`headrace pipeline` without Spark: what there is, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.pipelines.registry import PIPELINES, settings_of
from headrace.pipelines.settings import read_toml

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "pipelines"


def test_every_pipeline_is_listed_and_has_an_example() -> None:
    result = CliRunner().invoke(cli, ["pipeline", "list", "--json"])
    names = [each["name"] for each in json.loads(result.stdout)]
    assert names == list(PIPELINES)
    for name in names:
        values = read_toml(str(EXAMPLES / f"{name}.toml"))
        assert settings_of(name, values).pipeline == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topic = 'a'", "servers is missing; say where the node is"),
        ("topic = 'a'\nservers = 'x:1'", "lake is missing; say where the tables go"),
        ("pipeline = 'audit'", "the settings are for the pipeline 'audit' and not for 'rollup'"),
        ("tpoic = 'a'", "unknown setting 'tpoic'; known are:"),
        ("topic = ", "cannot read"),
        ("topic = 'a'\nservers = 'x:1'\nlake = 'l'\nspark = 3", "spark must be a table of names"),
    ],
)
def test_a_file_that_is_wrong_gives_one_line_that_names_the_key(
    tmp_path: Path, text: str, message: str
) -> None:
    config = tmp_path / "it.toml"
    config.write_text(text)
    result = CliRunner().invoke(cli, ["pipeline", "run", "rollup", "--config", str(config)])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_pipeline_that_does_not_exist_is_answered_with_those_that_do(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["pipeline", "run", "roll", "--config", str(tmp_path)])
    assert result.exit_code == 2
    assert "there is no pipeline 'roll'; there are: rollup, archive" in result.stderr


def test_the_status_of_a_pipeline_that_has_not_run_yet_is_empty(tmp_path: Path) -> None:
    config = tmp_path / "it.toml"
    config.write_text(
        f"pipeline = 'rollup'\ntopic = 'a'\nservers = '127.0.0.1:1'\nlake = '{tmp_path}/lake'"
    )
    result = CliRunner().invoke(cli, ["pipeline", "status", "--config", str(config), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["batches"], found["last_batch"], found["lag"]) == (0, None, None)


def test_init_writes_a_project_and_overwrites_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    command = ["pipeline", "init", str(folder), "--topic", "orders", "--server", "10.0.0.1:9092"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    source = (folder / "transformations" / "events.py").read_text()
    assert '"orders"' in source and '"10.0.0.1:9092"' in source
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert len(texts) == 4 and not any("<topic>" in text or "<name>" in text for text in texts)
    again = CliRunner().invoke(cli, command)
    assert again.exit_code == 2 and "is there already" in again.stderr
