"""Metrics that Kafka's clients push (KIP-714): who is asked for what, and what they said.

    configuration (type 16)     a subscription: which clients, which metrics, how often
    GetTelemetrySubscriptions   a client learns what all that match it ask for
    PushTelemetry               its numbers, which are metrics of the node until it has been
                                silent for three intervals, or said that it ends

A subscription has an id that follows from what is asked for, so a client that asked before
a change is told to ask again, also after a restart, without anything being kept for it.

Which subscriptions match is found out in turns: what a client says of itself and how large the
patterns are has limits, but a hundred subscriptions may be some seconds of work.

Clients are asked for totals since they began, not for differences: a push that is lost, or
comes twice, changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.steps import Steps
from headrace.engine.coordinator.topic_pattern import TopicPattern
from headrace.server.kafka.configs import Entry, Given, InvalidConfig, Kind, Resource
from headrace.server.kafka.errors import Error
from headrace.server.service import Service
from headrace.wire.otlp import Point

METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"
ALL = "*"
INTERVAL_MS, INTERVAL_MS_MIN, INTERVAL_MS_MAX = 300_000, 100, 3_600_000
SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_DEFAULTS = {
    METRICS: ("", Kind.LIST, "prefixes of the metrics that are asked for, or * for all"),
    INTERVAL: (str(INTERVAL_MS), Kind.INT, "how often they are pushed"),
    MATCH: ("", Kind.LIST, "which clients are asked: selector=regular expression, all of them"),
}
_EXPIRY_INTERVALS = 3


class Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, TopicPattern], ...]

    def is_for(self, client: Mapping[str, str]) -> Steps[bool]:
        for name, pattern in self.match:
            value = client.get(name, "")
            judged: dict[str, bool] = {}
            for _ in pattern.match_all((value,), judged):
                yield
            if not judged[value]:
                return False
        return True


def read_subscription(given: Given) -> Subscription:
    """InvalidConfig for one that makes no sense."""
    text = given.get(INTERVAL, str(INTERVAL_MS))
    if not text.isdecimal() or not INTERVAL_MS_MIN <= int(text) <= INTERVAL_MS_MAX:
        raise InvalidConfig(
            f"{INTERVAL} must be between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX}, not {text!r}"
        )
    texts = {}
    for each in _listed(given.get(MATCH, "")):
        name, separator, pattern = each.partition("=")
        if name.strip() not in SELECTORS or not separator:
            raise InvalidConfig(
                f"{MATCH} is made of selector=pattern, with selectors {', '.join(SELECTORS)}; "
                f"not {each!r}"
            )
        # Of those for one selector the last counts, as in Kafka.
        texts[name.strip()] = pattern.strip()
    try:
        match = tuple((name, TopicPattern(pattern)) for name, pattern in texts.items())
    except InvalidArgument as error:
        raise InvalidConfig(f"{MATCH}: {error}") from error
    if sum(pattern.states_count for _, pattern in match) > limits.TOPIC_PATTERN_STATES_MAX:
        raise InvalidConfig(
            f"{MATCH}: with repetitions written out, all patterns of a subscription have at most "
            f"{limits.TOPIC_PATTERN_STATES_MAX} states together"
        )
    return Subscription(_listed(given.get(METRICS, "")), int(text), match)


def _read_or_none(given: Given) -> Subscription | None:
    """None for one that was taken when limits were others: it asks nobody for anything."""
    try:
        return read_subscription(given)
    except InvalidConfig:
        return None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


class ClientMetricsConfigs:
    """What a subscription is made of. There are no settings beside it."""

    def is_list(self, name: str) -> bool:
        return name in (METRICS, MATCH)

    def shown(self, name: str, settings: None, given: Given) -> str | None:
        return given.get(name, _DEFAULTS[name][0]) if name in _DEFAULTS else None

    def describe(self, given: Given) -> list[Entry]:
        return sorted(
            Entry(
                name,
                given.get(name, default),
                False,
                name in given,
                default,
                kind,
                documentation,
                default_name=None,
            )
            for name, (default, kind, documentation) in _DEFAULTS.items()
        )

    def given_after(
        self, given: Given, values: Mapping[str, str | None], *, whole: bool = False
    ) -> dict[str, str]:
        after = {} if whole else {**given}
        for name, value in values.items():
            if value is None:
                after.pop(name, None)
                continue
            if name not in _DEFAULTS:
                raise InvalidConfig(f"unknown configuration {name!r}")
            if len(value) > limits.TELEMETRY_CONFIG_CHARACTERS_MAX:
                raise InvalidConfig(f"the value of {name} is too long")
            after[name] = value.strip()
        read_subscription(after)
        return after

    def changed(
        self, settings: None, values: Mapping[str, str | None], *, given: Given
    ) -> None: ...
    def replaced(self, settings: None, values: Mapping[str, str | None], given: Given) -> None: ...


class Asked(NamedTuple):
    """What one client is asked for by all subscriptions together."""

    id: int
    metrics: tuple[str, ...]
    interval_ms: int


class Pushed(NamedTuple):
    """What a client said last, and when."""

    client_id: str
    at_seconds: float
    until_seconds: float
    points: tuple[Point, ...]


class ClientMetrics:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._seen: object = None
        # By name, with what each was read from.
        self._read: dict[str, tuple[Given, Subscription | None]] = {}
        # By the client's instance id, those who were heard of last at the end.
        self._pushed: OrderedDict[bytes, Pushed] = OrderedDict()
        self._points = 0

    def asked(self, instance_id: bytes, client: Mapping[str, str]) -> Steps[Asked]:
        metrics: set[str] = set()
        interval_ms = INTERVAL_MS
        for each in self._current():
            is_for = yield from each.is_for(client)
            if is_for:
                metrics.update(each.metrics)
                interval_ms = min(interval_ms, each.interval_ms)
        names = (ALL,) if ALL in metrics else tuple(sorted(metrics))
        digest = crc32(b"\n".join([name.encode() for name in names]) + b"%d" % interval_ms)
        number = (digest ^ crc32(instance_id)) & 0xFFFFFFFF
        return Asked(number - (1 << 32) if number >> 31 else number, names, interval_ms)

    @property
    def are_wanted(self) -> bool:
        """Whether there is a subscription at all."""
        return bool(self._current())

    def _current(self) -> list[Subscription]:
        configs = self._service.broker.topics.catalog.configs
        if configs is not self._seen:
            self._seen, before = configs, self._read
            self._read = {}
            for (kind, name), given in configs.items():
                if kind == Resource.CLIENT_METRICS:
                    found = before.get(name)
                    if found is None or found[0] != given:
                        found = given, _read_or_none(given)
                    self._read[name] = found
        return [each for _, each in self._read.values() if each is not None]

    # What they said.

    def check_push(self, instance_id: bytes, asked: Asked, *, is_last: bool) -> Error:
        """Whether the client may push now: as often as it is asked to, and not at the
        slightest difference of clocks."""
        before = self._pushed.get(instance_id)
        if before is None or is_last:
            return Error.NONE
        early = self._service.loop.time() - before.at_seconds < asked.interval_ms / 2000
        return Error.THROTTLING_QUOTA_EXCEEDED if early else Error.NONE

    def push(
        self,
        instance_id: bytes,
        client_id: str,
        asked: Asked,
        points: list[Point],
        *,
        is_last: bool,
    ) -> None:
        self._forget(instance_id)
        if is_last:
            return
        now = self._service.loop.time()
        kept = tuple(points[: limits.TELEMETRY_POINTS_PER_CLIENT_MAX])
        until = now + _EXPIRY_INTERVALS * asked.interval_ms / 1000
        shown = client_id[: limits.TELEMETRY_CLIENT_CHARACTERS_MAX]
        self._pushed[instance_id] = Pushed(shown, now, until, kept)
        self._points += len(kept)
        while self._points > limits.TELEMETRY_POINTS_MAX:
            self._forget(next(iter(self._pushed)))

    def _forget(self, instance_id: bytes) -> None:
        before = self._pushed.pop(instance_id, None)
        if before is not None:
            self._points -= len(before.points)

    def samples(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """By client, its instance, metric and attributes: what they said last."""
        now = self._service.loop.time()
        for instance_id, pushed in list(self._pushed.items()):
            if pushed.until_seconds <= now:
                self._forget(instance_id)
                continue
            for name, attributes, value in pushed.points:
                shown = ",".join(f"{key}={text}" for key, text in attributes)
                yield (pushed.client_id, instance_id.hex(), name, shown), value
