"""What a change of a table's columns means for the rows that are there.

    evolve(table's schema, wanted schema) -> Evolution

    column is new                       added: null in the rows that are there
    column is left out                  it stays, and is null in new rows
    order                               the table keeps its own
    wider type (int to long)            every file is written anew, in one commit
    new field in a struct               added, also in arrays; in a map like a wider type
    anything else                       a problem, and nothing is written

A pure function: nothing here knows of files, logs or Spark's JVM.

Rejected: Delta's table feature `typeWidening`, which leaves files of the old type in
place. Readers that do not know the feature refuse the table, delta-rs among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql import types as t

from headrace.core.errors import InvalidArgument

# Each fits into those behind it, without loss.
_INTEGERS: tuple[type[t.DataType], ...] = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
# Decimal digits that hold every value, as Delta Lake counts them.
_DIGITS: dict[type[t.DataType], int] = {
    t.ByteType: 10,
    t.ShortType: 10,
    t.IntegerType: 10,
    t.LongType: 20,
}


class Problem(NamedTuple):
    """A change that no rule allows. Fields of structs have names such as `a.b`."""

    column: str
    # Types in Spark's words; empty where the column does not exist.
    old: str
    new: str
    why: str


class Evolution(NamedTuple):
    # The table's columns from now on: the old order, then what is new.
    schema: t.StructType
    added: tuple[str, ...] = ()
    # Columns that old files hold in another type than the schema's.
    rewritten: tuple[str, ...] = ()
    # Columns of the table that new rows do not have.
    unused: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        return not (self.added or self.rewritten or self.problems)

    def told(self) -> list[str]:
        """What is done to the table, for whoever watches."""
        return [
            *(f"new column {each}" for each in self.added),
            *(f"wider column {each}" for each in self.rewritten),
        ]


def evolve(table: t.StructType, wanted: t.StructType) -> Evolution:
    """What has to happen so that rows of `wanted` can be put into the table."""
    notes = _Notes([], [], [], [])
    schema = _struct(table, wanted, "", False, notes)
    return Evolution(
        schema,
        tuple(notes.added),
        tuple(notes.rewritten),
        tuple(notes.unused),
        tuple(notes.problems),
    )


def check_columns(table: t.StructType, rows: t.StructType, location: str) -> None:
    """InvalidArgument when rows of this schema cannot be put into the table as it is."""
    found = evolve(table, rows)
    if not found.changes_nothing:
        changed = [*found.told(), *_sentences(found.problems)]
        raise InvalidArgument(
            f"the columns of {location} are not those that this pipeline began with "
            f"({'; '.join(changed)}): it was made anew meanwhile, or others write to it; correct "
            "the settings where they are wrong, and run the pipeline again"
        )


def required(kind: t.DataType, path: str = "") -> list[str]:
    """The columns and fields that may not be null."""
    if isinstance(kind, t.ArrayType):
        return required(kind.elementType, path)
    if isinstance(kind, t.MapType):
        return required(kind.keyType, path) + required(kind.valueType, path)
    if not isinstance(kind, t.StructType):
        return []
    found = []
    for field in kind.fields:
        name = _joined(path, field.name)
        found += ([] if field.nullable else [name]) + required(field.dataType, name)
    return found


def as_stored(table: t.StructType, schema: t.StructType) -> t.StructType:
    """The columns of `schema`, where there is an old type with that: what files of the
    table can be read as, and then be cast to `schema`."""
    old = {field.name: field.dataType for field in table.fields}
    return t.StructType(
        [
            t.StructField(
                f.name, _stored_type(old[f.name], f.dataType) if f.name in old else f.dataType
            )
            for f in schema.fields
        ]
    )


def check(evolution: Evolution, table: str, remedy: str) -> None:
    """InvalidArgument names each problem's column, both types, and what to do."""
    if evolution.problems:
        raise InvalidArgument(f"{table}: {'; '.join(_sentences(evolution.problems))}; {remedy}")


def _sentences(problems: tuple[Problem, ...]) -> Iterator[str]:
    for column, old, new, why in problems:
        if old and new:
            types = f"is {old} in the table and {new} in the settings"
        else:
            types = f"is {old} in the table" if old else f"is {new} in the settings"
        yield f"column {column!r} {types}: {why}"


class _Notes(NamedTuple):
    added: list[str]
    rewritten: list[str]
    unused: list[str]
    problems: list[Problem]


