"""Whatever bytes come, a decoder answers with a message or with MalformedMessage.

Every version of every message: cut at every byte, changed, random, and with counts
and lengths that promise more than there is. What decodes also encodes again.
"""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.messages import Case, all_cases, full_message

from headrace.core.errors import MalformedMessage
from headrace.core.limits import REQUEST_ARRAY_MAX, REQUEST_ELEMENTS_MAX
from headrace.wire.kafka.api import decode_request
from headrace.wire.kafka.frame import decode_request_header
from headrace.wire.kafka.primitives import encode_varint

CASES = all_cases()


def encoded(case: Case) -> bytes:
    return b"".join(case.encode(full_message(case.type)))


def shown(case: Case) -> str:
    return f"{case.name} v{case.version}"


def cases_by_name() -> list[list[Case]]:
    names = dict.fromkeys(case.name for case in CASES)
    return [[case for case in CASES if case.name == name] for name in names]


@pytest.mark.parametrize("cases", cases_by_name(), ids=lambda cases: str(cases[0].name))
def test_a_message_survives_its_way_and_no_part_of_it_does(cases: list[Case]) -> None:
    for case in cases:
        whole = encoded(case)
        message = case.decode(whole, 0)
        assert b"".join(case.encode(message)) == whole, shown(case)
        for end in range(len(whole)):
            with pytest.raises(MalformedMessage):
                case.decode(whole[:end], 0)


@pytest.mark.parametrize("cases", cases_by_name(), ids=lambda cases: str(cases[0].name))
def test_a_changed_message_is_refused_in_one_way_only(cases: list[Case]) -> None:
    for case in cases:
        chance = random.Random(f"{case.name} {case.version}")
        whole = encoded(case)
        for _ in range(60):
            check_any_bytes(case, changed(whole, chance))


def changed(whole: bytes, chance: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data)) if data else 0
        match chance.randrange(5):
            case 0:
                data[at : at + 1] = bytes([chance.choice([0, 1, 0x7F, 0x80, 0xFF])])
            case 1:
                data[at : at + 1] = chance.randbytes(1)
            case 2:
                data[at:at] = chance.randbytes(chance.randint(1, 5))
            case 3:
                del data[at : at + chance.randint(1, 8)]
            case _:
                data[at : at + 5] = b"\xff\xff\xff\xff\x0f"
    return bytes(data)


@given(st.sampled_from(CASES), st.binary(max_size=200))
def test_random_bytes_are_refused_in_one_way_only(case: Case, data: bytes) -> None:
    check_any_bytes(case, data)


@given(st.binary(max_size=60))
def test_random_headers_are_refused_in_one_way_only(data: bytes) -> None:
    try:
        header = decode_request_header(data)
    except MalformedMessage:
        return
    assert 10 <= header.body_position <= len(data)


def check_any_bytes(case: Case, data: bytes) -> None:
    try:
        message = case.decode(data, 0)
    except MalformedMessage:
        return
    # It was a message after all; then it means the same on its way back. Compared
    # as bytes, since a number that is not a number does not equal itself.
    canonical = b"".join(case.encode(message))
    again = case.decode(canonical, 0)
    assert b"".join(case.encode(again)) == canonical, shown(case)


def test_unknown_tagged_fields_are_skipped_in_every_flexible_version() -> None:
    unknown = b"\x02" + encode_varint(4_000) + b"\x03abc" + encode_varint(4_001) + b"\x00"
    flexible = [case for case in CASES if case.is_flexible]
    assert len(flexible) > 200
    for case in flexible:
        plain = b"".join(case.encode(case.type()))
        assert plain[-1] == 0, shown(case)
        message = case.decode(plain[:-1] + unknown, 0)
        assert message == case.decode(plain, 0), shown(case)


