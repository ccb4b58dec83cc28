"""A node's settings: who has the last word, and what is refused, with where it stands."""

from __future__ import annotations

import pytest

from headrace.core.errors import InvalidArgument
from headrace.core.node_settings import Address, NodeSettings, node_settings, sourced_settings


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() -> None:
    file = {"partitions": 1, "connections_max": 1, "log_level": "error"}
    environment = {"HEADRACE_PARTITIONS": "2", "HEADRACE_CONNECTIONS_MAX": "2"}
    flags = {"partitions": 3, "insecure": None}
    settings, sources = sourced_settings(file, environment, flags, file_name="node.toml")
    assert (settings.partitions, settings.connections_max, settings.log_level) == (3, 2, "error")
    assert settings.kafka == NodeSettings().kafka
    assert sources["partitions"] == "--partitions"
    assert sources["connections_max"] == "HEADRACE_CONNECTIONS_MAX"
    assert sources["log_level"] == "node.toml"
    assert sources["kafka"] == "default"
    assert sources["insecure"] == "default"


@pytest.mark.parametrize(
    ("file", "environment", "flags", "where"),
    [
        ({"partition": 1}, {}, {}, "node.toml"),
        ({"partitions": "many"}, {"HEADRACE_PARTITIONS": "1"}, {}, "node.toml"),
        ({}, {"HEADRACE_PARTITIONS": "0"}, {}, "HEADRACE_PARTITIONS"),
        ({}, {}, {"kafka": "nowhere"}, "--kafka"),
        ({}, {}, {"kafka_advertised": "x"}, "--kafka-advertised"),
    ],
)
def test_a_wrong_value_is_reported_with_where_it_stands(
    file: dict[str, object], environment: dict[str, str], flags: dict[str, object], where: str
) -> None:
    with pytest.raises(InvalidArgument, match=where):
        sourced_settings(file, environment, flags, file_name="node.toml")


@pytest.mark.parametrize("value", ["never", "by_duration:1h", "by_duration:P"])
def test_where_share_groups_begin_is_checked(value: str) -> None:
    with pytest.raises(InvalidArgument, match="share_start"):
        node_settings({"share_start": value}, {}, {})


def test_settings_that_bound_one_another_may_come_from_different_places() -> None:
    environment = {"HEADRACE_SHARE_SESSION_TIMEOUT_MAX_MS": "120000"}
    settings = node_settings({"share_session_timeout_ms": 90_000}, environment, {})
    assert settings.share_session_timeout_ms == 90_000
    with pytest.raises(InvalidArgument, match="share_session_timeout_ms"):
        node_settings({"share_session_timeout_ms": 90_000}, {}, {})
    with pytest.raises(InvalidArgument, match=r"node\.toml.*share_lock_ms"):
        sourced_settings({"share_lock_ms": "long"}, {}, {}, file_name="node.toml")


@pytest.mark.parametrize(
    "address", ["0.0.0.0:9092", "192.168.0.1:9092", "[::]:9092", "127.example.org:9092"]
)
def test_an_address_beyond_this_machine_needs_a_word_of_consent(address: str) -> None:
    with pytest.raises(InvalidArgument, match="--insecure"):
        node_settings({}, {}, {"kafka": address})
    assert node_settings({"insecure": True}, {}, {"kafka": address}).kafka == address


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "127.8.9.1:1", "[::1]:9092", "localhost:0"])
def test_loopback_needs_none(address: str) -> None:
    assert node_settings({}, {}, {"kafka": address}).kafka == address


@pytest.mark.parametrize("text", ["[::1]:9092", "127.0.0.1:0", "broker-1.internal:65535"])
def test_an_address_is_printed_as_it_was_written(text: str) -> None:
    assert str(Address.parse("kafka", text)) == text


@pytest.mark.parametrize("text", ["", ":9092", "::1:9092", "host", "host:", "host:65536", "h:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="must look like"):
        Address.parse("kafka", text)
