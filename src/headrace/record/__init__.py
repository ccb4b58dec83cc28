"""The bytes of a batch: header view, builder, reader, compression, attributes."""

from __future__ import annotations

from headrace.record.attributes import (
    DEFAULT_ATTRIBUTES,
    LANES,
    Attributes,
    attribute_headers,
    may_have_attributes,
    parse_priority,
    read_attributes,
    scan_attributes,
)
from headrace.record.batch import (
    HEADER_BYTES,
    BatchHeader,
    check_batch,
    patch_batch,
    read_header,
    split_batches,
    stamp_append_time,
)
from headrace.record.builder import (
    NO_HEADERS,
    build_batch,
    build_control_batch,
    build_sparse_batch,
    build_values_batch,
    cut_batch,
    encode_headers,
    seal_records,
)
from headrace.record.compression import Codec, compress, decompress
from headrace.record.control import ControlKind, ControlMarker
from headrace.record.reader import (
    BatchParts,
    read_control,
    read_parts,
    read_raw_parts,
    read_raw_records,
    read_records,
)
from headrace.record.record import NO_TIMESTAMP_MS, Headers, NewRecord, RawRecord, Record

__all__ = [
    "DEFAULT_ATTRIBUTES",
    "HEADER_BYTES",
    "LANES",
    "NO_HEADERS",
    "NO_TIMESTAMP_MS",
    "Attributes",
    "BatchHeader",
    "BatchParts",
    "Codec",
    "ControlKind",
    "ControlMarker",
    "Headers",
    "NewRecord",
    "RawRecord",
    "Record",
    "attribute_headers",
    "build_batch",
    "build_control_batch",
    "build_sparse_batch",
    "build_values_batch",
    "check_batch",
    "compress",
    "cut_batch",
    "decompress",
    "encode_headers",
    "may_have_attributes",
    "parse_priority",
    "patch_batch",
    "read_attributes",
    "read_control",
    "read_header",
    "read_parts",
    "read_raw_parts",
    "read_raw_records",
    "read_records",
    "scan_attributes",
    "seal_records",
    "split_batches",
    "stamp_append_time",
]