def _struct(
    old: t.StructType, new: t.StructType, path: str, in_map: bool, notes: _Notes
) -> t.StructType:
    wanted = {field.name: field for field in new.fields}
    spellings = {field.name.lower(): field for field in new.fields}
    merged = []
    for field in old.fields:
        other = wanted.pop(field.name, None)
        name = _joined(path, field.name)
        if other is not None:
            merged.append(_both(field, other, name, in_map, notes))
            continue
        merged.append(field)
        twin = spellings.get(field.name.lower())
        if twin is not None and twin.name in wanted:
            wanted.pop(twin.name)
            why = f"{twin.name!r} differs from it in upper and lower case only"
            notes.problems.append(Problem(name, _words(field), _words(twin), why))
        elif not field.nullable:
            why = "it is required, so it cannot be left out"
            notes.problems.append(Problem(name, _words(field), "", why))
        elif in_map:
            why = "a field of a struct in a map cannot be left out"
            notes.problems.append(Problem(name, _words(field), "", why))
        else:
            notes.unused.append(name)
    for field in wanted.values():
        name = _joined(path, field.name)
        if not field.nullable:
            why = "a new column cannot be required, since rows that are there have no value for it"
            notes.problems.append(Problem(name, "", _words(field), why))
        (notes.rewritten if in_map else notes.added).append(f"{name} {_words(field)}")
        merged.append(t.StructField(field.name, field.dataType))
    return t.StructType(merged)


def _both(
    old: t.StructField, new: t.StructField, name: str, in_map: bool, notes: _Notes
) -> t.StructField:
    if old.nullable != new.nullable:
        why = "it is required there" if new.nullable else "a column cannot become required"
        notes.problems.append(Problem(name, _words(old), _words(new), why))
    kind = _type(old.dataType, new.dataType, name, in_map, notes)
    return t.StructField(old.name, kind, old.nullable, old.metadata)


def _type(old: t.DataType, new: t.DataType, name: str, in_map: bool, notes: _Notes) -> t.DataType:
    if isinstance(old, t.StructType) and isinstance(new, t.StructType):
        return _struct(old, new, name, in_map, notes)
    if isinstance(old, t.ArrayType) and isinstance(new, t.ArrayType):
        element = _type(old.elementType, new.elementType, name, in_map, notes)
        return t.ArrayType(element, old.containsNull)
    if isinstance(old, t.MapType) and isinstance(new, t.MapType):
        key = _type(old.keyType, new.keyType, name, True, notes)
        value = _type(old.valueType, new.valueType, name, True, notes)
        return t.MapType(key, value, old.valueContainsNull)
    if old == new:
        return old
    if _widens(old, new):
        notes.rewritten.append(f"{name} {old.simpleString()} to {new.simpleString()}")
        return new
    why = "values that are there cannot all become of that type"
    notes.problems.append(Problem(name, old.simpleString(), new.simpleString(), why))
    return old


def _widens(old: t.DataType, new: t.DataType) -> bool:
    """Whether each value of the old type is a value of the new one."""
    if type(old) in _INTEGERS:
        if type(new) in _INTEGERS:
            return _INTEGERS.index(type(old)) < _INTEGERS.index(type(new))
        if isinstance(new, t.DecimalType):
            return new.precision - new.scale >= _DIGITS[type(old)]
        return isinstance(new, t.DoubleType) and not isinstance(old, t.LongType)
    if isinstance(old, t.DecimalType) and isinstance(new, t.DecimalType):
        more_scale = new.scale - old.scale
        return new.precision - old.precision >= more_scale >= 0
    return isinstance(old, t.FloatType) and isinstance(new, t.DoubleType)


def _stored_type(old: t.DataType, new: t.DataType) -> t.DataType:
    if isinstance(old, t.StructType) and isinstance(new, t.StructType):
        return as_stored(old, new)
    if isinstance(old, t.ArrayType) and isinstance(new, t.ArrayType):
        return t.ArrayType(_stored_type(old.elementType, new.elementType))
    if isinstance(old, t.MapType) and isinstance(new, t.MapType):
        return t.MapType(
            _stored_type(old.keyType, new.keyType), _stored_type(old.valueType, new.valueType)
        )
    return old


def _words(field: t.StructField) -> str:
    return field.dataType.simpleString() + ("" if field.nullable else " NOT NULL")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
