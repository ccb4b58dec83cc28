"""Kafka's error codes for our errors: the one place where they meet."""

from __future__ import annotations

from headrace.core import errors
from headrace.engine.contents import ImpossibleId
from headrace.engine.conversion import InvalidTimestamp
from headrace.engine.sealed import ImpossibleBatch, ImpossibleTime
from headrace.record.record_limits import UnsoundRecords
from headrace.wire.kafka.errors import ErrorCode as Error

_CODES: dict[type[Exception], Error] = {
    errors.UnknownTopic: Error.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownPartition: Error.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownGroup: Error.GROUP_ID_NOT_FOUND,
    errors.TopicExists: Error.TOPIC_ALREADY_EXISTS,
    errors.InvalidName: Error.INVALID_TOPIC_EXCEPTION,
    errors.InvalidArgument: Error.INVALID_REQUEST,
    errors.OffsetOutOfRange: Error.OFFSET_OUT_OF_RANGE,
    errors.RecordTooLarge: Error.MESSAGE_TOO_LARGE,
    errors.CorruptBatch: Error.CORRUPT_MESSAGE,
    errors.CorruptLog: Error.KAFKA_STORAGE_ERROR,
    errors.DiskFull: Error.KAFKA_STORAGE_ERROR,
    errors.SyncFailed: Error.KAFKA_STORAGE_ERROR,
    errors.TooManyFiles: Error.KAFKA_STORAGE_ERROR,
    errors.DeadlineExceeded: Error.REQUEST_TIMED_OUT,
    # Of the system's, whatever it is: the disk's.
    OSError: Error.KAFKA_STORAGE_ERROR,
    errors.FencedLeader: Error.NOT_LEADER_OR_FOLLOWER,
    errors.FencedProducer: Error.INVALID_PRODUCER_EPOCH,
    errors.FencedCoordinator: Error.TRANSACTION_COORDINATOR_FENCED,
    errors.InvalidTransactionState: Error.INVALID_TXN_STATE,
    errors.OutOfOrderSequence: Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.StaleReceipt: Error.INVALID_RECORD_STATE,
    errors.InvalidReceipt: Error.INVALID_RECORD_STATE,
    ImpossibleBatch: Error.INVALID_RECORD,
    ImpossibleId: Error.INVALID_RECORD,
    ImpossibleTime: Error.INVALID_TIMESTAMP,
    InvalidTimestamp: Error.INVALID_TIMESTAMP,
    UnsoundRecords: Error.INVALID_RECORD,
    errors.GroupInUse: Error.NON_EMPTY_GROUP,
    errors.GroupKindMismatch: Error.INCONSISTENT_GROUP_PROTOCOL,
    errors.LimitExceeded: Error.POLICY_VIOLATION,
}


def code_of(error: BaseException) -> Error:
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return Error.UNKNOWN_SERVER_ERROR


def code_of_failure(failure: BaseException) -> Error:
    """Of whatever kept something from being read or written: what is no error of ours is the
    disk's."""
    if isinstance(failure, errors.HeadraceError):
        return code_of(failure)
    return Error.KAFKA_STORAGE_ERROR


__all__ = ["Error", "code_of", "code_of_failure"]
