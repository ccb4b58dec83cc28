"""Records as people see them: a view over the tuple that they came as.

    RecordView          place, key, value, headers of anything that was stored
      Record            read by a stream
      DeadLetterView    given up, and why
      DelayedView       not due yet
      LeasedView        under lease in a queue: see `message`

A view converts what is asked for when it is asked for: of a hundred messages most
are only read and acked, and few are asked for their headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, cast

from headrace.client.times import datetime_of
from headrace.client.values import ValueType, decode_value, decode_value_as, value_type_of
from headrace.core.values import DeadLetter, DelayedMessage, Headers, MessageId, StreamRecord
from headrace.record.attribute_headers import publisher_headers

T = TypeVar("T")
Wanted = TypeVar("Wanted")

UNREAD: Any = object()


class Stored(Protocol):
    """What every tuple below a view has."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class RecordView(Generic[T]):
    __slots__ = ("_stored", "_type", "_value")

    _stored: Stored

    def __init__(self, stored: Stored, value_type: ValueType | None = None) -> None:
        self._stored = stored
        self._type = value_type
        self._value: T = UNREAD

    @property
    def id(self) -> MessageId:
        return MessageId(self._stored.topic, self._stored.partition, self._stored.offset)

    @property
    def topic(self) -> str:
        return self._stored.topic

    @property
    def partition(self) -> int:
        return self._stored.partition

    @property
    def offset(self) -> int:
        return self._stored.offset

    @property
    def key(self) -> bytes | None:
        return self._stored.key

    @property
    def raw(self) -> bytes | None:
        """The value's bytes as stored; None for a record without a value."""
        return self._stored.value

    @property
    def value(self) -> T:
        """Text, JSON or bytes as the record says, or the type that the queue or
        the stream was opened with. DecodeError when it is not what that holds."""
        value = self._value
        if value is UNREAD:
            if self._type is None:
                value = decode_value(self._stored.value, self._stored.headers, self.id)
            else:
                value = decode_value_as(self._type, self._stored.value, self.id)
            self._value = value
        return value

    def decode(self, wanted: type[Wanted]) -> Wanted:
        """The value as this type: a dataclass, a Struct, a TypedDict, a pydantic
        model, or anything else that JSON can fill. DecodeError when it cannot."""
        return cast(Wanted, decode_value_as(value_type_of(wanted), self._stored.value, self.id))

    @property
    def headers(self) -> Mapping[str, bytes | None]:
        """The publisher's headers. Of several with one name the last is shown; those that
        mean something to a node, as `headrace-priority`, are left out. `all_headers` has
        everything."""
        return MappingProxyType(dict(publisher_headers(self._stored.headers)))

    @property
    def all_headers(self) -> Headers:
        return self._stored.headers

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


class Record(RecordView[T]):
    """A record as a stream sees it."""

    __slots__ = ()

    _stored: StreamRecord

    @property
    def timestamp(self) -> datetime:
        return datetime_of(self._stored.timestamp_ms)


class DeadLetterView(RecordView[Any]):
    """A message that was given up. Its id is its place among the dead letters;
    `source` is where it was before."""

    __slots__ = ()

    _stored: DeadLetter

    @property
    def source(self) -> MessageId:
        return self._stored.source

    @property
    def group(self) -> str:
        """The queue group that gave it up."""
        return self._stored.group

    @property
    def reason(self) -> str:
        return self._stored.reason

    @property
    def error(self) -> str | None:
        return self._stored.error

    @property
    def attempts(self) -> int:
        return self._stored.attempts

    @property
    def redrives(self) -> int:
        """How often it was sent back already."""
        return self._stored.redrives

    @property
    def created_at(self) -> datetime:
        return datetime_of(self._stored.created_at_ms)

    @property
    def failed_at(self) -> datetime:
        return datetime_of(self._stored.failed_at_ms)


class DelayedView(RecordView[Any]):
    """A message that is not due yet."""

    __slots__ = ()

    _stored: DelayedMessage

    @property
    def deliver_at(self) -> datetime:
        return datetime_of(self._stored.deliver_at_ms)

    @property
    def created_at(self) -> datetime:
        return datetime_of(self._stored.timestamp_ms)
