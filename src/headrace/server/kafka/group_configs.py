"""Configurations of groups: what a group is told by name, and what it shows.

    share.delivery.count.limit, ...      a setting of the queue group that the share group is
    headrace.backoff_ms, ...             the same, that Kafka has no name for
    consumer.session.timeout.ms, ...     how its members live: kept beside the group

What is configured is kept by the group's name, as in Kafka: also before there is such a
group, and after it is gone. A group that is made on this wire begins with the node's
defaults, which are Kafka's: at the end, without waiting for transactions, and what is
released comes again at once. One that the SDK made has the SDK's settings, and shows them
here as set.

Rejected: Kafka's narrow bounds for locks and deliveries (15 to 60 s, 2 to 10). Whoever asks
for more or less here gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from headrace.core import limits
from headrace.core.node_settings import DEFAULTS, NodeSettings
from headrace.core.settings import GroupSettings
from headrace.server.kafka.configs import (
    Entry,
    Fixed,
    Given,
    InvalidConfig,
    Kept,
    Kind,
    Mapped,
    Source,
    Synonym,
    Table,
    always,
)

Value = TypeVar("Value", str, str | None)


class MemberRule(NamedTuple):
    """How members of a group live. The node has the default, and most of the bounds."""

    name: str
    # The node's setting, which is the coordinator's rule, too.
    setting: str
    documentation: str
    # The node's settings with the bounds; without one, it is what the node itself could be
    # started with.
    least: str | None = None
    most: str | None = None

    def bounds(self, node: NodeSettings) -> tuple[int, int]:
        return (
            0 if self.least is None else getattr(node, self.least),
            limits.REBALANCE_DELAY_MS_MAX if self.most is None else getattr(node, self.most),
        )


def _timing(name: str, setting: str, documentation: str) -> MemberRule:
    return MemberRule(
        name, f"{setting}_ms", documentation, f"{setting}_min_ms", f"{setting}_max_ms"
    )


MEMBER_RULES = {
    each.name: each
    for each in (
        *(
            _timing(f"{kind}.{name}", f"{kind}_{setting}", documentation)
            for kind in ("consumer", "share", "streams")
            for name, setting, documentation in (
                (
                    "session.timeout.ms", "session_timeout",
                    "how long a member may be silent before others get its part",
                ),
                ("heartbeat.interval.ms", "heartbeat_interval", "how often a member calls"),
            )
        ),
        _timing(
            "streams.assignment.interval.ms", "streams_assignment_interval",
            "how long there is between two assignments",
        ),
        MemberRule(
            "streams.initial.rebalance.delay.ms", "streams_rebalance_delay_ms",
            "how long a new group waits for more members",
        ),
        MemberRule(
            "streams.num.standby.replicas", "streams_standby_replicas",
            "how many copies of each task's state other processes keep",
            most="streams_standby_replicas_max",
        ),
    )
}  # fmt: skip


def share_group(node: NodeSettings) -> GroupSettings:
    """What a group begins with that is made on this wire."""
    return GroupSettings(
        start=node.share_start,
        isolation=node.share_isolation,
        max_attempts=node.share_deliveries_max,
        visibility_ms=node.share_lock_ms,
        backoff_ms=0,
        # Kafka bounds what is out by partition, not by consumer.
        leases_per_consumer_max=limits.LEASES_PER_CONSUMER_MAX,
        leases_per_partition_max=node.share_partition_locks_max,
    )


def queue_table(node: NodeSettings) -> Table[GroupSettings]:
    """The settings of queue groups, by the names of this wire."""
    return Table(
        share_group(node),
        (
            Mapped(
                "share.auto.offset.reset", "start", Kind.STRING,
                "where a new group begins: earliest, latest or by_duration:PT1H",
            ),
            Mapped(
                "share.record.lock.duration.ms", "visibility_ms", Kind.INT,
                "how long a lease lasts",
            ),
            Mapped(
                "share.delivery.count.limit", "max_attempts", Kind.INT,
                "how often a message is delivered before it is a dead letter",
            ),
            Mapped(
                "share.partition.max.record.locks", "leases_per_partition_max", Kind.INT,
                "how many messages of a partition may be out at a time",
                str(2**31 - 1),
            ),
            Mapped(
                "share.isolation.level", "isolation", Kind.STRING,
                "whether messages of a transaction wait for its end",
            ),
        ),
        (
            Fixed(
                "errors.deadletterqueue.topic.name", always(""), Kind.STRING,
                "dead letters go to the topic's own <topic>.dlq",
            ),
            Fixed(
                "errors.deadletterqueue.copy.record.enable", always("true"), Kind.BOOLEAN,
                "dead letters are whole copies",
            ),
            Fixed(
                "share.renew.acknowledge.enable", always("true"), Kind.BOOLEAN,
                "a lease can always be prolonged",
            ),
        ),
        {
            "backoff_ms": "how long a message rests after its first failed delivery",
            "backoff_factor": "how much longer after each further one",
            "backoff_max_ms": "the longest such rest",
            "leases_per_consumer_max": "how many messages one consumer may hold",
            "starvation_ms": "after how long a waiting lane earns a message",
        },
        kept=(
            Kept(
                f"{kind}.assignment.interval.ms", "1000", Kind.INT,
                "means nothing: there is no pause between two assignments", low=0,
            )
            for kind in ("consumer", "share")
        ),
        default_names={
            name: f"group.{name}"
            for name in (
                "consumer.assignment.interval.ms",
                "share.assignment.interval.ms",
                "share.delivery.count.limit",
                "share.partition.max.record.locks",
                "share.record.lock.duration.ms",
            )
        },
    )  # fmt: skip


class GroupConfigs:
    """What can be configured of groups on a node with these settings. What a group was told
    is there by name, as it was told."""

    def __init__(self, node: NodeSettings) -> None:
        self._node = node
        self._queue = queue_table(node)

    def begin(self, told: Given) -> GroupSettings:
        """What a group would begin with that is not there yet."""
        return self._queue.defaults.changed(self.queue_settings(told))

    def queue_settings(self, told: Given) -> dict[str, Any]:
        """Settings of the queue group that it was told by name."""
        return self._queue.changes(_of_queue(told))

    def describe(
        self, settings: GroupSettings, names: Iterable[str] | None, told: Given
    ) -> list[Entry]:
        wanted = None if names is None else frozenset(names)
        entries = self._queue.describe(settings, wanted, told)
        for rule in MEMBER_RULES.values():
            if wanted is None or rule.name in wanted:
                entries.append(self._describe(rule, told))
        return sorted(entries)

    def _describe(self, rule: MemberRule, told: Given) -> Entry:
        default = str(getattr(self._node, rule.setting))
        value = told.get(rule.name)
        below = Source.DEFAULT
        if default != str(getattr(DEFAULTS, rule.setting)):
            below = Source.BROKER
        synonyms = [Synonym(f"group.{rule.name}", default, below)]
        if value is not None:
            synonyms.insert(0, Synonym(rule.name, value, Source.GROUP))
        return Entry(
            rule.name, default if value is None else value, False, value is not None, default,
            Kind.INT, rule.documentation, tuple(synonyms),
        )  # fmt: skip

    def is_list(self, name: str) -> bool:
        return self._queue.is_list(name)

    def shown(self, name: str, settings: GroupSettings, given: Given) -> str | None:
        return self._queue.shown(name, settings, given)

    def given_after(
        self, given: Given, values: Mapping[str, str | None], *, whole: bool = False
    ) -> dict[str, str]:
        return self._queue.given_after(given, values, whole=whole)

    def changed(
        self, settings: GroupSettings, values: Mapping[str, str | None], *, given: Given
    ) -> GroupSettings:
        self._check_members(self.given_after(given, values))
        return self._queue.changed(settings, _of_queue(values), given=given)

    def replaced(
        self, settings: GroupSettings, values: Mapping[str, str | None], given: Given
    ) -> GroupSettings:
        self._check_members(self.given_after(given, values, whole=True))
        return self._queue.replaced(settings, _of_queue(values), given)

    def _check_members(self, told: Given) -> None:
        now = {}
        for name, rule in MEMBER_RULES.items():
            now[name] = getattr(self._node, rule.setting)
            if name in told:
                now[name] = _within(name, told[name], *rule.bounds(self._node))
        for kind in ("consumer", "share", "streams"):
            heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
            if now[heartbeat] >= now[session]:
                raise InvalidConfig(f"{session} must be greater than {heartbeat}")


def _of_queue(values: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if name not in MEMBER_RULES}


def _within(name: str, text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise InvalidConfig(f"{name} is a whole number, not {text!r}") from None
    if not least <= value <= most:
        raise InvalidConfig(f"{name} must be between {least} and {most}, not {value}")
    return value
