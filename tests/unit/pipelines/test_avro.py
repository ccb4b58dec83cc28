"""Avro values of the pipelines: which are taken, and by which schema."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive.job import ArchiveSettings
from headrace.pipelines.avro import read_avro_schema, record_decoder
from headrace.pipelines.rollup.job import RollupSettings

NAMES = {
    "type": "record",
    "name": "Names",
    "fields": [{"name": "first", "type": "string"}, {"name": "second", "type": "string"}],
}
# The same bytes as of a record whose two fields are in the other order.
PLAIN = b"\x02a\x02b"
ROW = {"first": "a", "second": "b"}


def framed(id: int, value: bytes) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + value


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "names.avsc"
    file.write_text(json.dumps(NAMES))
    return str(file)


def test_a_framed_value_is_read_by_its_own_schema_alone(path: str) -> None:
    decode = record_decoder(read_avro_schema(path, (7, 9)))
    assert decode(framed(7, PLAIN)) == decode(framed(9, PLAIN)) == ROW
    assert decode(framed(8, PLAIN)) is None, "of another schema, the fields could be others"
    assert decode(PLAIN) is None and decode(b"\0\0") is None and decode(None) is None


def test_a_framed_value_is_bad_where_no_id_is_given(path: str) -> None:
    decode = record_decoder(read_avro_schema(path))
    assert decode(PLAIN) == ROW
    assert decode(framed(7, PLAIN)) is None
    # A value may begin with a zero of its own.
    assert decode(b"\0\x06bcd") == {"first": "", "second": "bcd"}


def test_what_a_value_has_behind_its_record_makes_it_bad(path: str) -> None:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(NAMES), ROW)
    assert stream.getvalue() == PLAIN
    assert record_decoder(read_avro_schema(path))(PLAIN + b"x") is None


def test_ids_of_schemas_are_settings_of_avro(path: str) -> None:
    values: dict[str, Any] = {"servers": "x:1", "topic": "t", "lake": "lake"}
    archive = values | {"value_format": "avro", "value_schema": "first STRING", "avro_schema": path}
    rollup = values | {"encoding": "avro", "avro_schema": path}
    for model, given in ((ArchiveSettings, archive), (RollupSettings, rollup)):
        for written in ([9, 7], "9, 7"):
            settings = model.from_mapping(given | {"avro_schema_ids": written})
            assert settings.to_mapping()["avro_schema_ids"] == (9, 7)
        for wrong, message in (
            (["seven"], "avro_schema_ids must be a list of whole numbers"),
            (7, r"avro_schema_ids must be a list of whole numbers, not 7"),
            ([2**31], "avro_schema_ids has 2147483648, which is no id of a schema"),
        ):
            with pytest.raises(InvalidArgument, match=message):
                model.from_mapping(given | {"avro_schema_ids": wrong})
        plain = {"value_format": "json", "encoding": "json", "avro_schema": ""}
        json_given = given | {name: plain[name] for name in plain if name in given}
        with pytest.raises(InvalidArgument, match='avro_schema_ids is given but .* is "json"'):
            model.from_mapping(json_given | {"avro_schema_ids": [7]})
