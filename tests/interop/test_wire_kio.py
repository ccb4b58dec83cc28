"""Our codec against kio's, an independent one: the same message through both.

Every API and version that we speak, requests and responses, and what consumers
embed. hypothesis makes kio's value; then

    kio's bytes     decoded by us       field by field the same value
    our value       encoded by us       byte for byte kio's bytes
    our bytes       decoded by kio      kio's value again
    kio's bytes with unknown tagged fields in every struct, decoded by us: the same value

What kio cannot hold is left out here and tested elsewhere: error codes that it
does not know, durations that overflow its timedelta, and times before 1970.
"""

from __future__ import annotations

import dataclasses
import pkgutil
import types
import typing
from datetime import UTC, datetime, timedelta
from importlib import import_module
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial.writers import write_unsigned_varint
from kio.static.constants import EntityType
from kio.static.primitive import uvarint

from headrace.wire.kafka.api import APIS, EMBEDDED, module_name
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.frame import (
    decode_request_header,
    decode_response_header,
    encode_request_frame,
    encode_response_frame,
)

# For each version of each message: few in the ordinary run, many in the long one.
EXAMPLES = max(8, settings().max_examples // 10)

MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Lengths around the places where a varint takes one byte more.
TEXT_LENGTHS = [0, 1, 126, 127, 128, 300, 1022, 1023, 1024, 17_000, 32_767]

texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(TEXT_LENGTHS).map(
    lambda length: "x" * length
)
blobs = st.binary(max_size=20) | st.sampled_from(TEXT_LENGTHS).map(lambda length: b"\xff" * length)


def integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.integers(low, high) | st.sampled_from([-1, 0, 1, low, high])


STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "int8": integers(8),
    "int16": integers(16),
    "int32": integers(32),
    "int64": integers(64),
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": texts,
    "bytes": blobs,
    "records": blobs,
    # kio has None for the UUID of zeros.
    "uuid": st.uuids(allow_nil=False) | st.none(),
    "error_code": st.sampled_from(list(KioErrorCode)),
    "timedelta_i32": integers(32).map(lambda number: number * MILLISECOND),
    "timedelta_i64": st.integers(-(2**45), 2**45).map(lambda number: number * MILLISECOND),
    "datetime_i64": st.integers(0, 2**32).map(lambda number: EPOCH + timedelta(seconds=number)),
}


def all_messages() -> list[Any]:
    cases: list[tuple[str, int | None, int]] = []
    for api in APIS.values():
        for version in range(api.first, api.last + 1):
            for kind in ("Request", "Response"):
                cases.append((api.name + kind, api.key, version))
    for name, first, last in EMBEDDED:
        cases += [(name, None, version) for version in range(first, last + 1)]
    return [
        pytest.param(name, key, version, id=f"{name}-v{version}") for name, key, version in cases
    ]


@pytest.mark.parametrize(("name", "key", "version"), all_messages())
def test_both_codecs_make_the_same_of_every_message(
    name: str, key: int | None, version: int
) -> None:
    schema = kio_schema(name, key, version)
    module: Any = import_module(f"headrace.wire.kafka.generated.{module_name(name)}")
    ours = getattr(module, name)
    write, read = entity_writer(schema), entity_reader(schema)
    decode, encode = module.DECODERS[version], module.ENCODERS[version]

    @settings(max_examples=EXAMPLES)
    @given(entities(schema))
    def check(theirs: Any) -> None:
        with BytesIO() as buffer:
            write(buffer, theirs)
            expected = buffer.getvalue()
        message = translate(theirs, ours)
        assert b"".join(encode(message)) == expected
        decoded = decode(expected, 0)
        assert decoded == message
        assert b"".join(encode(decoded)) == expected
        # The same through another kind of buffer, and not from its beginning.
        assert decode(memoryview(b"\x7f\x7f" + expected), 2) == message
        again, size = read(expected, 0)
        assert (again, size) == (theirs, len(expected))
        extended = with_unknown_tags(write, theirs)
        assert (extended != expected) == schema.__flexible__
        assert decode(extended, 0) == message

    check()


def test_every_message_is_compared() -> None:
    # A codec that nobody compares would be one that nobody has tested.
    folder = import_module("headrace.wire.kafka.generated").__path__[0]
    modules = {each.name for each in pkgutil.iter_modules([folder])}
    assert modules == {module_name(str(case.values[0])) for case in all_messages()}


def test_error_codes_have_the_names_and_the_meaning_that_kio_has() -> None:
    theirs = {code.value: (code.name.upper(), code.retriable) for code in KioErrorCode}
    assert {int(code): (code.name, code.retriable) for code in ErrorCode} == theirs


