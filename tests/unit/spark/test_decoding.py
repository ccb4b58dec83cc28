"""Values as structs, and the reasons why some are none."""

from __future__ import annotations

import base64
import io
import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import schemaless_writer
from google.protobuf import descriptor_pb2
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DayTimeIntervalType,
    MapType,
    NullType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from headrace.core.errors import InvalidOption
from headrace.spark.decoded_schema import decoded_ddl
from headrace.spark.decoding import Decoder, decoder_of, message_class
from headrace.spark.decoding_options import Decoding, parse_decoding
from headrace.spark.options import Shape
from headrace.spark.schema import arrow_schema

PERSON = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


def json_decoder(type: pa.StructType = PERSON) -> Decoder:
    return decoder_of(Decoding("json", "", None, "none", False), type)


def test_json_becomes_a_struct() -> None:
    decoded = json_decoder().decode(
        [
            b'{"id": 1, "name": "a", "at": "2024-01-01T00:00:00Z", "tags": ["x"], "more": 5}',
            b'{\n  "id": 2\n}',
            b"{}",
        ]
    )
    assert decoded.reasons == [None] * 3
    first, second, third = decoded.column.to_pylist()
    assert (first["id"], first["name"], first["tags"]) == (1, "a", ["x"])
    assert first["at"].year == 2024
    assert (second["id"], second["name"]) == (2, None)
    assert third == {"id": None, "name": None, "at": None, "tags": None}


BAD_JSON = [
    b"",
    b"   ",
    b"nonsense",
    b'{"id": 1',
    b'{"id": "one"}',
    b'{"id": 1.5}',
    b'{"at": "soon"}',
    b"[1]",
    b"5",
    b'{"id": 1}{"id": 2}',
    b'{"id": 1}}\n{"v": {"id": 2}',
    b"\xff\xfe",
    b'{"name": "\xff\xfe"}',
    b'{"tags": ["x", "\xff"]}',
    b'{"id": 99999999999999999999}',
]


@pytest.mark.parametrize("bad", BAD_JSON)
def test_a_bad_value_is_alone_in_being_bad(bad: bytes) -> None:
    good = [b'{"id": %d}' % number for number in range(10)]
    values = [*good[:4], bad, None, *good[4:]]
    decoded = json_decoder().decode(values)
    assert [row for row, reason in enumerate(decoded.reasons) if reason] == [4]
    assert "not the JSON that was expected" in (decoded.reasons[4] or "")
    found = decoded.column.to_pylist()
    assert found[4] is None and found[5] is None
    assert [row["id"] for row in found if row] == list(range(10))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"nonsense", "Invalid value"),
        (b"[1]", "the value is an array, not an object"),
        (b'{"id": "one"}', "id is a string, not a number"),
        (b'{"tags": 5}', "tags is a number, not an array"),
        (b'{"tags": [{}]}', "tags[] is an object, not a string"),
        (b'{"id": 1, "id": 2}', "id is there twice"),
        (b'{"id": 1.5}', "'1.5' is no int64"),
        (b'{"at": "soon"}', "'soon' is no timestamp[us, tz=UTC]"),
        (b'{"name": "\xff"}', "it is not UTF-8"),
        (b'{"id": 1}}\n{"v": {"id": 2}', "it is not one value"),
    ],
)
def test_the_reason_is_about_the_value(value: bytes, reason: str) -> None:
    # Among others, so that it is not by its number in the column.
    decoded = json_decoder().decode([b"{}", value, b"{}"])
    assert decoded.reasons == [None, f"not the JSON that was expected: {reason}", None]


def test_values_cannot_pretend_to_be_their_neighbours() -> None:
    # Together these are two good documents; each alone is none.
    values = [b'{"id": 1}{"tags": [', b'{"id": 2}]}']
    decoded = json_decoder().decode(values)
    assert all(decoded.reasons)
    assert decoded.column.null_count == 2


def test_nothing_but_bad_values_is_nothing_but_nulls() -> None:
    decoded = json_decoder().decode([b"x", None, b"y"])
    assert [bool(reason) for reason in decoded.reasons] == [True, False, True]
    assert decoded.column.null_count == 3
    assert json_decoder().decode([]).column.to_pylist() == []


