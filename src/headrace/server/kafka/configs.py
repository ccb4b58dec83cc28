"""Kafka's configuration names and our settings: the one place where they meet.

    Kafka's name             our setting            kind of entry
    retention.ms             retention_ms           mapped: read and written
    headrace.durability      durability             ours, that Kafka has no name for
    segment.index.bytes      (none)                 kept: means nothing here; stored,
                                                    shown, and nothing comes of it
    errors.deadletterqueue.  (always true)          fixed: shown, and accepted only
      copy.record.enable                            with the value that holds here

A setting has one name on this wire: Kafka's where Kafka has one, else its own with
`headrace.` before it. An entry counts as set when somebody set it, also to its
default, or when it differs from that; to delete it brings the default back. What was
given is shown as it was given, for as long as it holds.

A value that asks for what this node does not do is refused with the reason: whoever
asks for two in-sync replicas relies on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.settings import SettingsModel

PREFIX = "headrace."
Settings = TypeVar("Settings", bound=SettingsModel)

# Configurations by name, as clients gave them.
Given = Mapping[str, str]
NOTHING_GIVEN: Final[Given] = MappingProxyType({})
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


class Resource(IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from."""

    TOPIC = 1
    # Of this node; of all nodes; as it was started.
    NODE = 2
    NODES = 3
    BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
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


class Synonym(NamedTuple):
    """One of the places that a value may come from."""

    name: str
    value: str | None
    source: Source


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
    # The places that have a value for it, the one that holds first, where there are more
    # than the default and what was set.
    synonyms: tuple[Synonym, ...] = ()
    is_sensitive: bool = False
    # What the default is called where it comes from; empty: the same. None where Kafka
    # shows no default below what was set.
    default_name: str | None = ""
    # Whether the default was set for all nodes, between what was set and the default.
    is_set_for_all: bool = False


class Mapped(NamedTuple):
    """One of our settings under a name of the wire."""

    name: str
    setting: str
    kind: Kind
    documentation: str
    # What Kafka writes where we have None.
    unlimited: str | None = None
    # Our word for a value of Kafka's, where that has several for one thing.
    translate: Callable[[str], str] = str


def _never(value: str, settings: Any) -> str | None:
    return None


class Kept(NamedTuple, Generic[Settings]):
    """A name that means nothing here. `refuse` says why a value cannot hold, if so."""

    name: str
    default: str
    kind: Kind
    documentation: str
    low: int | None = None
    refuse: Callable[[str, Settings], str | None] = _never
    # Whether brokers of Kafka set the default for all of themselves, and show that they did.
    is_set_for_all: bool = False


class Fixed(NamedTuple, Generic[Settings]):
    """A name whose value follows from elsewhere; `instead` says what to do."""

    name: str
    show: Callable[[Settings], str]
    kind: Kind
    instead: str


Values = TypeVar("Values")