@settings(max_examples=5)
@given(texts | st.none(), integers(32))
def test_request_headers_are_the_same_in_both(client_id: str | None, correlation_id: int) -> None:
    for api in APIS.values():
        for version in range(api.first, api.last + 1):
            schema: Any = load_request_schema(api.key, version).__header_schema__
            theirs = schema(
                request_api_key=api.key,
                request_api_version=version,
                correlation_id=correlation_id,
                client_id=client_id,
            )
            with BytesIO() as buffer:
                entity_writer(schema)(buffer, theirs)
                expected = buffer.getvalue()
            (frame,) = encode_request_frame(api.key, version, correlation_id, client_id, [])
            assert bytes(frame[4:]) == expected
            header = decode_request_header(expected)
            assert header == (api.key, version, correlation_id, client_id, len(expected))


def test_response_headers_have_tags_in_the_same_versions_in_both() -> None:
    for api in APIS.values():
        for version in range(api.first, api.last + 1):
            schema: Any = load_response_schema(api.key, version).__header_schema__
            with BytesIO() as buffer:
                entity_writer(schema)(buffer, schema(correlation_id=7))
                expected = buffer.getvalue()
            frame = b"".join(encode_response_frame(api.key, version, 7, []))
            assert frame[4:] == expected, (api.name, version)
            assert decode_response_header(api.key, version, expected) == (7, len(expected))


# kio's side.


def kio_schema(name: str, key: int | None, version: int) -> Any:
    if key is None:
        return load_entity_schema(module_name(name), version, EntityType.data)
    load = load_request_schema if name.endswith("Request") else load_response_schema
    return load(key, version)


def with_unknown_tags(write: Any, theirs: Any) -> bytes:
    """kio's bytes, with a field that nobody knows in the tagged section of every struct.
    kio writes the count of a section by a function that it uses for nothing else."""

    def write_count(buffer: Any, count: int) -> None:
        write_unsigned_varint(buffer, uvarint(count + 1))
        buffer.write(b"\x90\x4e\x02??")

    with pytest.MonkeyPatch.context() as patch, BytesIO() as buffer:
        patch.setattr("kio.serial._serialize.write_unsigned_varint", write_count)
        write(buffer, theirs)
        return buffer.getvalue()


def entities(schema: Any) -> st.SearchStrategy[Any]:
    fields = {field.name: field_values(field) for field in dataclasses.fields(schema)}
    return st.builds(schema, **fields)


def field_values(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    kind, optional = without_none(field.type)
    is_array = typing.get_origin(kind) is tuple
    element = without_none(typing.get_args(kind)[0])[0] if is_array else kind
    values: st.SearchStrategy[Any]
    if dataclasses.is_dataclass(element):
        values = st.deferred(lambda: entities(element))
    else:
        values = STRATEGIES[field.metadata["kafka_type"]]
    if is_array:
        values = st.lists(values, max_size=2).map(tuple)
    if optional and field.metadata.get("kafka_type") != "uuid":
        values = st.none() | values
    # The default of a tagged field is not written at all, so it must come up often.
    if "tag" in field.metadata and field.default is not dataclasses.MISSING:
        values = st.just(field.default) | values
    return values


def without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) is types.UnionType:
        inner = [each for each in typing.get_args(kind) if each is not type(None)]
        # A union of several is our Buffer, which has nothing inside.
        return inner[0] if len(inner) == 1 else bytes, True
    return kind, False


# From kio's values to ours.


def translate(theirs: Any, ours: Any) -> Any:
    """Our message with the same content; what kio's version lacks is our default."""
    hints = type_hints(ours)
    values = {}
    for field in dataclasses.fields(theirs):
        name = field.name if field.name in hints else f"{field.name}_ms"
        kind = without_none(hints[name])[0]
        element = typing.get_args(kind)[0] if typing.get_args(kind) else kind
        values[name] = translate_value(getattr(theirs, field.name), element, ours, field)
    return ours(**values)


def translate_value(value: Any, element: Any, ours: Any, field: dataclasses.Field[Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(translate_value(each, element, ours, field) for each in value)
    if dataclasses.is_dataclass(value):
        return translate(value, element)
    match field.metadata.get("kafka_type"), value:
        case "uuid", None:
            return bytes(16)
        case "uuid", UUID():
            return value.bytes
        case "error_code", _:
            return int(value.value)
        case "datetime_i64", None:
            return -1
        case "datetime_i64", datetime():
            return (value - EPOCH) // MILLISECOND
        case (("timedelta_i32" | "timedelta_i64"), timedelta()):
            return value // MILLISECOND
    return value


_hints: dict[Any, dict[str, Any]] = {}


def type_hints(ours: Any) -> dict[str, Any]:
    if ours not in _hints:
        _hints[ours] = typing.get_type_hints(ours)
    return _hints[ours]
