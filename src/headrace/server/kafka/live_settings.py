"""The node's settings as they hold now: how it was started, and what it was told since.

What was told is in the catalog, so it holds after a restart too. It is looked at when the
catalog's table of configurations is another one than last time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from headrace.core import limits
from headrace.core.errors import InvalidArgument, LimitExceeded
from headrace.core.event_log import log_event
from headrace.core.node_settings import DEFAULTS, NodeSettings
from headrace.core.settings import GroupSettings
from headrace.engine.catalog import ConfigsGiven
from headrace.engine.coordinator.rules import GroupRules
from headrace.server.kafka.broker_configs import Levels
from headrace.server.kafka.configs import InvalidConfig, Resource
from headrace.server.kafka.group_configs import MEMBER_RULES, GroupConfigs, share_group
from headrace.server.service import Service

Configs = Mapping[tuple[int, str], Mapping[str, str]]

logger = logging.getLogger("headrace.kafka")


class LiveSettings:
    def __init__(self, service: Service, started: NodeSettings) -> None:
        self._service = service
        self._started = started
        self._seen: Configs | None = None
        self._levels = Levels({}, {}, started)
        self._current = started
        self._rules = _rules_of(started)
        self._followers: list[Callable[[NodeSettings], None]] = []
        service.broker.groups.told = self._told_queue

    @property
    def current(self) -> NodeSettings:
        self._keep_up()
        return self._current

    def follow(self, changed: Callable[[NodeSettings], None]) -> None:
        """Have it called with the settings whenever they are others than before, and now
        where they are not those of the start."""
        current = self.current
        self._followers.append(changed)
        if current != self._started:
            changed(current)

    @property
    def _configs(self) -> Configs:
        return self._service.broker.topics.catalog.configs

    def told(self, kind: int, name: str) -> Mapping[str, str]:
        return self._configs.get((kind, name), {})

    def configured(self, kind: int) -> list[str]:
        """The names of this kind that something is configured of."""
        return [name for each, name in self._configs if each == kind]

    def levels(self) -> Levels:
        """What holds of what the node was told."""
        self._keep_up()
        return self._levels

    def tell(self, kind: int, name: str, values: Mapping[str, str], now_ms: int) -> None:
        """Keep what is configured of this thing; LimitExceeded when too much is."""
        configs = self._configs
        if values == configs.get((kind, name), {}):
            return
        if values and (kind, name) not in configs and len(configs) >= limits.CONFIGURED_MAX:
            raise LimitExceeded(f"{limits.CONFIGURED_MAX} things are configured, the most allowed")
        if any(len(value) > limits.CONFIG_CHARACTERS_MAX for value in values.values()):
            raise InvalidArgument("a value is too long")
        self._service.broker.topics.change([ConfigsGiven(kind, name, dict(values))], now_ms)
        self._keep_up()

    def _keep_up(self) -> None:
        configs = self._configs
        if configs is not self._seen:
            self._look(configs)

    def _look(self, configs: Configs) -> None:
        self._seen = configs
        own = self.told(Resource.BROKER, str(self._service.node_id))
        levels = Levels(own, self.told(Resource.BROKER, ""), self._started)
        try:
            current = levels.settings()
        except InvalidConfig:
            # It was told by a version with other bounds, or started with others.
            levels, reasons = levels.fitting()
            for name, reason in reasons.items():
                log_event(
                    logger, logging.WARNING, "configuration ignored", config=name, reason=reason
                )
            current = levels.settings()
        self._levels = levels
        if current != self._current:
            self._current = current
            self._rules = _rules_of(current)
            for changed in self._followers:
                changed(current)

    # Groups.

    def rules(self, name: str) -> GroupRules:
        """What is asked of the members of this group."""
        self._keep_up()
        told = self._configs.get((Resource.GROUP, name))
        if told is None:
            return self._rules
        own: dict[str, Any] = {
            rule.setting: int(told[rule.name])
            for rule in MEMBER_RULES.values()
            if rule.name in told
        }
        return self._rules._replace(**own) if own else self._rules

    def is_told(self, name: str, config: str) -> bool:
        """Whether this was chosen by somebody, for the group or for the node."""
        setting = MEMBER_RULES[config].setting
        default = getattr(DEFAULTS, setting)
        told = self._configs.get((Resource.GROUP, name), {})
        return config in told or getattr(self.current, setting) != default

    def share_group(self, name: str) -> GroupSettings:
        """What a group begins with that is made on this wire."""
        return share_group(self.current).changed(self._told_queue(name))

    def _told_queue(self, name: str) -> dict[str, Any]:
        told = self._configs.get((Resource.GROUP, name))
        return GroupConfigs(self.current).queue_settings(told) if told else {}


def _rules_of(settings: NodeSettings) -> GroupRules:
    return GroupRules(
        rebalance_delay_ms=settings.rebalance_delay_ms,
        session_ms_min=settings.group_session_timeout_min_ms,
        session_ms_max=settings.group_session_timeout_max_ms,
        members_max=settings.group_members_max,
        consumer_session_timeout_ms=settings.consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
        share_session_timeout_ms=settings.share_session_timeout_ms,
        share_heartbeat_interval_ms=settings.share_heartbeat_interval_ms,
        share_members_max=settings.share_members_max,
        streams_session_timeout_ms=settings.streams_session_timeout_ms,
        streams_heartbeat_interval_ms=settings.streams_heartbeat_interval_ms,
        streams_members_max=settings.streams_members_max,
        streams_standby_replicas=settings.streams_standby_replicas,
        streams_rebalance_delay_ms=settings.streams_rebalance_delay_ms,
        streams_assignment_interval_ms=settings.streams_assignment_interval_ms,
        migration=settings.consumer_migration,
    )
