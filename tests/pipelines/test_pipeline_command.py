"""`headrace pipeline` without Spark: what there is, and what is wrong with a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException

from headrace.cli.main import cli
from headrace.core.errors import HeadraceError
from headrace.pipelines.__main__ import main
from headrace.pipelines.failing import as_one_line
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
    assert len(texts) == 5 and not any(re.search(r"<[a-z]+>", text) for text in texts)
    again = CliRunner().invoke(cli, command)
    assert again.exit_code == 2 and "is there already" in again.stderr


def test_spark_submit_takes_what_the_command_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "it.toml"
    config.write_text("topic = 'a'\nservers = 'x:1'")

    def ends(*arguments: str) -> tuple[int, str, str]:
        return (main(arguments), *capsys.readouterr())

    code, out, _ = ends("--where")
    assert code == 0 and Path(out.strip()).name == "__main__.py"
    # Settings that are given here overrule the file, and are checked as its own are.
    code, _, err = ends("rollup", "--config", str(config), "--once", "--set", "watermark=soon")
    assert code == 2 and "watermark must be a duration" in err and err.count("\n") == 1
    code, _, err = ends("rollup", "--config", str(config), "--set", "watermark=5m")
    assert code == 2 and "lake is missing" in err
    assert "--once" in ends("--help")[1]
    # Spark has its master by then.
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    code, _, err = ends("rollup", "--config", str(config), "--master", "local")
    assert code == 2 and "give --master to spark-submit, before the file" in err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            """[CAST_INVALID_INPUT] The value '1.5' cannot be cast to "BIGINT". If necessary set """
            """"spark.sql.ansi.enabled" to "false". SQLSTATE: 22018\n== DataFrame ==\n"expr" """,
            """[CAST_INVALID_INPUT] The value '1.5' cannot be cast to "BIGINT\"""",
        ),
        ("\none\n  two\n\nJVM stacktrace:\n\tat org.apache", "one two"),
        (
            "A worker failed:\nTraceback (most recent call last):\n  File 'x.py', line 1, in read\n"
            "    raise it\nheadrace.core.errors.DataLost: records are gone\n\n\tat org.apache",
            "A worker failed: headrace.core.errors.DataLost: records are gone",
        ),
        ("", "ValueError"),
    ],
)
def test_an_error_of_spark_is_one_line(text: str, line: str) -> None:
    assert as_one_line(ValueError(text)) == line


def test_what_spark_complains_about_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise PySparkException("[NO_ROOM] There is no room.\nJVM stacktrace:\nmuch")

    monkeypatch.setattr("headrace.pipelines.triage.run.run", fail)
    settings = settings_of("triage", read_toml(str(EXAMPLES / "triage.toml")))
    with pytest.raises(HeadraceError, match=r"^triage failed: \[NO_ROOM\] There is no room$"):
        PIPELINES["triage"].run(settings, master=None, say=print)
