"""What becomes of the typed table when `value_schema` is another one: every kind of change."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.core.errors import InvalidArgument
from headrace.pipelines.evolution import as_stored, check, check_columns, evolve, required
from headrace.pipelines.schema import arrow_schema, spark_schema

INT, LONG, STRING, DOUBLE = IntegerType(), LongType(), StringType(), DoubleType()


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


# Table, settings, the table's columns afterwards, then what was added, made wider, unused.
ALLOWED = {
    "add": (
        columns(a=INT),
        columns(a=INT, b=STRING),
        columns(a=INT, b=STRING),
        (["b string"], [], []),
    ),
    "drop": (columns(a=INT, b=STRING), columns(a=INT), columns(a=INT, b=STRING), ([], [], ["b"])),
    "rename": (
        columns(a=INT, b=STRING),
        columns(a=INT, c=STRING),
        columns(a=INT, b=STRING, c=STRING),
        (["c string"], [], ["b"]),
    ),
    "order": (
        columns(a=INT, b=STRING),
        columns(b=STRING, a=INT),
        columns(a=INT, b=STRING),
        ([],) * 3,
    ),
    "widen": (columns(a=INT), columns(a=LONG), columns(a=LONG), ([], ["a int to bigint"], [])),
    "widen a float": (
        columns(a=FloatType()),
        columns(a=DOUBLE),
        columns(a=DOUBLE),
        ([], ["a float to double"], []),
    ),
    "widen a decimal": (
        columns(a=DecimalType(10, 2)),
        columns(a=DecimalType(12, 3)),
        columns(a=DecimalType(12, 3)),
        ([], ["a decimal(10,2) to decimal(12,3)"], []),
    ),
    "widen in a list of structs": (
        columns(a=ArrayType(columns(x=ByteType()))),
        columns(a=ArrayType(columns(x=DOUBLE))),
        columns(a=ArrayType(columns(x=DOUBLE))),
        ([], ["a.x tinyint to double"], []),
    ),
    "add a nested field": (
        columns(a=columns(x=INT)),
        columns(a=columns(x=INT, y=INT)),
        columns(a=columns(x=INT, y=INT)),
        (["a.y int"], [], []),
    ),
    "drop a nested field": (
        columns(a=ArrayType(columns(x=INT, y=INT))),
        columns(a=ArrayType(columns(y=INT))),
        columns(a=ArrayType(columns(x=INT, y=INT))),
        ([], [], ["a.x"]),
    ),
    "add a field in a map": (
        columns(a=MapType(STRING, columns(x=INT))),
        columns(a=MapType(STRING, columns(x=INT, y=INT))),
        columns(a=MapType(STRING, columns(x=INT, y=INT))),
        ([], ["a.y int"], []),
    ),
}


@pytest.mark.parametrize("change", ALLOWED)
def test_a_change_that_the_table_can_follow(change: str) -> None:
    table, wanted, expected, lists = ALLOWED[change]
    found = evolve(table, wanted)
    assert found.problems == () and found.schema == expected
    assert (list(found.added), list(found.rewritten), list(found.unused)) == lists
    # Once it is done there is nothing left to do.
    again = evolve(found.schema, wanted)
    assert again.changes_nothing and again.schema == found.schema


REQUIRED = StructType([StructField("a", INT, nullable=False)])

# Table, settings, and what the error says.
REFUSED = {
    "narrow": (columns(a=LONG), columns(a=INT), "column 'a' is bigint in the table and int in"),
    "float to int": (columns(a=DOUBLE), columns(a=LONG), "is double in the table and bigint in"),
    "long to double": (columns(a=LONG), columns(a=DOUBLE), "is bigint in the table and double in"),
    "int to a small decimal": (columns(a=INT), columns(a=DecimalType(9, 0)), "decimal(9,0)"),
    "type to string": (columns(a=INT), columns(a=STRING), "is int in the table and string in the"),
    "date to timestamp": (
        columns(a=DateType()),
        columns(a=TimestampType()),
        "is date in the table",
    ),
    "nest": (columns(a=INT), columns(a=columns(x=INT)), "is int in the table and struct<x:int> in"),
    "struct to map": (
        columns(a=columns(x=INT)),
        columns(a=MapType(STRING, INT)),
        "is struct<x:int> in the table and map<string,int> in the settings",
    ),
    "narrow a nested field": (
        columns(a=ArrayType(columns(x=LONG))),
        columns(a=ArrayType(columns(x=INT))),
        "column 'a.x' is bigint in the table and int",
    ),
    "case only": (
        columns(id=INT),
        columns(Id=INT),
        "column 'id' is int in the table and int in the settings: 'Id' differs from it in upper",
    ),
    "make required": (columns(a=INT), REQUIRED, "int NOT NULL in the settings: a column cannot"),
    "add required": (columns(b=INT), REQUIRED, "column 'a' is int NOT NULL in the settings: a new"),
    "no more required": (REQUIRED, columns(a=INT), "is int NOT NULL in the table and int"),
    "drop required": (REQUIRED, columns(b=INT), "column 'a' is int NOT NULL in the table: it is"),
    "drop a field in a map": (
        columns(a=MapType(STRING, columns(x=INT, y=INT))),
        columns(a=MapType(STRING, columns(x=INT))),
        "column 'a.y' is int in the table: a field of a struct in a map cannot be left out",
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_a_change_that_is_refused_names_column_and_types_and_remedy(change: str) -> None:
    table, wanted, message = REFUSED[change]
    found = evolve(table, wanted)
    assert len(found.problems) == 1
    with pytest.raises(InvalidArgument) as error:
        check(found, "lake/typed", "do this")
    text = str(error.value)
    assert text.startswith("lake/typed: column '") and text.endswith("; do this")
    assert message in text


def test_all_problems_of_a_change_are_named_at_once() -> None:
    found = evolve(columns(a=LONG, b=STRING), columns(a=INT, b=INT, c=INT))
    assert [problem.column for problem in found.problems] == ["a", "b"]


def test_rows_that_do_not_fit_a_table_as_it_is_are_refused() -> None:
    table = columns(a=LONG, b=columns(x=INT, y=INT))
    check_columns(table, columns(b=columns(y=INT)), "lake/typed")
    for rows in (columns(a=INT), columns(c=INT), columns(b=columns(z=INT))):
        with pytest.raises(InvalidArgument, match="run the pipeline again"):
            check_columns(table, rows, "lake/typed")


def test_files_are_read_as_they_were_written_before_they_are_made_wider() -> None:
    table = columns(a=INT, b=MapType(STRING, columns(x=INT)))
    wanted = columns(a=LONG, b=MapType(STRING, columns(x=LONG, y=STRING)), c=DOUBLE)
    assert as_stored(table, evolve(table, wanted).schema) == columns(
        a=INT, b=MapType(STRING, columns(x=INT, y=STRING)), c=DOUBLE
    )


def test_required_fields_are_found_wherever_they_are() -> None:
    deep = columns(a=ArrayType(REQUIRED), m=MapType(STRING, columns(b=REQUIRED)))
    assert required(deep) == ["a.a", "m.b.a"]
    assert required(columns(a=INT)) == []


def test_columns_come_back_from_files_as_they_were() -> None:
    schema = columns(
        a=INT,
        b=DecimalType(9, 2),
        c=ArrayType(columns(x=STRING)),
        d=MapType(STRING, TimestampType()),
    )
    assert spark_schema(arrow_schema(schema)) == schema
