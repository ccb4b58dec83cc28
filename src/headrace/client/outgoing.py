"""Messages on their way in: what `publish` takes and what it answers.

Everything that makes a message special becomes a record header, so a message
published here is the same as one that a Kafka client publishes with those
headers.

    publish(value, key=, delay=, ...)  --.
                                          >--  NewMessage  ->  Outgoing  ->  node
    NewMessage(value, key=, ...)       --'

Many values without keys share one header block and go to the node as they are:
no object is made for each of them, neither here nor there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, overload

from headrace.client.times import Duration, Instant, duration_ms, instant_ms
from headrace.client.values import encode_value
from headrace.core.errors import InvalidArgument
from headrace.core.values import Headers, MessageId, Outgoing, Published
from headrace.core.wording import counted
from headrace.record.attribute_headers import PREFIX, attribute_headers
from headrace.record.content_type import CONTENT_TYPE

HeadersGiven = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]


class PublishOptions(TypedDict, total=False):
    """The keyword arguments of every publish."""

    key: str | bytes | None
    headers: HeadersGiven | None
    priority: str | int | None
    delay: Duration | None
    deliver_at: Instant | None
    ttl: Duration | None
    max_attempts: int | None
    visibility: Duration | None
    dedup_id: str | bytes | None
    partition: int | None
    timestamp: Instant | None


class NewMessage(NamedTuple):
    """A value with what is special about it, for `publish_many`."""

    value: Any
    key: str | bytes | None = None
    headers: HeadersGiven | None = None
    priority: str | int | None = None
    delay: Duration | None = None
    deliver_at: Instant | None = None
    ttl: Duration | None = None
    max_attempts: int | None = None
    visibility: Duration | None = None
    dedup_id: str | bytes | None = None
    partition: int | None = None
    timestamp: Instant | None = None


_OPTIONS = NewMessage._fields[1:]
# What can be iterated over and is still one value.
_ONE_VALUE = (str, bytes, bytearray, memoryview, Mapping, NewMessage)
_PLAIN = (None,) * len(_OPTIONS)


class PublishedMessage(NamedTuple):
    """Where a message is now. `str()` gives its id."""

    topic: str
    partition: int
    offset: int
    # True when deduplication found it: the place is that of the first one.
    duplicate: bool = False

    @property
    def id(self) -> MessageId:
        return MessageId(self.topic, self.partition, self.offset)

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


class PublishedMessages(Sequence[PublishedMessage]):
    """What `publish_many` answers, in the order of what was given. Each element
    is made when it is looked at: most callers never look."""

    __slots__ = ("_places", "_topic")

    def __init__(self, topic: str, places: Sequence[Published]) -> None:
        self._topic = topic
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> PublishedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[PublishedMessage]: ...
    def __getitem__(self, index: int | slice) -> PublishedMessage | list[PublishedMessage]:
        if isinstance(index, slice):
            return [PublishedMessage(self._topic, *place) for place in self._places[index]]
        return PublishedMessage(self._topic, *self._places[index])

    def __iter__(self) -> Iterator[PublishedMessage]:
        for place in self._places:
            yield PublishedMessage(self._topic, *place)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'message')} published to {self._topic}>"


class SharedBatch(NamedTuple):
    """Values that differ in nothing but their bytes."""

    values: Sequence[bytes]
    headers: Headers
    partition: int | None


def to_outgoing(message: NewMessage) -> Outgoing:
    """One record, its attributes among its headers; InvalidArgument names what
    is wrong."""
    if message[1:] == _PLAIN and type(message.value) is bytes:
        return Outgoing(message.value)
    value, content_type = encode_value(message.value)
    timestamp = message.timestamp
    return Outgoing(
        value,
        _key(message.key),
        _all_headers(message, content_type),
        None if timestamp is None else instant_ms("timestamp", timestamp),
        _partition(message.partition),
    )


def to_batch(values: Iterable[Any], options: PublishOptions) -> SharedBatch | list[Outgoing]:
    """Many values at once: shared where they can be, one by one where not. An
    option is the default for every NewMessage that does not say otherwise."""
    unknown = options.keys() - set(_OPTIONS)
    if unknown:
        raise TypeError(f"publish_many() got an unexpected keyword argument {min(unknown)!r}")
    if isinstance(values, _ONE_VALUE) or not isinstance(values, Iterable):
        raise InvalidArgument(
            f"publish_many takes many values, not one {type(values).__name__}; use publish"
        )
    given = values if isinstance(values, list | tuple) else list(values)
    if options.get("dedup_id") is not None:
        raise InvalidArgument("one dedup_id for many messages; give each its own by NewMessage")
    common = NewMessage(None, **options)
    shareable = common.key is None and common.timestamp is None
    if shareable and set(map(type, given)) == {bytes}:
        return SharedBatch(given, _all_headers(common, None), _partition(common.partition))
    if any(isinstance(value, NewMessage) for value in given):
        return [to_outgoing(_with_defaults(value, common)) for value in given]
    encoded = [encode_value(value) for value in given]
    kinds = {content_type for _, content_type in encoded}
    plain = [value for value, _ in encoded if value is not None]
    if shareable and len(kinds) == 1 and len(plain) == len(encoded):
        headers = _all_headers(common, kinds.pop())
        return SharedBatch(plain, headers, _partition(common.partition))
    headers_of = {content_type: _all_headers(common, content_type) for content_type in kinds}
    key = _key(common.key)
    partition = _partition(common.partition)
    at = common.timestamp
    timestamp_ms = None if at is None else instant_ms("timestamp", at)
    return [
        Outgoing(value, key, headers_of[content_type], timestamp_ms, partition)
        for value, content_type in encoded
    ]


def _with_defaults(value: Any, common: NewMessage) -> NewMessage:
    if not isinstance(value, NewMessage):
        value = NewMessage(value)
    chosen = {}
    for name in _OPTIONS:
        own = getattr(value, name)
        chosen[name] = getattr(common, name) if own is None else own
    # A message's own moment replaces the common one, however each is expressed.
    if value.delay is not None:
        chosen["deliver_at"] = value.deliver_at
    elif value.deliver_at is not None:
        chosen["delay"] = None
    return NewMessage(value.value, **chosen)


def _all_headers(message: NewMessage, content_type: bytes | None) -> Headers:
    given = () if message.headers is None else _headers(message.headers)
    if content_type is not None and not any(name == CONTENT_TYPE for name, _ in given):
        given = (*given, (CONTENT_TYPE, content_type))
    if (
        message.priority is None
        and message.delay is None
        and message.deliver_at is None
        and message.ttl is None
        and message.max_attempts is None
        and message.visibility is None
        and message.dedup_id is None
    ):
        return given
    return (*given, *_attributes(message))


def _attributes(message: NewMessage) -> tuple[tuple[str, bytes], ...]:
    if message.delay is not None and message.deliver_at is not None:
        raise InvalidArgument("give either delay or deliver_at, not both")
    attributes: dict[str, Any] = {}
    if message.priority is not None:
        attributes["priority"] = message.priority
    if message.delay is not None:
        attributes["delay_ms"] = duration_ms("delay", message.delay, rounds_up=True)
    if message.deliver_at is not None:
        attributes["deliver_at_ms"] = instant_ms("deliver_at", message.deliver_at)
    if message.ttl is not None:
        attributes["ttl_ms"] = duration_ms("ttl", message.ttl, least_ms=1)
    if message.max_attempts is not None:
        attributes["max_attempts"] = _whole("max_attempts", message.max_attempts)
    if message.visibility is not None:
        attributes["visibility_ms"] = duration_ms("visibility", message.visibility, least_ms=1)
    if message.dedup_id is not None:
        attributes["dedup_id"] = bytes_of("dedup_id", message.dedup_id)
    return attribute_headers(**attributes)


def _headers(given: HeadersGiven) -> Headers:
    try:
        pairs = tuple(given.items() if isinstance(given, Mapping) else given)
        return tuple((_header_name(name), _header_value(name, value)) for name, value in pairs)
    except TypeError as error:
        raise InvalidArgument(
            f"headers are a mapping of names to text or bytes, not {type(given).__name__}"
        ) from error
    except InvalidArgument:
        raise
    except ValueError as error:
        raise InvalidArgument("headers that are not a mapping are pairs of name, value") from error


def _header_name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"a header's name is text, not {type(name).__name__}")
    if name.startswith(PREFIX):
        raise InvalidArgument(
            f"the header {name!r} belongs to Headrace; use the keyword argument, such as delay="
        )
    return name


def _header_value(name: str, value: object) -> bytes | None:
    return None if value is None else bytes_of(f"the header {name!r}", value)


def _key(key: object) -> bytes | None:
    return None if key is None else bytes_of("key", key)


def bytes_of(name: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{name} cannot be encoded as UTF-8: {error}") from error
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"{name} must be text or bytes, not {type(value).__name__}")


def _partition(partition: object) -> int | None:
    return None if partition is None else _whole("partition", partition)


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{name} must be a whole number, not {value!r}")
    return value
