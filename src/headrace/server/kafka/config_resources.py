"""What a configuration request is about: a topic, a group or this node.

    type    name            read                        changed
    2       a topic         its settings                yes
    4       the node's id   its settings                what can change at run time
    4       empty           what all nodes were told    the same, for every node
    16      any             a subscription to metrics   yes
                            of clients
    32      a group         its settings, or those      yes, also before there is such a
                            that it would begin with    group

Everything else is refused by name. A request names each resource once, and for each
every configuration once; what it says of a resource twice is refused for that resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple, Protocol, TypeVar

from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument, LimitExceeded
from headrace.core.system_errors import disk_error
from headrace.engine.catalog import DEAD_LETTER_GROUP
from headrace.engine.coordinator.assignors import ASSIGNORS
from headrace.engine.coordinator.share import ASSIGNOR as SHARE_ASSIGNOR
from headrace.server.kafka.broker_configs import (
    BrokerConfigs,
    Levels,
    describe_all_nodes,
    describe_node,
)
from headrace.server.kafka.client_metrics import ClientMetricsConfigs
from headrace.server.kafka.configs import (
    Changeable,
    Entry,
    Given,
    InvalidConfig,
    Resource,
    Source,
    Values,
)
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.group_configs import GroupConfigs
from headrace.server.kafka.groups import is_group_id
from headrace.server.kafka.names import topic_named
from headrace.server.kafka.topic_configs import TOPIC_CONFIGS


class Outcome(NamedTuple):
    code: int
    message: str | None


class Change(Protocol):
    """From the settings that are, and what clients have set, to what shall be."""

    def __call__(
        self, table: Changeable[Values], settings: Values, given: Given
    ) -> tuple[Values, Given]: ...


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
        told = disk_error(error)
        return Outcome(code_of(told), str(told)), None


class Named(Protocol):
    """A resource of a request."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


def named_twice(resources: Iterable[Named]) -> Set[tuple[int, str]]:
    """The types and names of those that are there more than once."""
    counted = Counter((each.resource_type, each.resource_name) for each in resources)
    return {each for each, count in counted.items() if count > 1}


def check_request(
    kind: int,
    name: str,
    configs: Iterable[tuple[str, bool]],
    twice: Set[tuple[int, str]],
) -> None:
    """InvalidArgument where a request may not say this of a resource, whichever it is.
    `configs` are names, and whether each comes without a value that it would need."""
    if (kind, name) in twice:
        raise InvalidArgument(f"the request names {name!r} twice; say all of it at once")
    seen = set()
    for config, lacks_value in configs:
        if config in seen:
            raise InvalidArgument(f"the request names {config} twice")
        if lacks_value:
            raise InvalidArgument(f"{config} cannot be set to nothing; delete it instead")
        seen.add(config)


def describe(
    call: Call, kind: int, name: str, names: Sequence[str] | None
) -> tuple[Source, list[Entry]]:
    """The entries, and where those come from that are set."""
    broker = call.broker
    if kind == Resource.TOPIC:
        topic = topic_named(broker.topics, name)
        return Source.TOPIC, TOPIC_CONFIGS.describe(topic.settings, names, topic.configs)
    if kind == Resource.GROUP:
        _check_group(name)
        group = broker.topics.catalog.groups.get(name)
        table = GroupConfigs(call.door.settings)
        told = call.door.live.told(kind, name)
        settings = table.begin(told) if group is None else group.settings
        return Source.GROUP, table.describe(settings, names, told)
    if kind == Resource.BROKER:
        _check_node(call, name)
        wanted = None if names is None else frozenset(names)
        live = call.door.live
        if name:
            entries = _describe_node(call, live.levels())
        else:
            entries = describe_all_nodes(live.told(kind, name))
        return Source.BROKER, [each for each in entries if wanted is None or each.name in wanted]
    if kind == Resource.CLIENT_METRICS:
        _check_subscription(name)
        wanted = None if names is None else frozenset(names)
        entries = ClientMetricsConfigs().describe(call.door.live.told(kind, name))
        found = [each for each in entries if wanted is None or each.name in wanted]
        return Source.CLIENT_METRICS, found
    raise InvalidArgument(f"resources of type {kind} have no configuration here")


