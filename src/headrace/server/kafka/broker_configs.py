"""A node's configuration as Kafka's clients read it, and what of it they may change.

    Kafka's name                        our setting               changed at run time
    group.share.session.timeout.ms      share_session_timeout_ms  yes
    transactional.id.expiration.ms      ..._expiration_ms         no: it is given at the start
    headrace.slow_request_ms            slow_request_ms           no; Kafka has no name for it
    leader.replication.throttled.rate   none                      kept and shown, of no effect:
                                                                  there is nobody to replicate to
    log.retention.ms                    what topics begin with    no: it is a topic's to change

A value comes from the first of these that has one: what this node was told (type 4, its id),
what all nodes were told (type 4, no name), how it was started, the default.

Rejected: taking secrets (passwords, sasl.jaas.config). There is nothing yet that they would
be for, and they would lie on the disk as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.node_settings import DEFAULTS, NodeSettings
from headrace.core.settings import TopicSettings
from headrace.server.kafka.configs import PREFIX, Entry, Given, InvalidConfig, Kind, Source, Synonym
from headrace.server.kafka.topic_configs import BROKER_NAMES, TOPIC_CONFIGS


class Ours(NamedTuple):
    """One of the node's settings."""

    name: str
    setting: str
    kind: Kind
    documentation: str
    is_dynamic: bool = True
    # What Kafka calls it where we say 0.
    unlimited: str | None = None

    def show(self, settings: NodeSettings) -> str:
        value = getattr(settings, self.setting)
        if self.unlimited is not None and not value:
            return self.unlimited
        return _show(value)


class Idle(NamedTuple):
    """A name of Kafka's that has no meaning here: what is told is kept and shown."""

    name: str
    kind: Kind
    # None: it is shown where it was told only, as Kafka does.
    default: str | None


_OURS = {
    each.name: each
    for each in (
        Ours(
            "auto.create.topics.enable", "auto_create_topics", Kind.BOOLEAN,
            "whether publishing to a topic that is not there makes it",
        ),
        Ours("num.partitions", "partitions", Kind.INT, "of topics that do not say"),
        Ours("max.connections", "connections_max", Kind.INT, "connections beyond are refused"),
        Ours(
            "max.connections.per.ip", "connections_per_address_max", Kind.INT,
            "how many of them one client address may have", unlimited=str(2**31 - 1),
        ),
        Ours(
            "connections.max.idle.ms", "connections_max_idle_ms", Kind.LONG,
            "how long a connection without a request may stay", False, "-1",
        ),
        Ours(
            "group.initial.rebalance.delay.ms", "rebalance_delay_ms", Kind.INT,
            "how long a new group waits for more members",
        ),
        Ours(
            "group.min.session.timeout.ms", "group_session_timeout_min_ms", Kind.INT,
            "the shortest session that a member may ask for",
        ),
        Ours(
            "group.max.session.timeout.ms", "group_session_timeout_max_ms", Kind.INT,
            "the longest session that a member may ask for",
        ),
        Ours("group.max.size", "group_members_max", Kind.INT, "the most members of a group"),
        *(
            Ours(f"group.{kind}.{bound}{name}", f"{kind}_{setting}{suffix}", Kind.INT, meaning)
            for kind in ("consumer", "share", "streams")
            for name, setting, meaning in (
                ("session.timeout.ms", "session_timeout", "how long a member may be silent"),
                ("heartbeat.interval.ms", "heartbeat_interval", "how often a member calls"),
            )
            for bound, suffix in (("", "_ms"), ("min.", "_min_ms"), ("max.", "_max_ms"))
        ),
        Ours(
            "group.consumer.migration.policy", "consumer_migration", Kind.STRING,
            "whether a group with members goes to the consumer protocol, back, or both",
        ),
        Ours("group.share.max.size", "share_members_max", Kind.INT, "the most members of a group"),
        Ours(
            PREFIX + "share_start", "share_start", Kind.STRING,
            "where a new share group begins: earliest, latest or by_duration:PT1H",
        ),
        Ours(
            PREFIX + "share_isolation", "share_isolation", Kind.STRING,
            "whether messages of a transaction wait for its end, in share groups",
        ),
        Ours(
            "group.share.delivery.count.limit", "share_deliveries_max", Kind.INT,
            "how often a message is delivered before it is a dead letter",
        ),
        Ours(
            "group.share.record.lock.duration.ms", "share_lock_ms", Kind.INT,
            "how long a lease lasts",
        ),
        Ours(
            "group.share.partition.max.record.locks", "share_partition_locks_max", Kind.INT,
            "how many messages of a partition may be out at a time",
        ),
        Ours(
            "group.streams.max.size", "streams_members_max", Kind.INT, "the most members of a group"
        ),
        Ours(
            "group.streams.num.standby.replicas", "streams_standby_replicas", Kind.INT,
            "how many copies of each task's state other processes keep",
        ),
        Ours(
            "group.streams.max.standby.replicas", "streams_standby_replicas_max", Kind.INT,
            "the most such copies that a group may be configured with",
        ),
        Ours(
            "group.streams.initial.rebalance.delay.ms", "streams_rebalance_delay_ms", Kind.INT,
            "how long a new group waits for more members",
        ),
        *(
            Ours(
                f"group.streams.{bound}assignment.interval.ms",
                f"streams_assignment_interval{suffix}", Kind.INT,
                "how long there is between two assignments",
            )
            for bound, suffix in (("", "_ms"), ("min.", "_min_ms"), ("max.", "_max_ms"))
        ),
        Ours(
            "socket.request.max.bytes", "request_bytes_max", Kind.INT, "the largest request", False
        ),
        Ours(
            "transaction.max.timeout.ms", "transaction_timeout_max_ms", Kind.INT,
            "the longest that a transaction may stay open",
        ),
        Ours(
            "transactional.id.expiration.ms", "transactional_id_expiration_ms", Kind.INT,
            "after how long without use a transactional id is forgotten", False,
        ),
    )
}  # fmt: skip

