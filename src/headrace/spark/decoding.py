"""Values as a struct: JSON, Avro or Protobuf, and what to do with those that are not.

    decoder.decode(values) -> the struct column, and a reason for each bad value

A value that is null is no bad record: its struct is null. A bad one never stops a
query: the reason stands beside it, or the record goes to the dead letters. A framed value
whose schema is another than those that were named is a bad one: its bytes could be taken
for other fields.

    0 | id of the schema, 4 bytes | [protobuf: which message] | the value

JSON is parsed by Arrow, a whole column at a time: every value is put into an envelope
with its number under a name that nobody can know, so that no value can pretend to be
several, or part of its neighbour. A column that does not parse is cut in halves until
the bad values are alone. Avro and Protobuf are decoded value by value.

Rejected: JSON value by value. It costs ten times as much, and then Arrow converts it.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from datetime import UTC
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.json as pj

from headrace.core.errors import InvalidOption
from headrace.spark.avro_schema import parse_avro
from headrace.spark.decoding_options import Decoding
from headrace.spark.json_reasons import json_reason
from headrace.spark.zones import as_text, with_times, zone_named, zone_of_task

_FRAME_BYTES = 5
# Of a column's values at most so many bytes are parsed at once.
_BLOCK_BYTES = 1 << 30


class Decoded(NamedTuple):
    column: pa.Array
    # By row; None for a value that was decoded.
    reasons: list[str | None]


class Decoder(Protocol):
    def decode(self, values: Sequence[bytes | None]) -> Decoded: ...


def decoder_of(decoding: Decoding, type: pa.StructType) -> Decoder:
    if decoding.format == "json":
        zone = zone_of_task(decoding.time_zone, decoding.driver_zone)
        return JsonDecoder(type, zone, decoding.schema_ids)
    if decoding.format == "avro":
        return AvroDecoder(decoding, type)
    return ProtobufDecoder(decoding, type)


class JsonDecoder:
    def __init__(self, type: pa.StructType, zone: str, schema_ids: Sequence[int] = ()) -> None:
        self._schema_ids = schema_ids
        self._type = type
        # Arrow's parser takes times without a zone for UTC, and does not say which they were.
        self._parsed = as_text(type)
        # What has no times needs no zone, which a machine without a list of them would not know.
        self._zone = UTC if self._parsed.equals(type) else zone_named(zone)
        if self._zone is UTC:
            self._parsed = type
        self._number = f"n{os.urandom(8).hex()}"
        self._schema = pa.schema([("v", self._parsed), (self._number, pa.int64())])

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        reasons: list[str | None] = [None] * len(values)
        there = [(row, value) for row, value in enumerate(values) if value is not None]
        if self._schema_ids:
            there = self._without_frames(there, reasons)
        parts = self._parse(there, reasons)
        rows = [row for part in parts for row in part[0]]
        if len(rows) == len(values) and len(parts) == 1:
            return Decoded(parts[0][1], reasons)
        # Where each row's struct lies among those that were parsed.
        place: list[int | None] = [None] * len(values)
        for at, row in enumerate(rows):
            place[row] = at
        if not rows:
            return Decoded(pa.nulls(len(values), self._type), reasons)
        joined = pa.concat_arrays([part[1] for part in parts])
        return Decoded(joined.take(pa.array(place, pa.int32())), reasons)

    def _without_frames(
        self, rows: list[tuple[int, bytes]], reasons: list[str | None]
    ) -> list[tuple[int, bytes]]:
        found = []
        for row, value in rows:
            try:
                found.append((row, _unframed(value, self._schema_ids)))
            except ValueError as error:
                reasons[row] = f"not the JSON that was expected: {error}"
        return found

    def _parse(
        self, rows: list[tuple[int, bytes]], reasons: list[str | None]
    ) -> list[tuple[list[int], pa.Array]]:
        if not rows:
            return []
        try:
            return [([row for row, _ in rows], self._parse_all(rows))]
        except pa.ArrowInvalid as error:
            if len(rows) == 1:
                what = json_reason(_first_line(error))
                reasons[rows[0][0]] = f"not the JSON that was expected: {what}"
                return []
        middle = len(rows) // 2
        return self._parse(rows[:middle], reasons) + self._parse(rows[middle:], reasons)

    def _parse_all(self, rows: list[tuple[int, bytes]]) -> pa.Array:
        tail = f', "{self._number}": '.encode()
        text = b"".join(
            part for row, value in rows for part in (b'{"v": ', value, tail, b"%d}\n" % row)
        )
        table = pj.read_json(
            io.BytesIO(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=min(len(text), _BLOCK_BYTES)),
            parse_options=pj.ParseOptions(
                explicit_schema=self._schema,
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        if table.column(self._number).to_pylist() != [row for row, _ in rows]:
            raise pa.ArrowInvalid("it is not one value")
        column = table.column("v").combine_chunks()
        # The parser takes bytes as they come, and text that is none breaks who reads it.
        column.validate(full=True)
        return with_times(column, self._type, self._zone)


class AvroDecoder:
    def __init__(self, decoding: Decoding, type: pa.StructType) -> None:
        self._type = type
        self._schema = parse_avro(decoding.schema)
        self._schema_ids = decoding.schema_ids

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        from fastavro import schemaless_reader

        return _one_by_one(values, self._schema_ids, self._type, self._read(schemaless_reader))

    def _read(self, read: Any) -> Any:
        def read_one(value: bytes) -> Any:
            stream = io.BytesIO(value)
            found = read(stream, self._schema, None)
            if stream.tell() != len(value):
                raise ValueError(f"{len(value) - stream.tell()} bytes follow the record")
            return found

        return read_one


class ProtobufDecoder:
    def __init__(self, decoding: Decoding, type: pa.StructType) -> None:
        self._type = type
        self._decoding = decoding

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        message = message_class(self._decoding)
        schema_ids = self._decoding.schema_ids
        path = message_path(message.DESCRIPTOR)

        def read_one(value: bytes) -> Any:
            found = message()
            found.ParseFromString(_behind_path(value, path) if schema_ids else value)
            return message_values(found)

        return _one_by_one(values, schema_ids, self._type, read_one)


def _unframed(value: bytes, schema_ids: Sequence[int]) -> bytes:
    """What is behind the frame; the value itself where there are no frames. ValueError
    for one that is not framed, or whose schema is another."""
    if not schema_ids:
        return value
    if len(value) < _FRAME_BYTES or value[0]:
        raise ValueError("it is not framed as a schema registry does")
    id = int.from_bytes(value[1:_FRAME_BYTES], "big")
    if id not in schema_ids:
        known = ", ".join(map(str, schema_ids))
        raise ValueError(f"its schema has id {id}, and option 'valueSchemaId' is {known}")
    return value[_FRAME_BYTES:]


def _one_by_one(
    values: Sequence[bytes | None], schema_ids: Sequence[int], type: pa.StructType, read: Any
) -> Decoded:
    rows: list[Any] = []
    reasons: list[str | None] = []
    for value in values:
        row, reason = None, None
        if value is not None:
            try:
                row = read(_unframed(value, schema_ids))
                # What Arrow cannot take is this record's fault, not its neighbours'.
                pa.scalar(row, type)
            except Exception as error:
                row, reason = None, f"not what was expected: {_first_line(error)}"
        rows.append(row)
        reasons.append(reason)
    return Decoded(pa.array(rows, type), reasons)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]


# Schemas of Protobuf.


def message_class(decoding: Decoding) -> Any:
    """The class of the message, from the descriptor set in the option."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(decoding.schema))
    except (ValueError, DecodeError) as error:
        raise InvalidOption(
            f"option 'valueSchema' is not a descriptor set ({error}); make one with: "
            "protoc --include_imports --descriptor_set_out=FILE"
        ) from None
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    try:
        found = pool.FindMessageTypeByName(decoding.message or "")
    except KeyError:
        raise InvalidOption(
            f"option 'valueMessage': the descriptor set has no message {decoding.message!r}"
        ) from None
    return message_factory.GetMessageClass(found)