def alter(
    call: Call,
    kind: int,
    name: str,
    change: Change,
    *,
    validate_only: bool,
) -> None:
    """InvalidConfig, UnknownTopic and so on when it cannot be."""
    service = call.service
    broker, now_ms = call.broker, service.clock.now_ms()
    if kind == Resource.TOPIC:
        topic = topic_named(broker.topics, name)
        if topic.is_internal:
            raise InvalidArgument(f"{name} is the node's own")
        wanted, given = change(TOPIC_CONFIGS, topic.settings, topic.configs)
        if not validate_only and (wanted != topic.settings or given != topic.configs):
            broker.topics.alter(topic, wanted.to_mapping(), now_ms, configs=given)
    elif kind == Resource.GROUP:
        _alter_group(call, name, change, now_ms, validate_only=validate_only)
    elif kind == Resource.BROKER:
        _alter_node(call, name, change, now_ms, validate_only=validate_only)
    elif kind == Resource.CLIENT_METRICS:
        _alter_subscription(call, name, change, now_ms, validate_only=validate_only)
    else:
        raise InvalidArgument(f"resources of type {kind} have no configuration here")


# Groups.


def _alter_group(
    call: Call, name: str, change: Change, now_ms: int, *, validate_only: bool
) -> None:
    _check_group(name)
    broker, live = call.broker, call.door.live
    group = broker.topics.catalog.groups.get(name)
    table = GroupConfigs(call.door.settings)
    told = live.told(Resource.GROUP, name)
    settings, after = change(table, table.begin(told) if group is None else group.settings, told)
    if validate_only:
        return
    live.tell(Resource.GROUP, name, after, now_ms)
    if group is not None and settings != group.settings:
        broker.groups.alter(group, settings.to_mapping(), now_ms)


def _check_group(name: str) -> None:
    if not is_group_id(name):
        raise InvalidArgument("a group has a name")
    if name == DEAD_LETTER_GROUP:
        raise InvalidArgument(f"{name} is the node's own")


# Metrics of clients.


def _alter_subscription(
    call: Call, name: str, change: Change, now_ms: int, *, validate_only: bool
) -> None:
    _check_subscription(name)
    live = call.door.live
    _, after = change(ClientMetricsConfigs(), None, live.told(Resource.CLIENT_METRICS, name))
    if validate_only:
        return
    others = [key for key in live.configured(Resource.CLIENT_METRICS) if key != name]
    if after and len(others) >= limits.TELEMETRY_SUBSCRIPTIONS_MAX:
        raise LimitExceeded(
            f"there are {limits.TELEMETRY_SUBSCRIPTIONS_MAX} subscriptions, the most allowed"
        )
    live.tell(Resource.CLIENT_METRICS, name, after, now_ms)


def _check_subscription(name: str) -> None:
    if not 0 < len(name) <= limits.NAME_CHARACTERS_MAX:
        raise InvalidArgument("a subscription has a name")


# This node.


def _describe_node(call: Call, levels: Levels) -> list[Entry]:
    door, started = call.door, levels.started
    return describe_node(
        levels,
        {
            "advertised.listeners": f"PLAINTEXT://{door.advertised}",
            "broker.id": call.service.node_id,
            "default.replication.factor": 1,
            "delete.topic.enable": True,
            "group.consumer.assignors": ",".join(ASSIGNORS),
            "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
            "group.share.assignors": SHARE_ASSIGNOR,
            "listeners": f"PLAINTEXT://{door.address}",
            "log.dirs": started.data,
            "node.id": call.service.node_id,
            "offsets.retention.minutes": started.offsets_retention_ms // 60_000,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "process.roles": "broker,controller",
            "transaction.partition.verification.enable": started.transaction_version >= 2,
            "transaction.state.log.num.partitions": 1,
        },
    )


def _alter_node(call: Call, name: str, change: Change, now_ms: int, *, validate_only: bool) -> None:
    _check_node(call, name)
    live = call.door.live
    levels, told = live.levels(), live.told(Resource.BROKER, name)
    _, after = change(BrokerConfigs(), levels.started, told)
    # Whether it goes together with everything else that holds.
    ignored = told.keys() - levels.told(name).keys()
    holding = {
        each: value for each, value in after.items() if each not in ignored or value != told[each]
    }
    levels.telling(name, holding).settings()
    if not validate_only:
        live.tell(Resource.BROKER, name, after, now_ms)


def _check_node(call: Call, name: str) -> None:
    if name and name != str(call.service.node_id):
        raise InvalidArgument(f"there is only node {call.service.node_id}, not {name!r}")
