"""An answer as the bytes that go out, with the errors that are in it.

It touches nothing of the node, so it may be made in a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.core.ports import Buffer
from headrace.server.kafka.answer_errors import error_codes
from headrace.wire.kafka.api import Message, encode_response
from headrace.wire.kafka.frame import encode_response_frame

if TYPE_CHECKING:
    from headrace.server.kafka.door import Call

# An answer with more elements than that is encoded away from the loop; of no more than so
# many is looked at what they have in them.
LARGE_ELEMENTS: Final = 1_000
FEW_ELEMENTS: Final = 100


class Encoded(NamedTuple):
    """An answer in bytes, and how often each error is in it."""

    parts: Sequence[Buffer]
    errors: Mapping[int, int]


NOTHING: Final = Encoded((), {})


def encode(call: Call, response: Message) -> Encoded:
    codes = error_codes(response)
    return Encoded(frame_of(call, response), Counter(codes) if codes else {})


def frame_of(call: Call, response: Message) -> Sequence[Buffer]:
    body = encode_response(call.api.key, call.version, response)
    return encode_response_frame(call.api.key, call.version, call.correlation_id, body)


def is_large(response: Message) -> bool:
    """Whether turning it into bytes takes milliseconds: it has many elements, itself or
    in each of a few."""
    arrays = [field for field in response if isinstance(field, (list, tuple))]
    count = sum(map(len, arrays))
    if count <= FEW_ELEMENTS:
        for array in arrays:
            for element in array:
                if isinstance(element, tuple):
                    count += sum(len(each) for each in element if isinstance(each, (list, tuple)))
    return count > LARGE_ELEMENTS
