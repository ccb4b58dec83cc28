"""The table of APIs, and that a codec is loaded only when it is used."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import InvalidArgument
from headrace.wire.kafka import api as table
from headrace.wire.kafka.api import APIS, EMBEDDED, NEVER, module_name
from headrace.wire.kafka.generated.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.generated.heartbeat_response import HeartbeatResponse


@pytest.mark.parametrize("kind", ["Request", "Response"])
def test_there_is_a_codec_for_exactly_what_the_table_says(kind: str) -> None:
    for api in APIS.values():
        module: Any = import_module(f"headrace.wire.kafka.generated.{module_name(api.name + kind)}")
        versions = list(range(api.first, api.last + 1))
        assert list(module.DECODERS) == versions, api.name
        assert list(module.ENCODERS) == versions, api.name
        # Headers depend on the table, bodies on the definitions: they must agree.
        flexible = None if api.flexible_first == NEVER else max(api.flexible_first, api.first)
        assert module.FLEXIBLE_FIRST == flexible, api.name


def test_the_embedded_messages_have_their_versions_and_are_never_flexible() -> None:
    for name, first, last in EMBEDDED:
        module: Any = import_module(f"headrace.wire.kafka.generated.{module_name(name)}")
        assert list(module.DECODERS) == list(range(first, last + 1))
        assert module.FLEXIBLE_FIRST is None


def test_only_produce_is_advertised_from_below_what_it_speaks() -> None:
    lowered = {api.name for api in APIS.values() if api.advertised_first != api.first}
    assert lowered == {"Produce"}
    assert APIS[0].advertised_first == 0 and not APIS[0].speaks(2) and APIS[0].speaks(3)


def test_a_message_goes_through_the_table_in_both_directions() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    body = b"".join(table.encode_request(12, 4, request))
    assert body == b"\x02g\x00\x00\x00\x03\x02m\x00\x00"
    assert table.decode_request(12, 4, b"header" + body, 6) == request
    response = HeartbeatResponse(throttle_time_ms=1, error_code=27)
    body = b"".join(table.encode_response(12, 0, response))
    assert body == b"\x00\x1b"
    assert table.decode_response(12, 0, body) == HeartbeatResponse(error_code=27)


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (22, 6), (73, 0), (-1, 0)])
def test_a_version_that_is_not_in_the_table_has_no_codec(key: int, version: int) -> None:
    for decode in (table.decode_request, table.decode_response):
        with pytest.raises(InvalidArgument, match=f"version {version} of API {key}"):
            decode(key, version, b"")
    for encode in (table.encode_request, table.encode_response):
        with pytest.raises(InvalidArgument, match=f"version {version} of API {key}"):
            encode(key, version, None)


@pytest.mark.process
def test_a_codec_is_imported_when_it_is_first_used() -> None:
    program = """
import sys
from headrace.wire.kafka import api, frame
loaded = lambda: sorted(n.split(".")[-1] for n in sys.modules if ".kafka.generated." in n)
assert loaded() == [], loaded()
api.decode_request(12, 0, bytes.fromhex("000161 00000001 000162"))
assert loaded() == ["heartbeat_request"], loaded()
api.load_codecs([12, 0])
expected = ["heartbeat_request", "heartbeat_response", "produce_request", "produce_response"]
assert loaded() == expected, loaded()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_example_on_the_codecs_page_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "kafka-codec.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(block, namespace)
    assert namespace["request"].group_id == "g"