class Changeable(Protocol[Values]):
    """All configurations of one kind of thing, and how they change."""

    def is_list(self, name: str) -> bool: ...
    def shown(self, name: str, settings: Values, given: Given) -> str | None: ...
    def given_after(
        self, given: Given, values: Mapping[str, str | None], *, whole: bool = False
    ) -> dict[str, str]: ...
    def changed(
        self, settings: Values, values: Mapping[str, str | None], *, given: Given
    ) -> Values: ...
    def replaced(
        self, settings: Values, values: Mapping[str, str | None], given: Given
    ) -> Values: ...


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
        kept: Iterable[Kept[Settings]] = (),
        default_names: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        """`constant` are settings that cannot change after the beginning; `default_names`,
        what defaults are called on a broker, where that is not the same."""
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
        self.kept = {each.name: each for each in kept}
        self._constant = frozenset(constant)
        self._default_names = default_names

    def describe(
        self,
        settings: Settings,
        names: Iterable[str] | None = None,
        given: Given = NOTHING_GIVEN,
    ) -> list[Entry]:
        """Those of these names that exist; all of them for None."""
        wanted = None if names is None else frozenset(names)
        entries = []
        for name, each in self.mapped.items():
            if wanted is None or name in wanted:
                entries.append(self._entry(each, settings, given.get(name)))
        for name, kept in self.kept.items():
            if wanted is None or name in wanted:
                is_set = name in given and kept.refuse(given[name], settings) is None
                value = given[name] if is_set else kept.default
                entry = Entry(
                    name, value, False, is_set, kept.default, kept.kind, kept.documentation
                )
                entries.append(entry._replace(is_set_for_all=kept.is_set_for_all))
        for name, fixed in self.fixed.items():
            if wanted is None or name in wanted:
                value = fixed.show(settings)
                entries.append(Entry(name, value, True, False, value, fixed.kind, fixed.instead))
        names_of = self._default_names
        return sorted(
            entry._replace(default_name=names_of.get(entry.name, "")) for entry in entries
        )

    def _entry(self, mapped: Mapped, settings: Settings, given: str | None) -> Entry:
        setting = getattr(settings, mapped.setting)
        value = _show(setting, mapped)
        default = _show(getattr(self.defaults, mapped.setting), mapped)
        is_set = given is not None or value != default
        if given is not None and self._holds(mapped, given, setting):
            value = given
        return Entry(
            mapped.name, value, mapped.setting in self._constant, is_set, default, mapped.kind,
            mapped.documentation,
        )  # fmt: skip

    def _holds(self, mapped: Mapped, given: str, setting: Any) -> bool:
        """Whether the setting is what was given: another door may have changed it."""
        try:
            return bool(self._read(mapped, given) == setting)
        except InvalidConfig:
            return False

    def shown(self, name: str, settings: Settings, given: Given) -> str | None:
        """What `describe` would show; None for a name that does not exist."""
        return next((entry.value for entry in self.describe(settings, (name,), given)), None)

    def is_list(self, name: str) -> bool:
        found = self.mapped.get(name) or self.kept.get(name)
        return found is not None and found.kind == Kind.LIST

    def given_after(
        self, given: Given, values: Mapping[str, str | None], *, whole: bool = False
    ) -> dict[str, str]:
        """What clients have set once these values are: where they are all that is set,
        nothing else but what cannot change."""
        constant = {name for name, each in self.mapped.items() if each.setting in self._constant}
        after = {name: each for name, each in given.items() if not whole or name in constant}
        for name, value in values.items():
            if value is None or name in self.fixed:
                after.pop(name, None)
            else:
                after[name] = value.strip()
        return after

    def changes(self, values: Mapping[str, str | None]) -> dict[str, Any]:
        """Our settings for these configurations; None asks for the default, which what
        does not exist has already. InvalidConfig, with its name, for a value of that."""
        changed: dict[str, Any] = {}
        for name, value in values.items():
            if value is not None and len(value) > limits.CONFIG_CHARACTERS_MAX:
                raise InvalidConfig(
                    f"{name} has {len(value)} characters, {limits.CONFIG_CHARACTERS_MAX} at most"
                )
            mapped = self.mapped.get(name)
            if mapped is not None:
                changed[mapped.setting] = self._read(mapped, value)
            elif name in self.kept and value is not None:
                _check_kept(self.kept[name], value.strip())
            elif name not in self.fixed and value is not None:
                raise InvalidConfig(f"unknown configuration {name!r}")
        return changed

    def _read(self, mapped: Mapped, value: str | None) -> Any:
        if value is None:
            return getattr(self.defaults, mapped.setting)
        if mapped.unlimited is not None and value.strip() == mapped.unlimited:
            return None
        _check_form(mapped.name, mapped.kind, value.strip())
        try:
            checked = self.defaults.changed({mapped.setting: mapped.translate(value.strip())})
        except InvalidArgument as error:
            raise InvalidConfig(f"{mapped.name} cannot be {value!r}: {error}") from error
        return getattr(checked, mapped.setting)

    def changed(
        self,
        settings: Settings,
        values: Mapping[str, str | None],
        *,
        is_new: bool = False,
        given: Given = NOTHING_GIVEN,
    ) -> Settings:
        """The settings with these configurations; InvalidConfig, with the name of
        the one that cannot be. `given` is what clients have set before."""
        try:
            result = settings.changed(self.changes(values))
        except InvalidConfig:
            raise
        except InvalidArgument as error:
            # Each value may be, but not together.
            raise InvalidConfig(str(error)) from error
        for name, text in self.given_after(given, values).items():
            kept = self.kept.get(name)
            reason = None if kept is None else kept.refuse(text, result)
            if reason is not None:
                raise InvalidConfig(f"{name} cannot be {text!r:.80}: {reason}")
        for name, value in values.items():
            fixed = self.fixed.get(name)
            if fixed is not None and value is not None and value.strip() != fixed.show(result):
                raise InvalidConfig(f"{name} is always {fixed.show(result)} here: {fixed.instead}")
        for setting in () if is_new else self._constant:
            if getattr(result, setting) != getattr(settings, setting):
                raise InvalidConfig(f"{setting} is chosen when a topic is created: make another")
        return result

    def replaced(
        self,
        settings: Settings,
        values: Mapping[str, str | None],
        given: Given = NOTHING_GIVEN,
    ) -> Settings:
        """The settings with these configurations, and the defaults for all others
        that can change."""
        others = {
            name: None
            for name, mapped in self.mapped.items()
            if mapped.setting not in self._constant
        }
        unset = dict.fromkeys(given.keys() & self.kept.keys())
        return self.changed(settings, {**others, **unset, **values}, given=given)


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


def _check_kept(kept: Kept[Any], value: str) -> None:
    _check_form(kept.name, kept.kind, value)
    if kept.low is not None and int(value) < kept.low:
        raise InvalidConfig(f"{kept.name} must be at least {kept.low}, not {value}")


def _check_form(name: str, kind: Kind, value: str) -> None:
    """Python reads more numbers than Kafka does, such as 1_000."""
    bits = _BITS.get(kind)
    if bits is not None and not (
        _INTEGER.fullmatch(value) and -(1 << bits - 1) <= int(value) < 1 << bits - 1
    ):
        raise InvalidConfig(f"{name} cannot be {value!r}: it is an integer of {bits} bits")
    if kind == Kind.BOOLEAN and value.lower() not in ("true", "false"):
        raise InvalidConfig(f"{name} cannot be {value!r}: it is true or false")


_BITS: Final = {Kind.INT: 32, Kind.LONG: 64}


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