_IDLE = {
    each.name: each
    for each in (
        Idle("leader.replication.throttled.rate", Kind.LONG, None),
        Idle("follower.replication.throttled.rate", Kind.LONG, None),
        Idle("replica.alter.log.dirs.io.max.bytes.per.second", Kind.LONG, None),
        *(
            Idle(f"group.{kind}.{bound}assignment.interval.ms", Kind.INT, default)
            for kind in ("consumer", "share")
            for bound, default in (("", "1000"), ("min.", "0"), ("max.", "15000"))
        ),
        Idle("background.threads", Kind.INT, "10"),
        Idle("log.cleaner.backoff.ms", Kind.LONG, "15000"),
        Idle("log.cleaner.dedupe.buffer.size", Kind.LONG, "134217728"),
        Idle("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, "0.9"),
        Idle("log.cleaner.io.buffer.size", Kind.INT, "524288"),
        Idle("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, "1.7976931348623157E308"),
        Idle("log.cleaner.threads", Kind.INT, "1"),
        Idle("max.connection.creation.rate", Kind.INT, str(2**31 - 1)),
        Idle("metric.reporters", Kind.LIST, ""),
        Idle("num.io.threads", Kind.INT, "8"),
        Idle("num.network.threads", Kind.INT, "3"),
        Idle("num.recovery.threads.per.data.dir", Kind.INT, "2"),
        Idle("num.replica.fetchers", Kind.INT, "1"),
        # So many of them are remembered, for however long.
        Idle("producer.id.expiration.ms", Kind.INT, "86400000"),
        Idle("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit"),
        Idle("sasl.kerberos.min.time.before.relogin", Kind.LONG, "60000"),
        Idle("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, "0.05"),
        Idle("sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, "0.8"),
    )
}

_SECRET = ("password", "sasl.jaas.config", "keystore.key", "secret")
_AT_START = "it is given when the node starts: change it there"


class Levels(NamedTuple):
    """What was told this node, and all nodes; how the node was started."""

    own: Given
    all_nodes: Given
    started: NodeSettings

    def settings(self) -> NodeSettings:
        """What holds. InvalidConfig where the parts do not go together."""
        changes: dict[str, Any] = {}
        for name, value in (*self.all_nodes.items(), *self.own.items()):
            ours = _OURS.get(name)
            if ours is not None:
                changes[ours.setting] = 0 if value == ours.unlimited else value
        try:
            return self.started.changed(changes)
        except InvalidArgument as error:
            raise InvalidConfig(str(error)) from error

    def told(self, node: str) -> Given:
        """What this node was told; without its name, what all of them were."""
        return self.own if node else self.all_nodes

    def telling(self, node: str, told: Given) -> Levels:
        return self._replace(own=told) if node else self._replace(all_nodes=told)

    def fitting(self) -> tuple[Levels, dict[str, str]]:
        """The levels without what cannot hold, as by a version or a start with other bounds
        it could; and of each such name, why."""
        kept = Levels({}, {}, self.started)
        left = [(node, *each) for node in ("this", "") for each in self.told(node).items()]
        reasons: dict[str, str] = {}
        is_more = True
        # One may need another that comes behind it, such as a longer session.
        while is_more:
            is_more, tried, left = False, left, []
            for node, name, value in tried:
                more = kept.telling(node, {**kept.told(node), name: value})
                try:
                    more.settings()
                except InvalidConfig as error:
                    reasons[name] = str(error)
                    left.append((node, name, value))
                else:
                    kept, is_more = more, True
        return kept, {name: reasons[name] for _, name, _ in left}


class BrokerConfigs:
    """What a node, or all nodes, may be told. The settings follow from that."""

    def is_list(self, name: str) -> bool:
        return name in _IDLE and _IDLE[name].kind is Kind.LIST

    def shown(self, name: str, settings: NodeSettings, given: Given) -> str | None:
        return given.get(name, _IDLE[name].default) if name in _IDLE else None

    def given_after(
        self, given: Given, values: Mapping[str, str | None], *, whole: bool = False
    ) -> dict[str, str]:
        told = {} if whole else {**given}
        for name, value in values.items():
            if value is None:
                told.pop(name, None)
            else:
                told[name] = _checked(name, value.strip())
        return told

    def changed(
        self, settings: NodeSettings, values: Mapping[str, str | None], *, given: Given
    ) -> NodeSettings:
        return settings

    def replaced(
        self, settings: NodeSettings, values: Mapping[str, str | None], given: Given
    ) -> NodeSettings:
        return settings


def _checked(name: str, value: str) -> str:
    ours, idle = _OURS.get(name), _IDLE.get(name)
    if any(word in name for word in _SECRET):
        raise InvalidConfig(f"{name} is a secret, and there is nothing here that it would be for")
    if name in BROKER_NAMES.values():
        raise InvalidConfig(f"{name} cannot change for all topics: change it for a topic")
    is_dynamic = not name.startswith(PREFIX) if ours is None else ours.is_dynamic
    if not is_dynamic or name in _FIXED:
        raise InvalidArgument(f"{name} cannot change at run time: {_AT_START}")
    if ours is not None and ours.unlimited is not None and value.strip("+0") == "":
        raise InvalidConfig(f"{name}: 0 would let nobody in; {ours.unlimited} is any number")
    if idle is not None:
        _check_kind(name, idle.kind, value)
    elif ours is None:
        raise InvalidConfig(f"unknown configuration {name!r}")
    if len(value) > limits.CONFIG_CHARACTERS_MAX:
        raise InvalidConfig(f"the value of {name} is too long")
    return value


def _check_kind(name: str, kind: Kind, value: str) -> None:
    try:
        if kind in (Kind.INT, Kind.LONG):
            int(value)
        elif kind is Kind.DOUBLE:
            float(value)
    except ValueError:
        raise InvalidConfig(f"{name} is a number, not {value!r}") from None


# Names whose value follows from how the node was started.
_FIXED = {
    "advertised.listeners": Kind.STRING,
    "broker.id": Kind.INT,
    "default.replication.factor": Kind.INT,
    "delete.topic.enable": Kind.BOOLEAN,
    "group.consumer.assignors": Kind.LIST,
    "group.coordinator.rebalance.protocols": Kind.LIST,
    "group.share.assignors": Kind.LIST,
    "listeners": Kind.STRING,
    "log.dirs": Kind.STRING,
    "node.id": Kind.INT,
    "offsets.retention.minutes": Kind.INT,
    "offsets.topic.num.partitions": Kind.INT,
    "offsets.topic.replication.factor": Kind.INT,
    "process.roles": Kind.LIST,
    "transaction.partition.verification.enable": Kind.BOOLEAN,
    "transaction.state.log.num.partitions": Kind.INT,
}


def describe_node(levels: Levels, shown: Mapping[str, object]) -> list[Entry]:
    """All there is of one node; `shown` are values of the fixed names."""
    entries = [
        Entry(
            name, _show(shown[name]), True, True, _show(shown[name]), kind, _AT_START,
            (Synonym(name, _show(shown[name]), Source.BROKER),),
        )
        for name, kind in _FIXED.items()
    ]  # fmt: skip
    for topic in _topic_defaults():
        name = BROKER_NAMES[topic.name]
        synonyms = [Synonym(name, topic.default, Source.DEFAULT)]
        if topic.is_set_for_all:
            synonyms.insert(0, Synonym(name, topic.default, Source.NODES))
        entries.append(
            Entry(
                name, topic.default, True, topic.is_set_for_all, topic.default, topic.kind,
                topic.documentation, tuple(synonyms),
            )
        )  # fmt: skip
    named = {each.setting for each in _OURS.values()}
    ours = [
        *_OURS.values(),
        *(
            Ours(PREFIX + name, name, _kind_of(value), _AT_START, False)
            for name, value in DEFAULTS.to_mapping().items()
            if name not in named
        ),
    ]
    for each in ours:
        default, started = each.show(DEFAULTS), each.show(levels.started)
        below = [Synonym(each.name, default, Source.DEFAULT)]
        if started != default:
            below.insert(0, Synonym(each.name, started, Source.BROKER))
        entries.append(
            _entry(
                each.name, levels, below, each.kind, each.documentation,
                is_read_only=not each.is_dynamic,
            )._replace(is_sensitive="@" in started and each.setting == "otlp_endpoint")
        )  # fmt: skip
    for idle in _IDLE.values():
        if idle.default is not None or idle.name in levels.own or idle.name in levels.all_nodes:
            below = []
            if idle.default is not None:
                below = [Synonym(idle.name, idle.default, Source.DEFAULT)]
            entries.append(_entry(idle.name, levels, below, idle.kind, "kept, of no effect here"))
    return sorted(entries)


def describe_all_nodes(told: Given) -> list[Entry]:
    """What all nodes were told, and what they set for all of themselves."""
    entries = [
        topic._replace(is_set=True, synonyms=(Synonym(topic.name, topic.default, Source.NODES),))
        for topic in _topic_defaults()
        if topic.is_set_for_all
    ]
    for name, value in told.items():
        each = _OURS.get(name) or _IDLE[name]
        synonym = Synonym(name, value, Source.NODES)
        entries.append(Entry(name, value, False, True, value, each.kind, "", (synonym,)))
    return sorted(entries)


def _topic_defaults() -> list[Entry]:
    """What topics begin with, where a broker has a name for it."""
    return [each for each in TOPIC_CONFIGS.describe(TopicSettings()) if each.name in BROKER_NAMES]


def _entry(
    name: str,
    levels: Levels,
    below: Iterable[Synonym],
    kind: Kind,
    documentation: str,
    *,
    is_read_only: bool = False,
) -> Entry:
    synonyms = [*below]
    if name in levels.all_nodes:
        synonyms.insert(0, Synonym(name, levels.all_nodes[name], Source.NODES))
    if name in levels.own:
        synonyms.insert(0, Synonym(name, levels.own[name], Source.NODE))
    first, last = synonyms[0], synonyms[-1]
    is_set = first.source is not Source.DEFAULT
    return Entry(
        name, first.value or "", is_read_only, is_set, last.value or "", kind, documentation,
        tuple(synonyms),
    )  # fmt: skip


def _kind_of(value: object) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOLEAN
    return Kind.LONG if isinstance(value, int) else Kind.STRING


def _show(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
