"""Configurations of topics as Kafka's own clients set them, and what comes of them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import fresh_name

confluent: Any = import_module("confluent_kafka.admin")

TIMEOUT_SECONDS = 20

Change = tuple[str, str, str | None]


class Admin:
    """confluent-kafka's client, one topic at a time."""

    def __init__(self, bootstrap: str) -> None:
        self.client = confluent.AdminClient({"bootstrap.servers": bootstrap})

    def make(self, *, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        name = fresh_name()
        self.create(name, partitions=partitions, configs=configs)
        return name

    def create(
        self, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        wanted = confluent.NewTopic(name, partitions, 1, config=configs or {})
        _done(self.client.create_topics([wanted]))

    def change(self, name: str, *changes: Change) -> None:
        """Each a name, what is done (SET, DELETE, APPEND, SUBTRACT), and a value."""
        entries = [
            confluent.ConfigEntry(
                config, value, incremental_operation=getattr(confluent.AlterConfigOpType, what)
            )
            for config, what, value in changes
        ]
        resource = confluent.ConfigResource(
            confluent.ResourceType.TOPIC, name, incremental_configs=entries
        )
        _done(self.client.incremental_alter_configs([resource]))

    def shown(self, name: str) -> dict[str, Any]:
        resource = confluent.ConfigResource(confluent.ResourceType.TOPIC, name)
        found: dict[str, Any] = _done(self.client.describe_configs([resource]))
        return found

    def values(self, name: str, configs: Iterable[str]) -> dict[str, str]:
        shown = self.shown(name)
        return {config: shown[config].value for config in configs}

    def set_ones(self, name: str) -> set[str]:
        """Configurations that are not defaults."""
        return {entry.name for entry in self.shown(name).values() if not entry.is_default}


def _done(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_SECONDS)


@pytest.fixture(scope="module")
def admin(admin_node: NodeProcess) -> Admin:
    return Admin(admin_node.bootstrap)


def test_to_delete_what_is_unknown_or_not_set_succeeds_and_the_rest_is_done(admin: Admin) -> None:
    name = admin.make()
    admin.change(
        name,
        ("no.such.config", "DELETE", None),
        ("segment.bytes", "DELETE", None),
        ("min.insync.replicas", "DELETE", None),
        ("retention.ms", "SET", "60000"),
    )
    assert admin.shown(name)["retention.ms"].value == "60000"
    with pytest.raises(KafkaException) as refused:
        admin.change(name, ("no.such.config", "SET", "1"), ("retention.ms", "SET", "70000"))
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert admin.shown(name)["retention.ms"].value == "60000"
