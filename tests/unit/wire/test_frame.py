"""The size and the headers, byte by byte."""

from __future__ import annotations

import pytest

from headrace.core.errors import InvalidArgument, MalformedMessage
from headrace.core.limits import FRAME_BYTES_MAX
from headrace.wire.kafka.api import APIS
from headrace.wire.kafka.frame import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_frame,
    encode_response_frame,
    read_frame_size,
)

# Metadata v8 is the last that is not flexible.
PLAIN = b"\x00\x03\x00\x08\x00\x00\x00\x2a\x00\x02me"
FLEXIBLE = b"\x00\x03\x00\x09\x00\x00\x00\x2a\x00\x02me\x00"


def test_a_plain_header_ends_behind_the_client_id() -> None:
    header = decode_request_header(PLAIN + b"body")
    assert header == RequestHeader(3, 8, 42, "me", len(PLAIN))


def test_a_flexible_header_keeps_the_legacy_client_id_and_has_tags() -> None:
    header = decode_request_header(memoryview(b"size" + FLEXIBLE + b"body"), 4)
    assert header == RequestHeader(3, 9, 42, "me", 4 + len(FLEXIBLE))


def test_a_client_need_not_name_itself() -> None:
    header = decode_request_header(b"\x00\x03\x00\x08\x00\x00\x00\x2a\xff\xff")
    assert header.client_id is None and header.body_position == 10


def test_unknown_tags_in_a_header_are_skipped() -> None:
    tagged = FLEXIBLE[:-1] + b"\x02\x00\x01x\x63\x02yz"
    assert decode_request_header(tagged + b"body").body_position == len(tagged)


@pytest.mark.parametrize(("key", "version"), [(18, 99), (9_999, 0), (-1, -1), (0, 2), (73, 0)])
def test_what_we_do_not_speak_still_has_its_correlation_id(key: int, version: int) -> None:
    data = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    header = decode_request_header(data + b"\x00\x00\x00\x07\x00\x02me")
    assert header[:4] == (key, version, 7, "me")


@pytest.mark.parametrize("header", [PLAIN, FLEXIBLE])
def test_a_header_cut_anywhere_is_malformed(header: bytes) -> None:
    for end in range(len(header)):
        with pytest.raises(MalformedMessage):
            decode_request_header(header[:end])


def test_a_client_id_that_is_no_text_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="request header"):
        decode_request_header(PLAIN.replace(b"me", b"\xff\xff"))


def test_the_size_counts_what_follows_it_and_buffers_stay_apart() -> None:
    records = memoryview(b"records")
    frame = encode_response_frame(3, 8, 42, [b"body", records])
    assert frame == [b"\x00\x00\x00\x0f\x00\x00\x00\x2a", b"body", b"records"]
    assert frame[2] is records


def test_a_flexible_response_has_tags_in_its_header() -> None:
    frame = b"".join(encode_response_frame(3, 9, 42, [b"body"]))
    assert frame == b"\x00\x00\x00\x09\x00\x00\x00\x2a\x00body"
    assert decode_response_header(3, 9, frame, 4) == (42, 9)


@pytest.mark.parametrize("version", range(5))
def test_the_response_to_api_versions_never_has_tags_in_its_header(version: int) -> None:
    frame = b"".join(encode_response_frame(18, version, 42, [b"body"]))
    assert frame == b"\x00\x00\x00\x08\x00\x00\x00\x2abody"
    assert decode_response_header(18, version, frame, 4) == (42, 8)


def test_tags_that_a_server_adds_to_its_header_are_skipped() -> None:
    assert decode_response_header(3, 9, b"\x00\x00\x00\x2a\x01\x05\x02ab") == (42, 9)
    with pytest.raises(MalformedMessage, match="tagged field 5"):
        decode_response_header(3, 9, b"\x00\x00\x00\x2a\x01\x05\x02a")
    with pytest.raises(MalformedMessage, match="response header"):
        decode_response_header(3, 9, b"\x00\x00\x00")


@pytest.mark.parametrize("client_id", [None, "", "me", "ü" * 100])
def test_a_request_frame_is_read_back_for_every_version(client_id: str | None) -> None:
    for api in APIS.values():
        for version in range(api.first, api.last + 1):
            frame = b"".join(encode_request_frame(api.key, version, 7, client_id, [b"bo", b"dy"]))
            assert read_frame_size(frame) == len(frame) - 4
            header = decode_request_header(frame, 4)
            assert header[:4] == (api.key, version, 7, client_id)
            assert frame[header.body_position :] == b"body"


def test_a_client_id_too_long_for_the_header_is_our_mistake() -> None:
    with pytest.raises(InvalidArgument, match="request header"):
        encode_request_frame(3, 9, 1, "x" * 40_000, [])


@pytest.mark.parametrize("size", [0, -1, FRAME_BYTES_MAX + 1, int.from_bytes(b"GET ", "big")])
def test_a_size_that_cannot_be_is_refused_before_there_is_room_for_it(size: int) -> None:
    with pytest.raises(MalformedMessage, match=f"a frame of {size} bytes"):
        read_frame_size(size.to_bytes(4, "big", signed=True))


def test_a_listener_may_take_smaller_frames_only() -> None:
    assert read_frame_size(b"\x00\x00\x01\x00", bytes_max=256) == 256
    with pytest.raises(MalformedMessage):
        read_frame_size(b"\x00\x00\x01\x01", bytes_max=256)
    with pytest.raises(MalformedMessage, match="frame size"):
        read_frame_size(b"\x00\x00\x01")
