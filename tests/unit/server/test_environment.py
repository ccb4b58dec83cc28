"""Variables of our prefix that nothing reads are errors, wherever the environment is read."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.client.connecting import way_to
from headrace.core.environment import OWN_PREFIX, check_environment
from headrace.core.errors import InvalidArgument

# Put together here: names that are wrong on purpose are not to be found by test_tidy.py.
PREFIX = "HEADRACE" + "_"


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("KAKFA", "KAFKA"),
        ("KAFKA_PORT", "KAFKA"),
        ("URI", "URL"),
        ("DTA", "DATA"),
        ("PARTITION", "PARTITIONS"),
        ("LOGLEVEL", "LOG_LEVEL"),
        # Like a name of before, which is not what to write today.
        ("SERVR", "URL"),
    ],
)
def test_a_misspelt_variable_is_an_error_with_the_nearest_name(wrong: str, meant: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_environment({PREFIX + wrong: "1", "PATH": "/bin"})
    assert str(refused.value) == f"{PREFIX}{wrong} is not known; did you mean {PREFIX}{meant}?"


def test_every_wrong_variable_is_named_at_once() -> None:
    with pytest.raises(InvalidArgument, match=r"DTA is not known.*KAKFA is not known"):
        check_environment({PREFIX + "KAKFA": "", PREFIX + "DTA": "", PREFIX + "DATA": "d"})


def test_a_variable_like_no_other_is_an_error_that_says_how_to_have_ones_own() -> None:
    with pytest.raises(InvalidArgument, match=f"let its name begin with {OWN_PREFIX}"):
        check_environment({PREFIX + "QQQQ": "1"})
    check_environment({OWN_PREFIX + "QQQQ": "1"})


def test_what_kubernetes_says_of_a_service_called_headrace_is_no_error() -> None:
    said = {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "9092",
        "SERVICE_PORT_KAFKA": "9092",
        "PORT": "tcp://10.0.0.1:9092",
        "PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "PORT_9092_TCP_ADDR": "10.0.0.1",
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
    }
    check_environment({PREFIX + name: value for name, value in said.items()})
    with pytest.raises(InvalidArgument):
        check_environment({PREFIX + "PORT": "9092"})


def test_connecting_by_the_environment_refuses_a_misspelt_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PREFIX + "URI", "127.0.0.1:9092")
    with pytest.raises(InvalidArgument, match=f"did you mean {PREFIX}URL"):
        way_to(None)
    assert way_to("127.0.0.1:9092")


@pytest.mark.parametrize("words", [["serve"], ["config", "show"], ["topic", "list"], ["doctor"]])
def test_every_command_refuses_a_misspelt_variable_and_still_gives_its_help(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + "KAKFA", "127.0.0.1:0")
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 2
    assert refused.stderr == (
        f"error: {PREFIX}KAKFA is not known; did you mean {PREFIX}KAFKA? [invalid-argument]\n"
    )
    assert CliRunner().invoke(cli, ["--help"]).exit_code == 0
