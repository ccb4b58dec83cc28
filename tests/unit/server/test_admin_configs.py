"""Kafka's configuration names and our settings, in both directions."""

from __future__ import annotations

import pytest

from headrace.core.node_settings import NodeSettings
from headrace.core.settings import GroupSettings, TopicSettings
from headrace.server.kafka.configs import (
    Entry,
    InvalidConfig,
)
from headrace.server.kafka.group_configs import queue_table
from headrace.server.kafka.topic_configs import LONG_MAX, TOPIC_CONFIGS

# As Kafka 4 has them.
KAFKAS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": LONG_MAX,
    "flush.ms": LONG_MAX,
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": LONG_MAX,
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": LONG_MAX,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
GROUP_CONFIGS = queue_table(NodeSettings())


def shown(settings: TopicSettings) -> dict[str, Entry]:
    return {entry.name: entry for entry in TOPIC_CONFIGS.describe(settings)}


def test_every_setting_has_exactly_one_name() -> None:
    for table, settings in ((TOPIC_CONFIGS, TopicSettings()), (GROUP_CONFIGS, GroupSettings())):
        named = [mapped.setting for mapped in table.mapped.values()]
        assert sorted(named) == sorted(settings.to_mapping())
        kinds = [table.mapped.keys(), table.fixed.keys(), table.kept.keys()]
        assert len(set().union(*kinds)) == sum(map(len, kinds))


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


def test_a_topic_has_kafkas_configurations_and_their_defaults() -> None:
    ours = {
        entry.name: entry.default
        for entry in shown(TopicSettings()).values()
        if not entry.name.startswith("headrace.")
    }
    # Ours is smaller: what all groups are done with goes by segments.
    assert ours.pop("segment.bytes") == str(64 << 20)
    assert ours == KAFKAS


def test_what_means_nothing_here_is_stored_and_shown_as_it_was_given() -> None:
    settings = TopicSettings()
    values = {
        "segment.index.bytes": "1000",
        "unclean.leader.election.enable": "TRUE",
        "leader.replication.throttled.replicas": "0:0,1:0",
        "min.insync.replicas": "1",
    }
    assert TOPIC_CONFIGS.changed(settings, dict(values)) == settings
    given = TOPIC_CONFIGS.given_after({}, {**values, "preallocate": None})
    entries = {entry.name: entry for entry in TOPIC_CONFIGS.describe(settings, None, given)}
    assert {name: entry.value for name, entry in entries.items() if entry.is_set} == values
    assert TOPIC_CONFIGS.given_after(given, {"segment.index.bytes": None}).keys() == (
        values.keys() - {"segment.index.bytes"}
    )


def test_what_was_set_shows_as_set_also_when_it_is_the_default() -> None:
    settings = TopicSettings()
    values = {"retention.ms": str(settings.retention_ms), "cleanup.policy": "delete"}
    assert TOPIC_CONFIGS.changed(settings, dict(values)) == settings
    given = TOPIC_CONFIGS.given_after({}, dict(values))
    entries = TOPIC_CONFIGS.describe(settings, values, given)
    assert [(entry.value, entry.is_set) for entry in entries] == [
        ("delete", True),
        (str(settings.retention_ms), True),
    ]
    # What was given is shown only for as long as it holds.
    altered = settings.changed({"retention_ms": 5_000})
    (entry,) = TOPIC_CONFIGS.describe(altered, ("retention.ms",), given)
    assert (entry.value, entry.is_set) == ("5000", True)


@pytest.mark.parametrize("policy", ["compact,delete", "delete,compact", "delete, compact"])
def test_both_policies_are_taken_in_any_order_and_shown_so(policy: str) -> None:
    settings = TOPIC_CONFIGS.changed(TopicSettings(), {"cleanup.policy": policy})
    assert settings.cleanup == "compact,delete"
    given = TOPIC_CONFIGS.given_after({}, {"cleanup.policy": policy})
    (entry,) = TOPIC_CONFIGS.describe(settings, ("cleanup.policy",), given)
    assert entry.value == policy


@pytest.mark.parametrize("policy", ["", " "])
def test_a_topic_may_have_no_cleanup_policy(policy: str) -> None:
    settings = TOPIC_CONFIGS.changed(TopicSettings(), {"cleanup.policy": policy})
    assert settings.cleanup is None
    given = TOPIC_CONFIGS.given_after({}, {"cleanup.policy": policy})
    (entry,) = TOPIC_CONFIGS.describe(settings, ("cleanup.policy",), given)
    assert (entry.value, entry.is_set) == ("", True)


