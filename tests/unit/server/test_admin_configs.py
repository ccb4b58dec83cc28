"""Kafka's configuration names and our settings, in both directions."""

from __future__ import annotations

import pytest

from headrace.core.settings import GroupSettings, TopicSettings
from headrace.server.kafka.configs import (
    Entry,
    InvalidConfig,
)
from headrace.server.kafka.group_configs import GROUP_CONFIGS
from headrace.server.kafka.topic_configs import LONG_MAX, TOPIC_CONFIGS


def shown(settings: TopicSettings) -> dict[str, Entry]:
    return {entry.name: entry for entry in TOPIC_CONFIGS.describe(settings)}


def test_every_setting_has_exactly_one_name() -> None:
    for table, settings in ((TOPIC_CONFIGS, TopicSettings()), (GROUP_CONFIGS, GroupSettings())):
        named = [mapped.setting for mapped in table.mapped.values()]
        assert sorted(named) == sorted(settings.to_mapping())
        assert not table.mapped.keys() & table.fixed.keys()


def test_what_is_shown_can_be_set_again() -> None:
    settings = TopicSettings(
        durability="interval",
        retention_ms=None,
        retention_bytes=5_000,
        cleanup="compact",
        ordering="key",
        dedup=True,
        dead_letter_expired=True,
    )
    values = {entry.name: entry.value for entry in TOPIC_CONFIGS.describe(settings)}
    assert TOPIC_CONFIGS.changed(TopicSettings(), dict(values), is_new=True) == settings
    group = GroupSettings(start="earliest", backoff_factor=1.5, max_attempts=9)
    values = {entry.name: entry.value for entry in GROUP_CONFIGS.describe(group)}
    assert GROUP_CONFIGS.changed(GroupSettings(), dict(values)) == group


def test_no_limit_is_minus_one() -> None:
    settings = TOPIC_CONFIGS.changed(TopicSettings(), {"retention.ms": "-1"})
    assert settings.retention_ms is None
    assert shown(settings)["retention.ms"].value == "-1"
    assert shown(settings)["retention.bytes"].value == "-1"


def test_what_differs_from_its_default_is_set_and_can_be_deleted() -> None:
    settings = TOPIC_CONFIGS.changed(TopicSettings(), {"segment.bytes": "4096"})
    entry = shown(settings)["segment.bytes"]
    assert (entry.is_set, entry.default) == (True, str(TopicSettings().segment_bytes))
    settings = TOPIC_CONFIGS.changed(settings, {"segment.bytes": None})
    assert settings == TopicSettings()


def test_to_delete_what_is_unknown_or_not_set_changes_nothing() -> None:
    settings = TOPIC_CONFIGS.changed(
        TopicSettings(),
        {"no.such.config": None, "min.insync.replicas": None, "segment.bytes": "4096"},
    )
    assert settings == TopicSettings(segment_bytes=4096)


def test_flushing_shows_durability() -> None:
    pairs = {
        durability: (
            shown(TopicSettings(durability=durability))["flush.messages"].value,
            shown(TopicSettings(durability=durability))["flush.ms"].value,
        )
        for durability in ("synced", "interval", "os")
    }
    assert pairs == {
        "synced": ("1", LONG_MAX),
        "interval": (LONG_MAX, "1000"),
        "os": (LONG_MAX, LONG_MAX),
    }


def test_a_fixed_value_is_taken_only_where_it_holds() -> None:
    settings = TopicSettings()
    assert TOPIC_CONFIGS.changed(settings, {"min.insync.replicas": "1"}) == settings
    with pytest.raises(InvalidConfig, match=r"min\.insync\.replicas is always 1"):
        TOPIC_CONFIGS.changed(settings, {"min.insync.replicas": "2"})
    with pytest.raises(InvalidConfig, match=r"headrace\.durability"):
        TOPIC_CONFIGS.changed(settings, {"flush.ms": "1000"})
    # It is compared with what holds after the change, not before it.
    both = {"flush.ms": "1000", "headrace.durability": "interval"}
    assert TOPIC_CONFIGS.changed(settings, both).durability == "interval"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.config", "1"),
        ("headrace.retention_ms", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "0"),
        ("cleanup.policy", "compact,delete"),
        ("segment.bytes", "-1"),
        ("max.message.bytes", str(2**40)),
        ("headrace.dedup", "maybe"),
    ],
)
def test_a_wrong_configuration_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
        TOPIC_CONFIGS.changed(TopicSettings(), {name: value})


def test_order_is_chosen_when_a_topic_is_made() -> None:
    by_key = {"headrace.ordering": "key"}
    made = TOPIC_CONFIGS.changed(TopicSettings(), by_key, is_new=True)
    assert made.ordering == "key"
    assert shown(made)["headrace.ordering"].is_read_only
    with pytest.raises(InvalidConfig, match="ordering"):
        TOPIC_CONFIGS.changed(TopicSettings(), by_key)
    assert TOPIC_CONFIGS.replaced(made, {"retention.ms": "5"}) == TopicSettings(
        ordering="key", retention_ms=5
    )


def test_dead_letters_have_a_place_of_their_own() -> None:
    with pytest.raises(InvalidConfig, match=r"<topic>\.dlq"):
        GROUP_CONFIGS.changed(GroupSettings(), {"errors.deadletterqueue.topic.name": "failed"})


def test_a_group_of_this_wire_begins_at_the_end_unless_it_is_told_otherwise() -> None:
    assert GROUP_CONFIGS.defaults.start == "latest"
    told = GROUP_CONFIGS.changed(GROUP_CONFIGS.defaults, {"share.auto.offset.reset": "earliest"})
    assert told.start == "earliest"
    with pytest.raises(InvalidConfig, match=r"share\.auto\.offset\.reset"):
        GROUP_CONFIGS.changed(told, {"share.auto.offset.reset": "by_duration:PT1H"})
