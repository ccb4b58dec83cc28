"""Topics: made, listed, altered, grown and deleted, through the SDK."""

from __future__ import annotations

import pytest
from tests.contract.conftest import SdkBackend

import headrace


def test_a_topic_is_made_with_three_partitions_unless_told_otherwise(
    handle: headrace.Headrace,
) -> None:
    assert len(handle.create_topic("orders").partitions) == 3
    assert len(handle.create_topic("audit", partitions=1).partitions) == 1
    assert [topic.name for topic in handle.topics()] == ["audit", "orders"]


def test_a_topic_that_exists_is_refused_unless_that_is_fine(handle: headrace.Headrace) -> None:
    made = handle.create_topic("orders", 2)
    with pytest.raises(headrace.TopicExists):
        handle.create_topic("orders", 2)
    assert handle.create_topic("orders", 2, exist_ok=True).id == made.id


def test_settings_are_kept_and_can_be_altered(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", durability="interval", retention_ms=60_000)
    assert handle.topic("orders").settings["durability"] == "interval"
    handle.alter_topic("orders", retention_ms=90_000)
    settings = handle.topic("orders").settings
    assert (settings["retention_ms"], settings["durability"]) == (90_000, "interval")


def test_a_topic_grows_and_its_new_partitions_are_used(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    assert len(handle.grow_topic("orders", 3).partitions) == 3
    assert handle.publish("orders", b"x", partition=2).partition == 2


def test_a_deleted_topic_is_gone_and_its_name_is_free(handle: headrace.Headrace) -> None:
    first = handle.create_topic("orders")
    handle.publish("orders", b"old")
    handle.delete_topic("orders")
    with pytest.raises(headrace.UnknownTopic):
        handle.topic("orders")
    assert handle.create_topic("orders").id != first.id
    assert handle.depth("orders") == 0


def test_a_missing_topic_says_how_to_make_it(handle: headrace.Headrace) -> None:
    with pytest.raises(headrace.UnknownTopic, match=r"create_topic|topic create"):
        handle.publish("orders", b"x")


def test_topics_are_made_by_publishing_and_by_nothing_else(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open(auto_create=True)
    handle.publish("orders", b"x")
    with pytest.raises(headrace.UnknownTopic):
        handle.queue("audit")
    with pytest.raises(headrace.UnknownTopic):
        handle.stream("audit", group="readers")
    with pytest.raises(headrace.UnknownTopic):
        handle.stream("audit").poll(wait=0)
    assert [topic.name for topic in handle.topics()] == ["orders"]


def test_records_before_an_offset_can_be_deleted(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    handle.publish_many("orders", [b"0", b"1", b"2"])
    handle.delete_records("orders", 0, 2)
    with handle.stream("orders") as stream:
        assert [record.offset for record in stream.poll(wait=0)] == [2]


def test_topics_in_which_the_node_keeps_offsets_are_neither_changed_nor_deleted(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 1)
    handle.publish("orders", b"x")
    with handle.stream("orders", "audit", start="earliest") as stream:
        assert len(stream.poll(wait=30)) == 1
        stream.commit()
    kept = handle.topic("__cursors")
    for change in (
        lambda: handle.delete_topic("__cursors"),
        lambda: handle.alter_topic("__cursors", retention_ms=1, cleanup="delete"),
        lambda: handle.grow_topic("__cursors", 99),
    ):
        with pytest.raises(headrace.InvalidArgument, match="the node's own"):
            change()
    assert handle.topic("__cursors") == kept


def test_a_setting_that_is_no_number_is_refused(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    with pytest.raises(headrace.InvalidArgument, match="trace_sample"):
        handle.alter_topic("orders", trace_sample=float("nan"))
    with pytest.raises(headrace.InvalidArgument, match="backoff_factor"):
        handle.queue("orders", backoff_factor=float("nan"))
