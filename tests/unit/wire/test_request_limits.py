"""Every array and string of every request has a limit that is judged before the list is
built. The requests are found by the table of APIs, so a new one cannot be forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.wire.request_fields import (
    ARRAYS,
    STRINGS,
    Field,
    element,
    request_module,
    request_with,
    sent,
    shown,
)

from headrace.core import limits
from headrace.core.errors import InvalidArgument, MalformedMessage
from headrace.wire.kafka import primitives
from headrace.wire.kafka.api import APIS, decode_request, encode_request
from headrace.wire.kafka.primitives import STRING_BYTES_MAX

ARRAY_MAX = 7


@pytest.mark.parametrize("field", ARRAYS, ids=shown)
def test_an_array_holds_as_many_as_its_limit_and_not_one_more(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "REQUEST_ELEMENTS_MAX" if field.is_plain else "REQUEST_ARRAY_MAX"
    module = request_module(field.key)
    assert getattr(module, name) == getattr(limits, name)
    # Of real length each of these would be a million objects.
    around = len(field.path) - 1 if field.is_plain else 0
    monkeypatch.setattr(module, name, ARRAY_MAX + around)
    most = list(sent(field, (element(field.element),) * ARRAY_MAX))
    assert most
    for version, data in most:
        decode_request(field.key, version, data)
    beyond = list(sent(field, (element(field.element),) * (ARRAY_MAX + around + 1)))
    assert [version for version, _ in beyond] == [version for version, _ in most]
    for version, data in beyond:
        with pytest.raises(MalformedMessage, match="wrong count"):
            decode_request(field.key, version, data)


def _of_length(field: Field, length: int) -> str | Sequence[str]:
    """A string, or an array with one such string."""
    return ("x" * length,) if field.is_array else "x" * length


@pytest.mark.parametrize("field", STRINGS, ids=shown)
def test_a_string_is_as_long_as_its_limit_and_not_longer(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = list(sent(field, _of_length(field, STRING_BYTES_MAX)))
    assert most
    for version, data in most:
        decode_request(field.key, version, data)
    too_long = _of_length(field, STRING_BYTES_MAX + 1)
    with pytest.raises(InvalidArgument):
        encode_request(field.key, most[-1][0], request_with(field, too_long))
    # Others may send it: only older versions have no room for such a length.
    with monkeypatch.context() as patch:
        patch.setattr(primitives, "STRING_BYTES_MAX", STRING_BYTES_MAX + 1)
        beyond = list(sent(field, too_long))
    api = APIS[field.key]
    flexible = [version for version, _ in most if api.is_flexible(version)]
    assert [version for version, _ in beyond] == flexible
    for version, data in beyond:
        with pytest.raises(MalformedMessage, match="a string of"):
            decode_request(field.key, version, data)


def test_all_arrays_of_a_request_are_bounded_together() -> None:
    assert limits.REQUEST_ARRAY_MAX <= limits.REQUEST_ELEMENTS_MAX
    for module in {request_module(field.key) for field in ARRAYS}:
        assert "MESSAGE_ELEMENTS_MAX" not in vars(module)