@pytest.mark.parametrize("policy", [",", "delete,", "none"])
def test_a_cleanup_policy_without_a_name_is_refused(policy: str) -> None:
    with pytest.raises(InvalidConfig, match=r"cleanup\.policy cannot be"):
        TOPIC_CONFIGS.changed(TopicSettings(), {"cleanup.policy": policy})


@pytest.mark.parametrize(
    ("durability", "values"),
    [
        ("os", {"flush.ms": "1000"}),
        ("os", {"flush.messages": "1"}),
        ("interval", {"flush.messages": "1000"}),
        ("interval", {"flush.ms": "999"}),
    ],
)
def test_a_flush_that_the_durability_would_break_is_refused(
    durability: str, values: dict[str, str | None]
) -> None:
    settings = TopicSettings.from_mapping({"durability": durability})
    with pytest.raises(InvalidConfig, match=rf"{next(iter(values))} cannot be .*headrace\."):
        TOPIC_CONFIGS.changed(settings, values)
    # One that syncs before it answers does more than any of them asks for.
    synced = TOPIC_CONFIGS.changed(settings, {**values, "headrace.durability": "synced"})
    given = TOPIC_CONFIGS.given_after({}, values)
    with pytest.raises(InvalidConfig, match=r"headrace\."):
        TOPIC_CONFIGS.changed(synced, {"headrace.durability": durability}, given=given)
    # Another door may do that: the promise is not shown any more then.
    (entry,) = TOPIC_CONFIGS.describe(settings, values, given)
    assert (entry.value, entry.is_set) == (LONG_MAX, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", str(2**31 - 1)),
        ("retention.ms", "0"),
        ("retention.ms", LONG_MAX),
        ("retention.bytes", "0"),
        ("max.compaction.lag.ms", "1"),
        ("compression.type", "none"),
        ("delete.retention.ms", " 0 "),
    ],
)
def test_what_kafka_takes_is_taken(name: str, value: str) -> None:
    settings = TOPIC_CONFIGS.changed(TopicSettings(), {name: value})
    given = TOPIC_CONFIGS.given_after({}, {name: value})
    (entry,) = TOPIC_CONFIGS.describe(settings, (name,), given)
    assert (entry.value, entry.is_set) == (value.strip(), True)


def test_a_longer_interval_than_ours_is_kept() -> None:
    settings = TopicSettings(durability="interval")
    assert TOPIC_CONFIGS.changed(settings, {"flush.ms": "12345678"}) == settings


def test_all_that_is_given_replaces_what_was_given_before() -> None:
    given = {"segment.index.bytes": "1000", "headrace.ordering": "key", "retention.ms": "5"}
    values: dict[str, str | None] = {"preallocate": "true"}
    settings = TopicSettings(ordering="key", retention_ms=5)
    assert TOPIC_CONFIGS.replaced(settings, values, given) == TopicSettings(ordering="key")
    after = TOPIC_CONFIGS.given_after(given, values, whole=True)
    assert after == {"preallocate": "true", "headrace.ordering": "key"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.config", "1"),
        ("headrace.retention_ms", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", "1_000"),
        ("retention.ms", str(2**63)),
        ("cleanup.policy", "compact,"),
        ("cleanup.policy", "compact,archive"),
        ("min.insync.replicas", "2"),
        ("remote.storage.enable", "true"),
        ("preallocate", "maybe"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("message.timestamp.type", "Whenever"),
        ("message.timestamp.before.max.ms", "-1"),
        ("segment.index.bytes", "3"),
        ("segment.jitter.ms", "1.5"),
        ("leader.replication.throttled.replicas", "all"),
        ("leader.replication.throttled.replicas", "0:0," * 100_000 + "0:0"),
        ("min.cleanable.dirty.ratio", "1.1"),
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
    lately = GROUP_CONFIGS.changed(told, {"share.auto.offset.reset": "by_duration:PT1H"})
    assert lately.start == "by_duration:PT1H"
    with pytest.raises(InvalidConfig, match=r"share\.auto\.offset\.reset"):
        GROUP_CONFIGS.changed(told, {"share.auto.offset.reset": "by_duration:soon"})