def test_bytes_behind_a_message_are_ignored() -> None:
    # librdkafka leaves some behind its requests, and later versions of what consumers
    # embed only ever add fields at the end.
    for case in CASES:
        whole = encoded(case)
        assert case.decode(whole + b"more", 0) == case.decode(whole, 0), shown(case)


def _bytes_taken(case: Case, data: bytes) -> int:
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    check_any_bytes(case, data)
    _, peak = tracemalloc.get_traced_memory()
    return peak - before


@pytest.fixture
def codecs_without_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever traces memory looks for the line of each allocation from the beginning of its
    function. Where that has many hundreds, it takes a hundred times as long as what is traced."""
    for module in {sys.modules[case.type.__module__] for case in CASES}:
        for name, codec in vars(module).items():
            if name.startswith(("decode_v", "encode_v")):
                bare = codec.__code__.replace(co_linetable=b"")
                monkeypatch.setattr(codec, "__code__", bare)


@pytest.mark.usefixtures("codecs_without_lines")
def test_a_count_larger_than_the_frame_allocates_nothing() -> None:
    # All over every message, bytes that look like the largest count there is. The
    # newest version of each is enough, as tracing memory is slow.
    newest = {case.name: case for case in CASES}
    tracemalloc.start()
    try:
        for case in newest.values():
            whole = encoded(case)
            huge = b"\xff\xff\xff\xff\x0f" if case.is_flexible else b"\x7f\xff\xff\xff"
            for at in range(0, len(whole), 4):
                data = whole[:at] + huge + whole[at + len(huge) :]
                # What a count allocates it allocates each time. What the process does besides,
                # such as growing a table of its own, it does once.
                taken = (_bytes_taken(case, data) for _ in range(2))
                assert any(size < 200_000 for size in taken), f"{shown(case)} at {at}"
    finally:
        tracemalloc.stop()


def test_every_array_of_every_message_counts_against_one_limit() -> None:
    for case in CASES:
        whole = encoded(case)
        elements = count_elements(case.decode(whole, 0))
        if not elements:
            continue
        with pytest.MonkeyPatch.context() as patch:
            module = sys.modules[case.type.__module__]
            kind = "REQUEST" if case.type.__name__.endswith("Request") else "MESSAGE"
            patch.setattr(module, f"{kind}_ELEMENTS_MAX", elements)
            assert b"".join(case.encode(case.decode(whole, 0))) == whole
            patch.setattr(module, f"{kind}_ELEMENTS_MAX", elements - 1)
            with pytest.raises(MalformedMessage, match="wrong count"):
                case.decode(whole, 0)


def count_elements(value: object) -> int:
    if not isinstance(value, tuple):
        return 0
    inside = sum(map(count_elements, value))
    # A struct is a tuple with names; only arrays are tuples without.
    return inside if hasattr(value, "_fields") else inside + len(value)


def test_the_elements_of_a_message_are_bounded_together() -> None:
    # Metadata v9 names topics in two bytes each, which would take fifty in memory.
    def request(count: int) -> bytes:
        return encode_varint(count + 1) + b"\x01\x00" * count + b"\x01\x00\x00\x00"

    assert len(decode_request(3, 9, request(1_000)).topics) == 1_000
    with pytest.raises(MalformedMessage, match="MetadataRequest.topics: wrong count"):
        decode_request(3, 9, request(REQUEST_ARRAY_MAX + 1))
    # OffsetDelete: no array has too many, but all of them together do.
    most = REQUEST_ARRAY_MAX
    partitions = most.to_bytes(4, "big") + bytes(4 * most)
    together = REQUEST_ELEMENTS_MAX // most
    for count, refused in ((together - 1, False), (together, True)):
        data = b"\x00\x01g" + count.to_bytes(4, "big") + (b"\x00\x01t" + partitions) * count
        if refused:
            with pytest.raises(MalformedMessage, match="partitions: wrong count"):
                decode_request(47, 0, data)
        else:
            assert len(decode_request(47, 0, data).topics[0].partitions) == most
