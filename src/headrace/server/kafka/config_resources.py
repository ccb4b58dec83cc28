"""What a configuration request is about: a topic, a group or this node.

    type    name            read                        changed
    2       a topic         its settings                yes
    4       the node's id   its settings, read-only     no
    4       empty           nothing: no defaults for    no
                            all nodes are kept here
    32      a group         its settings, or the        yes; a group that is not there
                            defaults                    yet is made as a queue group

Everything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from headrace.core.errors import DiskFull, HeadraceError, InvalidArgument
from headrace.engine.commit import Commit
from headrace.engine.coordinator.share import ShareGroup
from headrace.server.kafka.broker_configs import describe_broker
from headrace.server.kafka.configs import (
    NOTHING_GIVEN,
    Entry,
    Given,
    InvalidConfig,
    Resource,
    Settings,
    Source,
    Table,
)
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.group_configs import GROUP_CONFIGS
from headrace.server.kafka.topic_configs import TOPIC_CONFIGS


class Outcome(NamedTuple):
    code: int
    message: str | None


class Change(Protocol):
    """From the settings that are, and what clients have set, to what shall be."""

    def __call__(
        self, table: Table[Settings], settings: Settings, given: Given
    ) -> tuple[Settings, Given]: ...


Answer = TypeVar("Answer")


def attempt(work: Callable[[], Answer]) -> tuple[Outcome, Answer | None]:
    """Whatever the work says is wrong, as a code and a message."""
    try:
        return Outcome(Error.NONE, None), work()
    except InvalidConfig as error:
        return Outcome(Error.INVALID_CONFIG, str(error)), None
    except HeadraceError as error:
        return Outcome(code_of(error), str(error)), None
    except OSError as error:
        return Outcome(code_of(DiskFull(str(error))), str(error)), None


def describe(
    call: Call, kind: int, name: str, names: Sequence[str] | None
) -> tuple[Source, list[Entry]]:
    """The entries, and where those come from that are set."""
    broker = call.service.broker
    if kind == Resource.TOPIC:
        topic = broker.topics.named(name)
        return Source.TOPIC, TOPIC_CONFIGS.describe(topic.settings, names, topic.configs)
    if kind == Resource.GROUP:
        group = broker.topics.catalog.groups.get(name)
        settings = GROUP_CONFIGS.defaults if group is None else group.settings
        return Source.GROUP, GROUP_CONFIGS.describe(settings, names)
    if kind == Resource.BROKER:
        if not name:
            return Source.BROKER, []
        if name != str(call.service.node_id):
            raise InvalidArgument(f"there is only node {call.service.node_id}, not {name!r}")
        wanted = None if names is None else frozenset(names)
        entries = describe_broker(call)
        return Source.BROKER, [each for each in entries if wanted is None or each.name in wanted]
    raise InvalidArgument(f"resources of type {kind} have no configuration here")


def alter(
    call: Call,
    kind: int,
    name: str,
    change: Change,
    commit: Commit,
    *,
    validate_only: bool,
) -> None:
    """InvalidConfig, UnknownTopic and so on when it cannot be."""
    service = call.service
    broker, now_ms = service.broker, service.clock.now_ms()
    if kind == Resource.TOPIC:
        topic = broker.topics.named(name)
        if topic.is_internal:
            raise InvalidArgument(f"{name} is the node's own")
        wanted, given = change(TOPIC_CONFIGS, topic.settings, topic.configs)
        if not validate_only and (wanted != topic.settings or given != topic.configs):
            broker.topics.alter(topic, wanted.to_mapping(), now_ms, configs=given)
    elif kind == Resource.GROUP:
        group = broker.topics.catalog.groups.get(name)
        if group is None and _reads_streams(call, name):
            raise InvalidArgument(f"group {name!r} reads streams: it has no such configuration")
        settings = GROUP_CONFIGS.defaults if group is None else group.settings
        changed, _ = change(GROUP_CONFIGS, settings, NOTHING_GIVEN)
        if not validate_only and (group is None or changed != settings):
            broker.groups.open(name, (), changed.to_mapping(), now_ms, commit)
    elif kind == Resource.BROKER:
        raise InvalidConfig("a node's settings are given when it starts: change them there")
    else:
        raise InvalidArgument(f"resources of type {kind} have no configuration here")


def _reads_streams(call: Call, name: str) -> bool:
    live = call.door.groups.registry.find(name)
    has_members = live is not None and not live.is_empty()
    is_share = isinstance(live, ShareGroup)
    return name in call.service.broker.cursors.groups() or (has_members and not is_share)
