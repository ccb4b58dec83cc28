"""What one version of a message looks like on the wire.

A layout is the definition with all questions of version answered: which fields
there are, in which order, and how each is encoded. Two versions with equal
layouts share one decoder and one encoder.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .definitions import Definition, FieldDefinition

# Fixed-size types and their struct formats.
FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
FORMAT_BYTES = {"?": 1, "b": 1, "B": 1, "x": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8}
FORMAT_BYTES["16s"] = 16
NUMBERS = {"int8", "int16", "int32", "int64"}


class Field(NamedTuple):
    """`attribute` is our name of it. `present` is false where the version lacks it
    and its default is used. `element` is the type, or the type of an array's elements;
    `struct` is set where that is a struct."""

    attribute: str
    element: str
    is_array: bool
    struct: Struct | None
    present: bool
    nullable: bool
    tag: int | None
    default: str


class Struct(NamedTuple):
    """`flexible` structs end in a section of tagged fields."""

    name: str
    flexible: bool
    fields: tuple[Field, ...]

    def plain(self) -> list[Field]:
        return [field for field in self.fields if field.present and field.tag is None]

    def tagged(self) -> list[Field]:
        fields = [field for field in self.fields if field.present and field.tag is not None]
        return sorted(fields, key=lambda field: field.tag or 0)

    def has_records(self) -> bool:
        return any(
            field.element == "records" or (field.struct is not None and field.struct.has_records())
            for field in self.fields
            if field.present
        )

    def bytes_min(self) -> int:
        """The fewest bytes that one value of this struct can take."""
        total = 1 if self.flexible else 0
        return total + sum(_bytes_min(field, self.flexible) for field in self.plain())


def layout_of(definition: Definition, version: int) -> Struct:
    flexible = version in definition.flexible
    made: dict[str, Struct] = {}
    for struct in definition.structs.values():
        fields = tuple(_field(field, version, made) for field in struct.fields)
        made[struct.name] = Struct(struct.name, flexible, fields)
    return made[definition.name]


def attribute_name(name: str) -> str:
    """`LogAppendTimeMs` becomes `log_append_time_ms`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return spaced.lower()


def default_of(field: FieldDefinition) -> str:
    """The default as a Python expression, by Kafka's rules for what is not said."""
    given = field.default
    if given == "null":
        return "None"
    if field.type.startswith("[]"):
        return "()"
    match field.type:
        case "bool":
            return "True" if given in ("true", "True") else "False"
        case "string":
            return repr(given or "").replace("'", '"')
        case "bytes":
            return 'b""'
        case "records":
            return "None"
        case "uuid":
            return "ZERO_UUID"
        case "float64":
            return str(float(given or 0))
        case kind if kind in FIXED_FORMATS:
            return str(int(given or "0", 0))
    return default_constant(field.type)


def default_constant(struct_name: str) -> str:
    return f"DEFAULT_{attribute_name(struct_name).upper()}"


def _field(field: FieldDefinition, version: int, made: dict[str, Struct]) -> Field:
    element = field.type.removeprefix("[]")
    tagged = version in field.tagged
    return Field(
        attribute=attribute_name(field.name),
        element=element,
        is_array=field.type.startswith("[]"),
        struct=made.get(element),
        present=version in field.versions,
        nullable=version in field.nullable,
        tag=field.tag if tagged else None,
        default=default_of(field),
    )


def _bytes_min(field: Field, flexible: bool) -> int:
    if field.is_array or field.element in ("bytes", "records"):
        return 1 if flexible else 4
    if field.element == "string":
        return 1 if flexible else 2
    if field.struct is not None:
        return 1 if field.nullable else field.struct.bytes_min()
    return FORMAT_BYTES[FIXED_FORMATS[field.element]]
