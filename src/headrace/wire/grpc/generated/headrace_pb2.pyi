from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Start(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    START_LATEST: _ClassVar[Start]
    START_EARLIEST: _ClassVar[Start]
START_LATEST: Start
START_EARLIEST: Start

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class MessageId(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "settings", "exist_ok")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    EXIST_OK_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    settings: _containers.ScalarMap[str, str]
    exist_ok: bool
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ..., exist_ok: _Optional[bool] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: str
    limit: int
    def __init__(self, after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    next: str
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AlterTopicRequest(_message.Message):
    __slots__ = ("name", "settings", "partitions", "break_key_order")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    BREAK_KEY_ORDER_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _containers.ScalarMap[str, str]
    partitions: int
    break_key_order: bool
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Mapping[str, str]] = ..., partitions: _Optional[int] = ..., break_key_order: _Optional[bool] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "id", "partitions", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    settings: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("partition", "start_offset", "high_watermark", "end_offset", "size_bytes", "segments", "last_stable_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    start_offset: int
    high_watermark: int
    end_offset: int
    size_bytes: int
    segments: int
    last_stable_offset: int
    def __init__(self, partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., end_offset: _Optional[int] = ..., size_bytes: _Optional[int] = ..., segments: _Optional[int] = ..., last_stable_offset: _Optional[int] = ...) -> None: ...

class NewMessage(_message.Message):
    __slots__ = ("value", "key", "headers", "partition", "timestamp_ms", "priority", "delay_ms", "deliver_at_ms", "ttl_ms", "max_attempts", "visibility_ms", "dedup_id")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_ID_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    key: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    partition: int
    timestamp_ms: int
    priority: str
    delay_ms: int
    deliver_at_ms: int
    ttl_ms: int
    max_attempts: int
    visibility_ms: int
    dedup_id: bytes
    def __init__(self, value: _Optional[bytes] = ..., key: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., partition: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., priority: _Optional[str] = ..., delay_ms: _Optional[int] = ..., deliver_at_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., visibility_ms: _Optional[int] = ..., dedup_id: _Optional[bytes] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("topic", "messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[NewMessage]
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[NewMessage, _Mapping]]] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("partition", "offset", "duplicate")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    duplicate: bool
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("places",)
    PLACES_FIELD_NUMBER: _ClassVar[int]
    places: _containers.RepeatedCompositeFieldContainer[Place]
    def __init__(self, places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ...) -> None: ...

class PublishBatchRequest(_message.Message):
    __slots__ = ("topic", "partition", "batch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    batch: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., batch: _Optional[bytes] = ...) -> None: ...

class PublishBatchResponse(_message.Message):
    __slots__ = ("first_offset", "duplicate")
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    first_offset: int
    duplicate: bool
    def __init__(self, first_offset: _Optional[int] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class TransactRequest(_message.Message):
    __slots__ = ("publications", "acks", "commits")
    PUBLICATIONS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    publications: _containers.RepeatedCompositeFieldContainer[PublishRequest]
    acks: _containers.RepeatedScalarFieldContainer[str]
    commits: _containers.RepeatedCompositeFieldContainer[CommitRequest]
    def __init__(self, publications: _Optional[_Iterable[_Union[PublishRequest, _Mapping]]] = ..., acks: _Optional[_Iterable[str]] = ..., commits: _Optional[_Iterable[_Union[CommitRequest, _Mapping]]] = ...) -> None: ...

class TransactResponse(_message.Message):
    __slots__ = ("publications",)
    PUBLICATIONS_FIELD_NUMBER: _ClassVar[int]
    publications: _containers.RepeatedCompositeFieldContainer[PublishResponse]
    def __init__(self, publications: _Optional[_Iterable[_Union[PublishResponse, _Mapping]]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("topic", "partition", "offset", "count", "wait_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    count: int
    wait_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., count: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("records", "next_offset")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    next_offset: int
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., next_offset: _Optional[int] = ...) -> None: ...

class OffsetAtRequest(_message.Message):
    __slots__ = ("topic", "partition", "timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class OffsetAtResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("topic", "start", "positions")
    class PositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    start: Start
    positions: _containers.ScalarMap[int, int]
    def __init__(self, topic: _Optional[str] = ..., start: _Optional[_Union[Start, str]] = ..., positions: _Optional[_Mapping[int, int]] = ...) -> None: ...

class TailResponse(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("group", "topics", "consumer", "count", "visibility_ms", "wait_ms", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    consumer: str
    count: int
    visibility_ms: int
    wait_ms: int
    settings: _containers.ScalarMap[str, str]
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., consumer: _Optional[str] = ..., count: _Optional[int] = ..., visibility_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("id", "receipt", "key", "value", "headers", "created_at_ms", "attempt", "max_attempts", "delivered_at_ms", "deadline_ms", "failed_at_ms", "error", "priority")
    ID_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    FAILED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    id: MessageId
    receipt: str
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    created_at_ms: int
    attempt: int
    max_attempts: int
    delivered_at_ms: int
    deadline_ms: int
    failed_at_ms: int
    error: str
    priority: str
    def __init__(self, id: _Optional[_Union[MessageId, _Mapping]] = ..., receipt: _Optional[str] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., created_at_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., delivered_at_ms: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., failed_at_ms: _Optional[int] = ..., error: _Optional[str] = ..., priority: _Optional[str] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("consumer", "messages")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    messages: _containers.RepeatedCompositeFieldContainer[Delivery]
    def __init__(self, consumer: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("receipts", "group")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    group: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("receipts", "group", "delay_ms", "error")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    group: str
    delay_ms: int
    error: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ..., delay_ms: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class RejectRequest(_message.Message):
    __slots__ = ("receipts", "group", "reason")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    group: str
    reason: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("receipts", "group", "visibility_ms")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    group: str
    visibility_ms: int
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("receipts", "group")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    group: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("receipt", "ok", "code", "detail")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    receipt: str
    ok: bool
    code: str
    detail: str
    def __init__(self, receipt: _Optional[str] = ..., ok: _Optional[bool] = ..., code: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Settled]
    def __init__(self, results: _Optional[_Iterable[_Union[Settled, _Mapping]]] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("id", "open", "credit", "ack", "nack", "reject", "extend", "release")
    ID_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    id: int
    open: ConsumeOpen
    credit: int
    ack: AckRequest
    nack: NackRequest
    reject: RejectRequest
    extend: ExtendRequest
    release: ReleaseRequest
    def __init__(self, id: _Optional[int] = ..., open: _Optional[_Union[ConsumeOpen, _Mapping]] = ..., credit: _Optional[int] = ..., ack: _Optional[_Union[AckRequest, _Mapping]] = ..., nack: _Optional[_Union[NackRequest, _Mapping]] = ..., reject: _Optional[_Union[RejectRequest, _Mapping]] = ..., extend: _Optional[_Union[ExtendRequest, _Mapping]] = ..., release: _Optional[_Union[ReleaseRequest, _Mapping]] = ...) -> None: ...

class ConsumeOpen(_message.Message):
    __slots__ = ("group", "topics", "consumer", "credit", "visibility_ms", "settings", "in_hand")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    IN_HAND_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    consumer: str
    credit: int
    visibility_ms: int
    settings: _containers.ScalarMap[str, str]
    in_hand: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., consumer: _Optional[str] = ..., credit: _Optional[int] = ..., visibility_ms: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ..., in_hand: _Optional[_Iterable[str]] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("id", "opened", "deliveries", "settled")
    ID_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    id: int
    opened: ConsumeOpened
    deliveries: Deliveries
    settled: SettleResponse
    def __init__(self, id: _Optional[int] = ..., opened: _Optional[_Union[ConsumeOpened, _Mapping]] = ..., deliveries: _Optional[_Union[Deliveries, _Mapping]] = ..., settled: _Optional[_Union[SettleResponse, _Mapping]] = ...) -> None: ...

class ConsumeOpened(_message.Message):
    __slots__ = ("consumer", "lost")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    lost: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, consumer: _Optional[str] = ..., lost: _Optional[_Iterable[str]] = ...) -> None: ...

class Deliveries(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Delivery]
    def __init__(self, messages: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("id", "group")
    ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    id: MessageId
    group: str
    def __init__(self, id: _Optional[_Union[MessageId, _Mapping]] = ..., group: _Optional[str] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("state", "attempts", "due_ms", "consumer")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    state: str
    attempts: int
    due_ms: int
    consumer: str
    def __init__(self, state: _Optional[str] = ..., attempts: _Optional[int] = ..., due_ms: _Optional[int] = ..., consumer: _Optional[str] = ...) -> None: ...

class StatisticsRequest(_message.Message):
    __slots__ = ("group", "topics")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class Lane(_message.Message):
    __slots__ = ("lane", "ready", "leased", "retrying", "delayed", "delivered", "last_served_ms", "oldest_ms", "rate_in", "rate_out")
    LANE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    LAST_SERVED_MS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    RATE_IN_FIELD_NUMBER: _ClassVar[int]
    RATE_OUT_FIELD_NUMBER: _ClassVar[int]
    lane: str
    ready: int
    leased: int
    retrying: int
    delayed: int
    delivered: int
    last_served_ms: int
    oldest_ms: int
    rate_in: float
    rate_out: float
    def __init__(self, lane: _Optional[str] = ..., ready: _Optional[int] = ..., leased: _Optional[int] = ..., retrying: _Optional[int] = ..., delayed: _Optional[int] = ..., delivered: _Optional[int] = ..., last_served_ms: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., rate_in: _Optional[float] = ..., rate_out: _Optional[float] = ...) -> None: ...

class QueuePartition(_message.Message):
    __slots__ = ("topic", "partition", "start_offset", "end_offset", "ready", "waiting", "leased", "retrying", "delayed", "moving", "lanes", "oldest_ms", "rate_in", "rate_out")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    RATE_IN_FIELD_NUMBER: _ClassVar[int]
    RATE_OUT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    ready: int
    waiting: int
    leased: int
    retrying: int
    delayed: int
    moving: int
    lanes: _containers.RepeatedCompositeFieldContainer[Lane]
    oldest_ms: int
    rate_in: float
    rate_out: float
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., ready: _Optional[int] = ..., waiting: _Optional[int] = ..., leased: _Optional[int] = ..., retrying: _Optional[int] = ..., delayed: _Optional[int] = ..., moving: _Optional[int] = ..., lanes: _Optional[_Iterable[_Union[Lane, _Mapping]]] = ..., oldest_ms: _Optional[int] = ..., rate_in: _Optional[float] = ..., rate_out: _Optional[float] = ...) -> None: ...

class Latency(_message.Message):
    __slots__ = ("count", "p50_ms", "p95_ms", "p99_ms")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    def __init__(self, count: _Optional[int] = ..., p50_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ...) -> None: ...

class StatisticsResponse(_message.Message):
    __slots__ = ("group", "topics", "depth", "ready", "waiting", "leased", "retrying", "delayed", "moving", "oldest_ms", "delivered", "acked", "nacked", "lease_expired", "dead_lettered", "expired", "cancelled", "rate_in", "rate_out", "lanes", "partitions", "publish_to_lease", "publish_to_ack")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    NACKED_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    RATE_IN_FIELD_NUMBER: _ClassVar[int]
    RATE_OUT_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TO_LEASE_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TO_ACK_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    depth: int
    ready: int
    waiting: int
    leased: int
    retrying: int
    delayed: int
    moving: int
    oldest_ms: int
    delivered: int
    acked: int
    nacked: int
    lease_expired: int
    dead_lettered: int
    expired: int
    cancelled: int
    rate_in: float
    rate_out: float
    lanes: _containers.RepeatedCompositeFieldContainer[Lane]
    partitions: _containers.RepeatedCompositeFieldContainer[QueuePartition]
    publish_to_lease: Latency
    publish_to_ack: Latency
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., depth: _Optional[int] = ..., ready: _Optional[int] = ..., waiting: _Optional[int] = ..., leased: _Optional[int] = ..., retrying: _Optional[int] = ..., delayed: _Optional[int] = ..., moving: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., delivered: _Optional[int] = ..., acked: _Optional[int] = ..., nacked: _Optional[int] = ..., lease_expired: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., expired: _Optional[int] = ..., cancelled: _Optional[int] = ..., rate_in: _Optional[float] = ..., rate_out: _Optional[float] = ..., lanes: _Optional[_Iterable[_Union[Lane, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[QueuePartition, _Mapping]]] = ..., publish_to_lease: _Optional[_Union[Latency, _Mapping]] = ..., publish_to_ack: _Optional[_Union[Latency, _Mapping]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: str
    limit: int
    def __init__(self, after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    next: str
    def __init__(self, groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AlterGroupRequest(_message.Message):
    __slots__ = ("name", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Group(_message.Message):
    __slots__ = ("name", "kind", "topics", "settings", "consumers")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    settings: _containers.ScalarMap[str, str]
    consumers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., settings: _Optional[_Mapping[str, str]] = ..., consumers: _Optional[_Iterable[str]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("group", "positions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    group: str
    positions: _containers.RepeatedCompositeFieldContainer[Position]
    def __init__(self, group: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[Position, _Mapping]]] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommittedRequest(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class CommittedResponse(_message.Message):
    __slots__ = ("offsets",)
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.ScalarMap[int, int]
    def __init__(self, offsets: _Optional[_Mapping[int, int]] = ...) -> None: ...

class ListDelayedRequest(_message.Message):
    __slots__ = ("topic", "after", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    after: DelayedMark
    limit: int
    def __init__(self, topic: _Optional[str] = ..., after: _Optional[_Union[DelayedMark, _Mapping]] = ..., limit: _Optional[int] = ...) -> None: ...

class DelayedMark(_message.Message):
    __slots__ = ("deliver_at_ms", "partition", "offset")
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    deliver_at_ms: int
    partition: int
    offset: int
    def __init__(self, deliver_at_ms: _Optional[int] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class DelayedMessage(_message.Message):
    __slots__ = ("deliver_at_ms", "message")
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    deliver_at_ms: int
    message: Record
    def __init__(self, deliver_at_ms: _Optional[int] = ..., message: _Optional[_Union[Record, _Mapping]] = ...) -> None: ...

class ListDelayedResponse(_message.Message):
    __slots__ = ("messages", "next")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[DelayedMessage]
    next: DelayedMark
    def __init__(self, messages: _Optional[_Iterable[_Union[DelayedMessage, _Mapping]]] = ..., next: _Optional[_Union[DelayedMark, _Mapping]] = ...) -> None: ...

class DelayedTotalsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class TopicDelayedTotals(_message.Message):
    __slots__ = ("topic", "delivered", "cancelled", "expired")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    delivered: int
    cancelled: int
    expired: int
    def __init__(self, topic: _Optional[str] = ..., delivered: _Optional[int] = ..., cancelled: _Optional[int] = ..., expired: _Optional[int] = ...) -> None: ...

class DelayedTotalsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicDelayedTotals]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicDelayedTotals, _Mapping]]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: MessageId
    def __init__(self, id: _Optional[_Union[MessageId, _Mapping]] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    def __init__(self, cancelled: _Optional[bool] = ...) -> None: ...

class ListDeadRequest(_message.Message):
    __slots__ = ("topic", "group", "after", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    after: MessageId
    limit: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., after: _Optional[_Union[MessageId, _Mapping]] = ..., limit: _Optional[int] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("id", "source", "group", "reason", "error", "attempts", "created_at_ms", "failed_at_ms", "redrives", "key", "value", "headers")
    ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FAILED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REDRIVES_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    id: MessageId
    source: MessageId
    group: str
    reason: str
    error: str
    attempts: int
    created_at_ms: int
    failed_at_ms: int
    redrives: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, id: _Optional[_Union[MessageId, _Mapping]] = ..., source: _Optional[_Union[MessageId, _Mapping]] = ..., group: _Optional[str] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., attempts: _Optional[int] = ..., created_at_ms: _Optional[int] = ..., failed_at_ms: _Optional[int] = ..., redrives: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class ListDeadResponse(_message.Message):
    __slots__ = ("letters", "next")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next: MessageId
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next: _Optional[_Union[MessageId, _Mapping]] = ...) -> None: ...

class ShowDeadRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: MessageId
    def __init__(self, id: _Optional[_Union[MessageId, _Mapping]] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("topic", "ids", "dry_run", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    ids: _containers.RepeatedCompositeFieldContainer[MessageId]
    dry_run: bool
    force: bool
    def __init__(self, topic: _Optional[str] = ..., ids: _Optional[_Iterable[_Union[MessageId, _Mapping]]] = ..., dry_run: _Optional[bool] = ..., force: _Optional[bool] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("matched", "redriven", "looping", "orphaned", "stopped", "in_place", "copied")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    LOOPING_FIELD_NUMBER: _ClassVar[int]
    ORPHANED_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    matched: int
    redriven: int
    looping: int
    orphaned: int
    stopped: str
    in_place: int
    copied: int
    def __init__(self, matched: _Optional[int] = ..., redriven: _Optional[int] = ..., looping: _Optional[int] = ..., orphaned: _Optional[int] = ..., stopped: _Optional[str] = ..., in_place: _Optional[int] = ..., copied: _Optional[int] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("topic", "ids")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    ids: _containers.RepeatedCompositeFieldContainer[MessageId]
    def __init__(self, topic: _Optional[str] = ..., ids: _Optional[_Iterable[_Union[MessageId, _Mapping]]] = ...) -> None: ...

class PurgeResponse(_message.Message):
    __slots__ = ("purged",)
    PURGED_FIELD_NUMBER: _ClassVar[int]
    purged: int
    def __init__(self, purged: _Optional[int] = ...) -> None: ...

class ShowTraceRequest(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class TraceEvent(_message.Message):
    __slots__ = ("at_ms", "event", "group", "consumer", "attempt", "until_ms", "reason", "error", "to")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    event: str
    group: str
    consumer: str
    attempt: int
    until_ms: int
    reason: str
    error: str
    to: str
    def __init__(self, at_ms: _Optional[int] = ..., event: _Optional[str] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., attempt: _Optional[int] = ..., until_ms: _Optional[int] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., to: _Optional[str] = ...) -> None: ...

class TraceGroup(_message.Message):
    __slots__ = ("group", "kind", "state", "attempts", "consumer", "due_ms", "cursor", "committed_at_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    kind: str
    state: str
    attempts: int
    consumer: str
    due_ms: int
    cursor: int
    committed_at_ms: int
    def __init__(self, group: _Optional[str] = ..., kind: _Optional[str] = ..., state: _Optional[str] = ..., attempts: _Optional[int] = ..., consumer: _Optional[str] = ..., due_ms: _Optional[int] = ..., cursor: _Optional[int] = ..., committed_at_ms: _Optional[int] = ...) -> None: ...

class TraceLink(_message.Message):
    __slots__ = ("relation", "id")
    RELATION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    relation: str
    id: str
    def __init__(self, relation: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("id", "published_at_ms", "key", "headers", "value_bytes", "producer", "transaction", "sampled", "cut", "groups", "events", "links")
    ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    id: MessageId
    published_at_ms: int
    key: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    value_bytes: int
    producer: str
    transaction: str
    sampled: bool
    cut: bool
    groups: _containers.RepeatedCompositeFieldContainer[TraceGroup]
    events: _containers.RepeatedCompositeFieldContainer[TraceEvent]
    links: _containers.RepeatedCompositeFieldContainer[TraceLink]
    def __init__(self, id: _Optional[_Union[MessageId, _Mapping]] = ..., published_at_ms: _Optional[int] = ..., key: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., value_bytes: _Optional[int] = ..., producer: _Optional[str] = ..., transaction: _Optional[str] = ..., sampled: _Optional[bool] = ..., cut: _Optional[bool] = ..., groups: _Optional[_Iterable[_Union[TraceGroup, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[TraceEvent, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[TraceLink, _Mapping]]] = ...) -> None: ...

class SearchTracesRequest(_message.Message):
    __slots__ = ("topic", "key", "header", "group", "outcome", "since_ms", "until_ms", "after", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: bytes
    header: Header
    group: str
    outcome: str
    since_ms: int
    until_ms: int
    after: str
    limit: int
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[bytes] = ..., header: _Optional[_Union[Header, _Mapping]] = ..., group: _Optional[str] = ..., outcome: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class SearchTracesResponse(_message.Message):
    __slots__ = ("traces", "next")
    TRACES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    traces: _containers.RepeatedCompositeFieldContainer[Trace]
    next: str
    def __init__(self, traces: _Optional[_Iterable[_Union[Trace, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class DescribeNodeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeNodeResponse(_message.Message):
    __slots__ = ("node_id", "cluster_id", "version", "now_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    cluster_id: str
    version: str
    now_ms: int
    def __init__(self, node_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., version: _Optional[str] = ..., now_ms: _Optional[int] = ...) -> None: ...
