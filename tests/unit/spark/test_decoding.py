"""Values as structs, and the reasons why some are none."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import schemaless_writer
from google.protobuf import descriptor_pb2

from headrace.core.errors import InvalidOption
from headrace.spark.decoded_schema import decoded_ddl
from headrace.spark.decoding import Decoder, decoder_of, message_class
from headrace.spark.decoding_options import Decoding, parse_decoding

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
    decoding = Decoding("avro", json.dumps(AVRO), None, framing, False)
    framed = framing == "confluent"
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


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "is not an Avro schema"),
        ('"string"', "of type record is needed"),
        (
            '{"type": "record", "name": "A", "fields": [{"name": "x", "type": ["int", "string"]}]}',
            "a union of more than one type",
        ),
        (
            '{"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "A"]}]}',
            "'A', which contains itself",
        ),
    ],
)
def test_an_avro_schema_without_columns_is_refused(schema: str, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
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