AVRO = {
    "type": "record",
    "name": "Metric",
    "fields": [
        {"name": "series", "type": "string"},
        {"name": "value", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
        {"name": "level", "type": {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH"]}},
    ],
}
METRIC = pa.struct(
    [
        ("series", pa.string()),
        ("value", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("labels", pa.map_(pa.string(), pa.string())),
        ("level", pa.string()),
    ]
)


def avro(framed: bool = False, **values: Any) -> bytes:
    row = {"series": "cpu", "value": 1.5, "at": 1_000, "labels": {"a": "b"}, "level": "LOW"}
    out = io.BytesIO()
    schemaless_writer(out, AVRO, row | values)
    return (b"\0\0\0\0\7" if framed else b"") + out.getvalue()


@pytest.mark.parametrize("framing", ["none", "confluent"])
def test_avro_becomes_a_struct(framing: str) -> None:
    framed = framing == "confluent"
    ids = (7,) if framed else ()
    decoding = Decoding("avro", json.dumps(AVRO), None, framing, False, schema_ids=ids)
    good = avro(framed)
    values = [good, None, good[:-1], good + b"x", avro(framed, value=None), b"\x01"]
    decoded = decoder_of(decoding, METRIC).decode(values)
    assert [bool(reason) for reason in decoded.reasons] == [False, False, True, True, False, True]
    found = decoded.column.to_pylist()
    assert (found[0]["series"], found[0]["value"], found[0]["level"]) == ("cpu", 1.5, "LOW")
    assert found[0]["labels"] == [("a", "b")]
    assert found[4]["value"] is None


def test_an_avro_schema_says_the_columns() -> None:
    assert decoded_ddl(Decoding("avro", json.dumps(AVRO), None, "none", False)) == (
        "`series`: STRING, `value`: DOUBLE, `at`: TIMESTAMP, `labels`: MAP<STRING, STRING>, "
        "`level`: STRING"
    )


def avro_record(*fields: Any, **more: Any) -> str:
    """A schema whose fields are called x, y and so on."""
    named = [{"name": name, "type": type} for name, type in zip("xyz", fields, strict=False)]
    return json.dumps({"type": "record", "name": "A", "fields": named, **more})


def test_avro_types_are_referred_to_by_any_of_their_names() -> None:
    point = {"type": "record", "name": "P", "fields": [{"name": "at", "type": "int"}]}
    money = {"type": "fixed", "name": "other.M", "size": 4}
    points = {"type": "array", "items": "P"}
    schema = avro_record(point, ["null", "shop.P"], points, namespace="shop")
    assert decoded_ddl(Decoding("avro", schema, None, "none", False)) == (
        "`x`: STRUCT<`at`: INT>, `y`: STRUCT<`at`: INT>, `z`: ARRAY<STRUCT<`at`: INT>>"
    )
    schema = avro_record(money, "other.M", namespace="shop")
    assert decoded_ddl(Decoding("avro", schema, None, "none", False)) == "`x`: BINARY, `y`: BINARY"


@pytest.mark.parametrize(
    ("type", "logical", "ddl", "arrow", "written", "read"),
    [
        ("int", "time-millis", "INT", pa.int32(), 5, 5),
        ("long", "time-micros", "BIGINT", pa.int64(), 5, 5),
        ("long", "timestamp-nanos", "BIGINT", pa.int64(), 5, 5),
        ("string", "uuid", "STRING", pa.string(), "not checked", "not checked"),
        ("string", "timestamp-millis", "STRING", pa.string(), "x", "x"),
        ("long", "local-timestamp-micros", "TIMESTAMP_NTZ", pa.timestamp("us"), 5,
         datetime(1970, 1, 1, 0, 0, 0, 5)),
        ("int", "date", "DATE", pa.date32(), 1, date(1970, 1, 2)),
    ],
)  # fmt: skip
def test_avros_logical_types_are_what_spark_makes_of_them(
    type: str, logical: str, ddl: str, arrow: pa.DataType, written: Any, read: Any
) -> None:
    out = io.BytesIO()
    schemaless_writer(out, json.loads(avro_record(type)), {"x": written})
    schema = avro_record({"type": type, "logicalType": logical})
    decoding = Decoding("avro", schema, None, "none", False)
    assert decoded_ddl(decoding) == f"`x`: {ddl}"
    decoded = decoder_of(decoding, pa.struct([("x", arrow)])).decode([out.getvalue()])
    assert decoded.reasons == [None]
    assert decoded.column.to_pylist() == [{"x": read}]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "is not an Avro schema .*JSONDecodeError"),
        ("{}", r"is not an Avro schema .*KeyError: 'type'"),
        ('{"type": "record", "fields": []}', 'is not an Avro schema .*"name" is a required'),
        ('{"type": "record", "name": "A", "fields": [{"name": "x"}]}', "is missing 'type'"),
        (avro_record("B"), "is not an Avro schema .*UnknownType: B"),
        (avro_record({"type": {"type": "int"}}), "is not an Avro schema"),
        ('"string"', "of type record is needed"),
        (avro_record({"type": "array", "items": ["int", "string"]}), r"'x\[\]', a union of more"),
        (avro_record(["null", "A"]), "'A', which contains itself"),
        (avro_record("null"), "'x', which is always null, has no type"),
        (avro_record({"type": "bytes", "logicalType": "decimal"}), "a decimal without its prec"),
        (
            avro_record({"type": "bytes", "logicalType": "decimal", "precision": 39}),
            "'x', a decimal of 39 digits, has no type",
        ),
    ],
)
def test_an_avro_schema_without_columns_is_refused(schema: str, says: str) -> None:
    with pytest.raises(InvalidOption, match=f"option 'valueSchema'.*{says}"):
        decoded_ddl(Decoding("avro", schema, None, "none", False))


def descriptors() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="order.proto", package="shop", syntax="proto3")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="SMALL", number=0)
    kind.value.add(name="LARGE", number=1)
    order = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    order.field.add(name="note", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order.field.add(
        name="kind", number=3, type=field.TYPE_ENUM, type_name=".shop.Kind",
        label=field.LABEL_OPTIONAL,
    )  # fmt: skip
    order.field.add(name="items", number=4, type=field.TYPE_INT32, label=field.LABEL_REPEATED)
    order.field.add(
        name="parent", number=5, type=field.TYPE_MESSAGE, type_name=".shop.Parent",
        label=field.LABEL_OPTIONAL,
    )  # fmt: skip
    parent = file.message_type.add(name="Parent")
    parent.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    return bytes(files.SerializeToString())


ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("note", pa.string()),
        ("kind", pa.string()),
        ("items", pa.list_(pa.int32())),
        ("parent", pa.struct([("id", pa.int64())])),
    ]
)


