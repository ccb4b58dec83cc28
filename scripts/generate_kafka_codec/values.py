"""The messages themselves: one NamedTuple per struct, without methods.

All fields have defaults, Kafka's own, so a caller names only what it sets, and a
decoder fills in what a version lacks. Being immutable, a default can be shared,
and "is it the default?" is mostly answered by identity.

Rejected: dataclasses with slots. Their fields read faster and callers construct them
faster, but they can be changed, so no default could be shared.
"""

from __future__ import annotations

from .definitions import Definition, FieldDefinition, StructDefinition, Versions, inner_first
from .layout import attribute_name, default_constant, default_of
from .source import Source

_TYPES = {
    "bool": "bool",
    "string": "str",
    "bytes": "Buffer",
    "records": "Buffer",
    "uuid": "bytes",
    "float64": "float",
}


def restrict(definition: Definition, versions: Versions) -> Definition:
    """The definition without the fields and structs that none of the versions has."""
    kept: dict[str, StructDefinition] = {}
    for struct in definition.structs.values():
        fields = [
            field
            for field in struct.fields
            if max(field.versions.first, versions.first) <= min(field.versions.last, versions.last)
        ]
        kept[struct.name] = StructDefinition(struct.name, tuple(fields))
    return definition._replace(structs=inner_first(definition.name, kept), valid=versions)


def type_of(field: FieldDefinition) -> str:
    element = field.type.removeprefix("[]")
    kind = _TYPES.get(element) or (element if element[0].isupper() else "int")
    if field.type.startswith("[]"):
        kind = f"Sequence[{kind}]"
    return f"{kind} | None" if is_optional(field) else kind


def is_optional(field: FieldDefinition) -> bool:
    """Whether any version allows null."""
    return (
        field.nullable.last >= field.nullable.first
        or field.default == "null"
        or field.type == "records"
    )


def write_values(source: Source, definition: Definition) -> None:
    defaults = {
        field.type
        for struct in definition.structs.values()
        for field in struct.fields
        if default_of(field) == default_constant(field.type)
    }
    for struct in definition.structs.values():
        with source.block(f"class {struct.name}(NamedTuple):"):
            for field in struct.fields:
                attribute = attribute_name(field.name)
                line = f"{attribute}: {type_of(field)} = {default_of(field)}"
                if attribute in ("index", "count"):
                    # A tuple has methods of these names, which nobody misses.
                    line += "  # type: ignore[assignment]"
                source.add(line)
            if not struct.fields:
                source.add("pass")
        source.add("")
        source.add("")
        if struct.name in defaults:
            source.add(f"{default_constant(struct.name)}: Final = {struct.name}()")
            source.add("")
            source.add("")
