"""Kafka's configuration names and our settings: the one place where they meet.

    Kafka's name             our setting            kind of entry
    retention.ms             retention_ms           mapped: read and written
    headrace.durability      durability             ours, that Kafka has no name for
    min.insync.replicas      (always 1)             fixed: shown, and accepted only
                                                    with the value that holds here

A setting has one name on this wire: Kafka's where Kafka has one, else its own with
`headrace.` before it. An entry counts as set when it differs from the default, which
is also where it goes back to when it is deleted.

Rejected: taking names that mean nothing here in silence. Whoever sets a flush
interval or asks for two in-sync replicas relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from enum import IntEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from headrace.core.errors import InvalidArgument
from headrace.core.settings import SettingsModel

PREFIX = "headrace."
Settings = TypeVar("Settings", bound=SettingsModel)


class Resource(IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from."""

    TOPIC = 1
    BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Kind(IntEnum):
    """What a value looks like."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class InvalidConfig(InvalidArgument):
    """A configuration that is unknown, or cannot have this value."""


class Entry(NamedTuple):
    """One configuration, as it is shown."""

    name: str
    value: str
    is_read_only: bool
    # Whether it was set, and what it would be otherwise.
    is_set: bool
    default: str
    kind: Kind
    documentation: str


class Mapped(NamedTuple):
    """One of our settings under a name of the wire."""

    name: str
    setting: str
    kind: Kind
    documentation: str
    # What Kafka writes where we have None.
    unlimited: str | None = None


class Fixed(NamedTuple, Generic[Settings]):
    """A name whose value follows from elsewhere; `instead` says what to do."""

    name: str
    show: Callable[[Settings], str]
    kind: Kind
    instead: str


class Table(Generic[Settings]):
    """All configurations of one kind of thing."""

    def __init__(
        self,
        defaults: Settings,
        named: Iterable[Mapped],
        fixed: Iterable[Fixed[Settings]],
        documentation: Mapping[str, str],
        *,
        constant: Iterable[str] = (),
    ) -> None:
        """`constant` are settings that cannot change after the beginning."""
        self.defaults = defaults
        mapped = list(named)
        known = {each.setting for each in mapped}
        for field in fields(defaults):
            if field.name not in known:
                kind = _kind_of(getattr(defaults, field.name))
                mapped.append(
                    Mapped(PREFIX + field.name, field.name, kind, documentation[field.name])
                )
        self.mapped = {each.name: each for each in mapped}
        self.fixed = {each.name: each for each in fixed}
        self._constant = frozenset(constant)

    def describe(self, settings: Settings, names: Iterable[str] | None = None) -> list[Entry]:
        """Those of these names that exist; all of them for None."""
        wanted = None if names is None else frozenset(names)
        entries = []
        for name, each in self.mapped.items():
            if wanted is None or name in wanted:
                value = _show(getattr(settings, each.setting), each)
                default = _show(getattr(self.defaults, each.setting), each)
                is_constant = each.setting in self._constant
                entries.append(
                    Entry(
                        name, value, is_constant, value != default, default, each.kind,
                        each.documentation,
                    )
                )  # fmt: skip
        for name, fixed in self.fixed.items():
            if wanted is None or name in wanted:
                value = fixed.show(settings)
                entries.append(Entry(name, value, True, False, value, fixed.kind, fixed.instead))
        return sorted(entries)

    def changes(self, values: Mapping[str, str | None]) -> dict[str, Any]:
        """Our settings for these configurations; None asks for the default, which what
        does not exist has already. InvalidConfig, with its name, for a value of that."""
        changed: dict[str, Any] = {}
        for name, value in values.items():
            mapped = self.mapped.get(name)
            if mapped is not None:
                changed[mapped.setting] = self._read(mapped, value)
            elif name not in self.fixed and value is not None:
                raise InvalidConfig(f"unknown configuration {name!r}")
        return changed

    def _read(self, mapped: Mapped, value: str | None) -> Any:
        if value is None:
            return getattr(self.defaults, mapped.setting)
        if mapped.unlimited is not None and value.strip() == mapped.unlimited:
            return None
        try:
            checked = self.defaults.changed({mapped.setting: value.strip()})
        except InvalidArgument as error:
            raise InvalidConfig(f"{mapped.name} cannot be {value!r}: {error}") from error
        return getattr(checked, mapped.setting)

    def changed(
        self, settings: Settings, values: Mapping[str, str | None], *, is_new: bool = False
    ) -> Settings:
        """The settings with these configurations; InvalidConfig, with the name of
        the one that cannot be."""
        result = settings.changed(self.changes(values))
        for name, value in values.items():
            fixed = self.fixed.get(name)
            if fixed is not None and value is not None and value.strip() != fixed.show(result):
                raise InvalidConfig(f"{name} is always {fixed.show(result)} here: {fixed.instead}")
        for setting in () if is_new else self._constant:
            if getattr(result, setting) != getattr(settings, setting):
                raise InvalidConfig(f"{setting} is chosen when a topic is created: make another")
        return result

    def replaced(self, settings: Settings, values: Mapping[str, str | None]) -> Settings:
        """The settings with these configurations, and the defaults for all others
        that can change."""
        others = {
            name: None
            for name, mapped in self.mapped.items()
            if mapped.setting not in self._constant
        }
        return self.changed(settings, {**others, **values})


class _Given(Protocol):
    """A configuration of a request that says what shall hold, not what changes."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...


def given_values(configs: Iterable[_Given]) -> dict[str, str]:
    """By name. InvalidConfig for one without a value: there it would mean nothing."""
    values: dict[str, str] = {}
    for each in configs:
        if each.value is None:
            raise InvalidConfig(f"{each.name} has no value")
        values[each.name] = each.value
    return values


def _show(value: Any, mapped: Mapped) -> str:
    if value is None:
        return mapped.unlimited or ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _kind_of(value: Any) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, int):
        return Kind.LONG
    return Kind.DOUBLE if isinstance(value, float) else Kind.STRING


def always(value: str) -> Callable[[Any], str]:
    return lambda settings: value