def protobuf_decoding(schema: str, message: str = "shop.Order") -> Decoding:
    found = parse_decoding(
        {"valueFormat": "protobuf", "valueSchema": schema, "valueMessage": message}
    )
    assert found is not None
    return found


def test_protobuf_becomes_a_struct(tmp_path: Path) -> None:
    file = tmp_path / "order.desc"
    file.write_bytes(descriptors())
    decoding = protobuf_decoding(str(file))
    file.unlink()
    assert decoded_ddl(decoding) == (
        "`id`: BIGINT, `note`: STRING, `kind`: STRING, `items`: ARRAY<INT>, "
        "`parent`: STRUCT<`id`: BIGINT>"
    )
    order = message_class(decoding)(id=7, note="x", kind=1, items=[1, 2])
    decoded = decoder_of(decoding, ORDER).decode([order.SerializeToString(), None, b"\xff\xff"])
    assert [bool(reason) for reason in decoded.reasons] == [False, False, True]
    assert decoded.column.to_pylist() == [
        {"id": 7, "note": "x", "kind": "LARGE", "items": [1, 2], "parent": None}, None, None,
    ]  # fmt: skip


def test_descriptors_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidOption, match="is neither a file here nor base64"):
        protobuf_decoding("nowhere.desc")
    with pytest.raises(InvalidOption, match="is not a descriptor set"):
        decoded_ddl(protobuf_decoding(base64.b64encode(b"\xff\xff").decode()))
    with pytest.raises(InvalidOption, match="has no message 'shop.Nothing'"):
        decoded_ddl(protobuf_decoding(base64.b64encode(descriptors()).decode(), "shop.Nothing"))


# Framed values.


def framed(id: int, value: bytes) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + value


def pair_schema(*names: str) -> str:
    fields = [{"name": name, "type": "string"} for name in names]
    return json.dumps({"type": "record", "name": "Pair", "fields": fields})


def decoding_of(**given: str) -> Decoding:
    found = parse_decoding({"valueFraming": "confluent", **given})
    assert found is not None
    return found


def test_a_value_of_another_schema_is_bad_and_its_fields_are_not_swapped() -> None:
    out = io.BytesIO()
    pair = {"first": "a", "second": "b"}
    schemaless_writer(out, json.loads(pair_schema("second", "first")), pair)
    values = [framed(7, out.getvalue()), framed(8, out.getvalue()), out.getvalue(), b"\0\0", None]
    type = pa.struct([("second", pa.string()), ("first", pa.string())])
    given = {"valueFormat": "avro", "valueSchema": pair_schema("second", "first")}
    one = decoder_of(decoding_of(**given, valueSchemaId="7"), type).decode(values)
    assert one.column.to_pylist() == [pair, None, None, None, None]
    assert [reason and reason.partition(": ")[2] for reason in one.reasons] == [
        None,
        "its schema has id 8, and option 'valueSchemaId' is 7",
        "it is not framed as a schema registry does",
        "it is not framed as a schema registry does",
        None,
    ]
    both = decoder_of(decoding_of(**given, valueSchemaId="8, 7"), type).decode(values[:2])
    assert both.column.to_pylist() == [pair, pair]


