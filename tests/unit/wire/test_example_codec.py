"""The codec of the example: what the generator writes, byte by byte.

The example has every feature of the definitions, so whatever holds here holds for
the generated codecs, which are made by the same rules.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.wire.generated import example_request
from tests.unit.wire.generated.example_request import (
    DECODERS,
    ENCODERS,
    FLEXIBLE_FIRST,
    Address,
    ExampleRequest,
    Node,
    Partition,
    Topic,
)

from headrace.core.errors import InvalidArgument, MalformedMessage
from headrace.wire.kafka.primitives import encode_varint

VERSIONS = range(5)

NODE = Node(7, Address("host", 9092))
MESSAGE = ExampleRequest(
    flag=False,
    small_number=-2,
    port_number=65_535,
    ratio=0.5,
    name="n",
    note="note",
    topics=(Topic(b"t" * 16, (Partition(3, 4, b"records", NODE), Partition(5, 6, None))),),
    ids=(1, -1),
    nodes=(1, 2, 3),
    uuids=(b"u" * 16,),
    words=("a", "bc"),
    secret=b"secret",
    digest=b"",
    origin=NODE,
    home=Node(8, Address("home", 1)),
    label="label",
    others=(NODE, Node()),
)


def encoded(version: int, message: ExampleRequest = MESSAGE) -> bytes:
    return b"".join(ENCODERS[version](message))


# The first bytes of a message of defaults, up to its name.
HEAD = encoded(0, ExampleRequest())[:12]


def test_versions_with_one_layout_share_their_functions() -> None:
    assert DECODERS[2] is DECODERS[3] and ENCODERS[2] is ENCODERS[3]
    assert len(set(DECODERS.values())) == len(set(ENCODERS.values())) == 4
    assert FLEXIBLE_FIRST == 2


def test_the_plain_layout_is_as_the_definition_says() -> None:
    head = b"\x00\xfe\xff\xff\x3f\xe0\x00\x00\x00\x00\x00\x00"
    topics = (
        b"\x00\x00\x00\x01" + b"t" * 16 + b"\x00\x00\x00\x02"
        b"\x00\x00\x00\x03" + (4).to_bytes(8, "big") + b"\x00\x00\x00\x07records"
        b"\x00\x00\x00\x05" + (6).to_bytes(8, "big") + b"\xff\xff\xff\xff"
    )
    arrays = (
        b"\x00\x00\x00\x02" + (1).to_bytes(8, "big") + b"\xff" * 8 + b"\x00\x00\x00\x03"
        b"\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03"
        b"\x00\x00\x00\x01" + b"u" * 16 + b"\x00\x00\x00\x02\x00\x01a\x00\x02bc"
    )
    assert encoded(0) == head + b"\x00\x01n" + topics + arrays + b"\x00\x00\x00\x06secret"
    assert encoded(1) == (
        head + b"\x00\x01n\x00\x04note" + topics + arrays + b"\x00\x00\x00\x06secret"
    )


def test_the_flexible_layout_is_as_the_definition_says() -> None:
    node = b"\x00\x00\x00\x07\x05host\x23\x84\x00\x00"
    default_node = b"\xff\xff\xff\xff\x01\x00\x00\x00\x00"
    others = b"\x03" + node + default_node
    assert encoded(4) == (
        b"\x00\xfe\xff\xff\x3f\xe0\x00\x00\x00\x00\x00\x00\x02n\x05note"
        b"\x02" + b"t" * 16 + b"\x03"
        b"\x00\x00\x00\x03\x08records\x01\x00" + bytes([len(node)]) + node + b"\x00\x00\x00\x05"
        b"\x00\x00"
        b"\x00"
        b"\x03" + (1).to_bytes(8, "big") + b"\xff" * 8 + b"\x04"
        b"\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03"
        b"\x02" + b"u" * 16 + b"\x03\x02a\x03bc"
        b"\x07secret\x01\x01" + node + b"\x00\x00\x00\x08\x05home\x00\x01\x00\x00"
        b"\x02\x00" + bytes([len(others)]) + others + b"\x01\x06\x06label"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_version_has_comes_back_and_the_rest_is_default(version: int) -> None:
    decoded = DECODERS[version](b"??" + encoded(version), 2)
    later = {"digest", "origin", "home", "label", "others"}
    lacking = (later if version < 4 else set()) | ({"note"} if version < 1 else set())
    defaults = ExampleRequest()
    for name in ExampleRequest._fields:
        if name != "topics":
            expected = getattr(defaults if name in lacking else MESSAGE, name)
            assert getattr(decoded, name) == expected, name
    assert decoded.topics is not None
    first, second = decoded.topics[0].partitions
    assert first.base_offset == (4 if version < 4 else 2**63 - 1)
    assert first.leader == (NODE if version >= 4 else Node())
    assert second.records is None
    assert b"".join(ENCODERS[version](decoded)) == encoded(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_never_copied(version: int) -> None:
    records = memoryview(bytearray(b"records"))
    message = MESSAGE._replace(topics=(Topic(partitions=(Partition(records=records),)),))
    assert any(buffer is records for buffer in ENCODERS[version](message))
    frame = bytearray(encoded(version, message))
    decoded = DECODERS[version](frame, 0)
    assert decoded.topics is not None
    view = decoded.topics[0].partitions[0].records
    assert isinstance(view, memoryview) and view.tobytes() == b"records"
    frame[frame.index(b"records")] = ord("R")
    assert view.tobytes() == b"Records"


@pytest.mark.parametrize("version", VERSIONS)
def test_null_is_written_where_the_version_allows_it(version: int) -> None:
    nullable = {"note": 1, "topics": 1, "words": 1, "nodes": 2, "digest": 4, "origin": 4}
    for name, first in nullable.items():
        null: dict[str, Any] = {name: None}
        message = ExampleRequest()._replace(**null)
        if version >= first:
            assert DECODERS[version](encoded(version, message), 0) == message
        elif getattr(ExampleRequest(), name) is not None:
            with pytest.raises(InvalidArgument, match=f"{name} cannot be null"):
                encoded(version, message)


def test_a_message_of_defaults_has_no_tagged_fields() -> None:
    plain = encoded(4, ExampleRequest())
    assert plain.endswith(b"\x00") and DECODERS[4](plain, 0) == ExampleRequest()
    # An equal value is the default too, wherever it came from.
    copied = ExampleRequest(
        topics=(Topic(partitions=(Partition(leader=Node(-1, Address("", 0))),)),)
    )
    assert encoded(4, copied) == encoded(
        4, ExampleRequest(topics=(Topic(b"\0" * 16, (Partition(),)),))
    )


def test_a_tagged_field_of_the_wrong_size_is_refused() -> None:
    plain = encoded(4, ExampleRequest())
    for section in (b"\x01\x01\x03\x02a", b"\x01\x01\x03\x02ab", b"\x01\x01\x01\x02a"):
        with pytest.raises(MalformedMessage):
            DECODERS[4](plain[:-1] + section, 0)
    assert DECODERS[4](plain[:-1] + b"\x01\x01\x02\x02a", 0).label == "a"
    led = encoded(4, ExampleRequest(topics=(Topic(partitions=(Partition(leader=NODE),)),)))
    node = b"\x00\x00\x00\x07\x05host\x23\x84\x00\x00"
    for size in (len(node) - 1, len(node) + 1):
        with pytest.raises(MalformedMessage, match="Partition.leader: wrong size"):
            DECODERS[4](led.replace(bytes([len(node)]) + node, bytes([size]) + node), 0)


def test_unknown_tagged_fields_are_skipped_in_every_struct() -> None:
    unknown = b"\x90\x4e\x02??"
    node = b"\x00\x00\x00\x07\x05host\x23\x84\x01" + unknown + b"\x01" + unknown
    partition = b"\x00\x00\x00\x05\x00\x02" + unknown + b"\x00" + bytes([len(node)]) + node
    topic = b"t" * 16 + b"\x02" + partition + b"\x01" + unknown
    others = b"\x00" + bytes([len(node) + 1]) + b"\x02" + node
    tags = b"\x03" + others + unknown + b"\x01\x06\x06label"
    # An empty name, no note, one topic, five empty fields, no digest, two nodes.
    fields = b"\x01\x00\x02" + topic + b"\x01" * 5 + b"\x00\x01" + node + node
    data = HEAD + fields + tags
    assert DECODERS[4](data, 0) == ExampleRequest(
        topics=(Topic(b"t" * 16, (Partition(5, leader=NODE),)),),
        origin=NODE,
        home=NODE,
        label="label",
        others=(NODE,),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"small_number": 128},
        {"port_number": -1},
        {"name": "x" * 40_000},
        {"name": "\ud800"},
        {"uuids": (b"short",)},
        {"topics": (Topic(b"t" * 15),)},
        {"topics": (Topic(b"t" * 17),)},
        {"ids": (2**63,)},
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_value_that_does_not_fit_is_our_mistake(wrong: dict[str, Any], version: int) -> None:
    with pytest.raises(InvalidArgument):
        encoded(version, MESSAGE._replace(**wrong))


# Lengths and counts.

# Around the places where a length or a count takes one byte more, or where short
# ones have been encoded ahead.
SIZES = [0, 1, 16, 17, 126, 127, 128, 1022, 1023, 1024, 16_383, 16_384, 32_767]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", SIZES)
def test_everything_that_has_a_length_may_be_long(size: int, version: int) -> None:
    text, number = "x" * size, min(size, 2_000)
    host = Address(text, 1)
    message = ExampleRequest(
        name=text,
        note=text if version >= 1 else None,
        topics=(Topic(partitions=(Partition(records=text.encode()),)),),
        words=("a",) * number + (text,),
        secret=text.encode(),
        ids=(7,) * number,
        nodes=(8,) * number,
        uuids=(b"u" * 16,) * number,
    )
    if version >= 4:
        message = message._replace(
            digest=text.encode(),
            origin=Node(1, host),
            home=Node(1, host),
            label=text,
            others=(Node(1, host),) * min(number, 200),
        )
    assert DECODERS[version](encoded(version, message), 0) == message
    partitions = ExampleRequest(topics=(Topic(partitions=(Partition(1),) * number),))
    assert DECODERS[version](encoded(version, partitions), 0) == partitions
    if version >= 4:
        led = (Topic(partitions=(Partition(leader=Node(1, host)),)),)
        message = ExampleRequest(topics=led)
        assert DECODERS[version](encoded(version, message), 0) == message
    topics = ExampleRequest(topics=(Topic(b"t" * 16),) * number)
    assert DECODERS[version](encoded(version, topics), 0) == topics


def test_null_is_refused_where_the_version_does_not_allow_it() -> None:
    plain, flexible = encoded(0, ExampleRequest()), encoded(2, ExampleRequest())
    # Name, topics, ids, nodes, uuids, words and secret, as they lie in version 0.
    lengths = [(12, 2), (14, 4), (18, 4), (22, 4), (26, 4), (30, 4), (34, 4)]
    assert plain == HEAD + bytes(sum(size for _, size in lengths))
    for at, size in lengths:
        for null in (b"\xff" * size, b"\x80" + bytes(size - 1)):
            with pytest.raises(MalformedMessage, match="wrong (length|count)"):
                DECODERS[0](plain[:at] + null + plain[at + size :], 0)
    # Name, note, topics, ids, nodes, uuids, words, secret and no tags, in version 2.
    assert flexible == HEAD + b"\x01\x00\x01\x01\x01\x01\x01\x01\x00"
    nullable = {13: "note", 14: "topics", 16: "nodes", 18: "words"}
    for at in range(12, 20):
        data = flexible[:at] + b"\x00" + flexible[at + 1 :]
        if at in nullable:
            assert getattr(DECODERS[2](data, 0), nullable[at]) is None
        else:
            with pytest.raises(MalformedMessage, match="wrong (length|count)"):
                DECODERS[2](data, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_null_is_refused_inside_an_array_of_strings(version: int) -> None:
    whole = encoded(version, ExampleRequest(words=("word",), secret=b"secret"))
    length, null = (b"\x05", b"\x00") if version >= 2 else (b"\x00\x04", b"\xff\xff")
    with pytest.raises(MalformedMessage, match="words: wrong length"):
        DECODERS[version](whole.replace(length + b"word", null), 0)


@pytest.mark.parametrize("negative", [b"\xff\xff", b"\xff\xfe", b"\x80\x00"])
def test_any_negative_length_is_null_in_a_plain_version(negative: bytes) -> None:
    # Kafka writes -1 and reads whatever is below zero.
    plain = encoded(1, ExampleRequest(note=""))
    assert DECODERS[1](plain[:14] + negative + plain[16:], 0).note is None
    assert DECODERS[1](plain[:16] + negative + b"\x00\x00" + plain[20:], 0).topics is None


@pytest.mark.parametrize(
    ("marker", "is_null"), [(1, False), (0, False), (0xFF, True), (0x80, True)]
)
def test_a_struct_that_may_be_null_follows_its_marker(marker: int, is_null: bool) -> None:
    whole = encoded(4, ExampleRequest(origin=NODE))
    node = b"\x00\x00\x00\x07\x05host\x23\x84\x00\x00"
    at = whole.index(b"\x01" + node)
    rest = whole[at + 1 :] if not is_null else whole[at + 1 + len(node) :]
    decoded = DECODERS[4](whole[:at] + bytes([marker]) + rest, 0)
    assert decoded.origin == (None if is_null else NODE)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_is_held_against_the_rest_of_the_frame(version: int) -> None:
    empty = encoded(version, ExampleRequest())
    at = {0: 14, 1: 16}.get(version, 14)
    for count in (1, 40, 2**20, 2**31 - 1):
        is_flexible = version >= 2
        prefix = encode_varint(count + 1) if is_flexible else count.to_bytes(4, "big")
        data = empty[:at] + prefix + empty[at + (1 if is_flexible else 4) :]
        with pytest.raises(MalformedMessage) as refusal:
            DECODERS[version](data, 0)
        # One topic might still fit; for more, nothing was even begun.
        if count > 1:
            assert str(refusal.value) == "ExampleRequest.topics: wrong count"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_cut_anywhere_is_refused(version: int) -> None:
    whole = encoded(version)
    for end in range(len(whole)):
        with pytest.raises(MalformedMessage):
            DECODERS[version](whole[:end], 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_text_that_is_no_text_is_refused(version: int) -> None:
    whole = encoded(version, ExampleRequest(name="name", words=("word",)))
    for text in (b"name", b"word"):
        with pytest.raises(MalformedMessage, match="ExampleRequest v"):
            DECODERS[version](whole.replace(text, b"\xc3\x28ab"), 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_elements_of_a_message_count_against_one_limit(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = encoded(version)
    elements = 1 + 2 + 2 + 3 + 1 + 2 + (2 if version >= 4 else 0)
    monkeypatch.setattr(example_request, "REQUEST_ELEMENTS_MAX", elements)
    assert DECODERS[version](whole, 0).name == "n"
    monkeypatch.setattr(example_request, "REQUEST_ELEMENTS_MAX", elements - 1)
    with pytest.raises(MalformedMessage, match="wrong count"):
        DECODERS[version](whole, 0)