def message_path(descriptor: Any) -> tuple[int, ...]:
    """Where in its file the message is declared: its number, behind those of the messages
    around it."""
    from google.protobuf import descriptor_pb2

    outer = descriptor.containing_type
    owner: Any
    path: tuple[int, ...] = ()
    if outer is None:
        descriptor.file.CopyToProto(owner := descriptor_pb2.FileDescriptorProto())
        siblings = owner.message_type
    else:
        outer.CopyToProto(owner := descriptor_pb2.DescriptorProto())
        siblings, path = owner.nested_type, message_path(outer)
    return (*path, [each.name for each in siblings].index(descriptor.name))


def _behind_path(value: bytes, wanted: tuple[int, ...]) -> bytes:
    """What is behind the numbers of the message. They are of variable length, how many
    there are comes first, and none at all means the first message."""
    count, at = _number(value, 0)
    path = []
    for _ in range(count):
        number, at = _number(value, at)
        path.append(number)
    if tuple(path or (0,)) != wanted:
        raise ValueError(f"it is message {path or [0]} of its file, not {list(wanted)}")
    return value[at:]


def _number(value: bytes, at: int) -> tuple[int, int]:
    """A number whose sign is its last bit, and where the next one begins."""
    found = shift = 0
    while shift < 35 and at < len(value):
        found |= (value[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if value[at - 1] < 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise ValueError("it does not say which message it is")


def message_values(message: Any) -> dict[str, Any]:
    """A message as plain values: enums by name; what is not there is its default, or
    null where the schema can tell."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            found[field.name] = [_plain(field, each) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _plain(field, value)
    return found


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return message_values(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value