def test_framed_json_becomes_a_struct() -> None:
    given = {"valueFormat": "json", "valueSchema": "id BIGINT", "valueSchemaId": "7"}
    values = [
        framed(7, b'{"id": 1}'), framed(9, b'{"id": 2}'), b'{"id": 3}', framed(7, b"{"), None,
        framed(7, b'{"id": 4}'),
    ]  # fmt: skip
    decoded = decoder_of(decoding_of(**given), pa.struct([("id", pa.int64())])).decode(values)
    assert decoded.column.to_pylist() == [{"id": 1}, None, None, None, None, {"id": 4}]
    assert "its schema has id 9, and option" in (decoded.reasons[1] or "")
    assert "it is not framed" in (decoded.reasons[2] or "")
    assert decoded.reasons[3] and not decoded.reasons[4]


def test_framed_protobuf_says_which_message_it_is() -> None:
    schema = base64.b64encode(descriptors()).decode()
    given = {"valueFormat": "protobuf", "valueSchema": schema, "valueSchemaId": "7"}
    order = decoding_of(**given, valueMessage="shop.Order")
    parent = decoding_of(**given, valueMessage="shop.Parent")
    value = message_class(parent)(id=5).SerializeToString()
    # None means the first message of the file; one number, the second; two, one in another.
    values = [
        framed(7, b"\0" + value), framed(7, b"\x02\x02" + value), framed(7, b"\x02\x00" + value),
        framed(7, b"\x04\x02\x00" + value), framed(8, b"\x02\x02" + value), framed(7, b""),
        framed(7, b"\xff\xff\xff\xff\xff\xff"),
    ]  # fmt: skip
    decoded = decoder_of(parent, pa.struct([("id", pa.int64())])).decode(values)
    assert decoded.column.to_pylist() == [None, {"id": 5}, *[None] * 5]
    assert "it is message [0] of its file, not [1]" in (decoded.reasons[0] or "")
    assert "it is message [1, 0] of its file" in (decoded.reasons[3] or "")
    assert "it does not say which message" in (decoded.reasons[6] or "")
    decoded = decoder_of(order, ORDER).decode(values[:3])
    assert [row and row["id"] for row in decoded.column.to_pylist()] == [5, None, 5]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "'valueSchemaId' is missing: set it to the id that the registry gave"),
        ({"valueSchemaId": "seven"}, "'valueSchemaId' is 'seven'; give one id or several"),
        ({"valueSchemaId": "7,"}, "'valueSchemaId' is '7,'; give one id or several"),
        ({"valueSchemaId": "7", "valueFraming": "none"}, "'valueSchemaId' is of framed values"),
    ],
)
def test_framed_values_need_the_id_of_their_schema(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        decoding_of(valueFormat="json", valueSchema="id BIGINT", **given)


# What JSON is not decoded to.


@pytest.mark.parametrize(
    ("type", "says"),
    [
        (MapType(StringType(), StringType()), "x is a MAP, .*from_json.* 'x MAP<STRING, STRING>'"),
        (DateType(), r"x is a DATE, .* make it STRING, .* CAST\(decoded.x AS DATE\)"),
        (BinaryType(), r"x is BINARY, .* make it STRING, .* unbase64\(decoded.x\)"),
        (ArrayType(NullType()), r"x\[\] is VOID, .* make it STRING and convert it in Spark"),
        (YearMonthIntervalType(), "x is INTERVAL YEAR TO MONTH, .* make it STRING"),
        (DayTimeIntervalType(), "x is INTERVAL DAY TO SECOND, .* make it STRING"),
        (StructType().add("y", VariantType()), "x.y is VARIANT, .* take it from the bytes"),
    ],
)
def test_a_type_that_json_does_not_become_is_refused_with_what_to_do(
    type: DataType, says: str
) -> None:
    shape = Shape(
        "stream", (), decoding_of(valueFraming="none", valueFormat="json", valueSchema="x")
    )
    schema = StructType().add("decoded", StructType().add("x", type)).add("decodeError", "string")
    with pytest.raises(InvalidOption, match=f"option 'valueSchema': {says}"):
        arrow_schema(shape, schema)


def test_an_object_is_no_string() -> None:
    [reason] = json_decoder(pa.struct([("x", pa.string())])).decode([b'{"x": {"a": 1}}']).reasons
    assert reason
