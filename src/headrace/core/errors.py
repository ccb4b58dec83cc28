"""Every error that a user of Headrace can meet.

One class each, with a `code` that never changes, and `retriable`: whether the
same call can succeed later without anything being repaired. A message says what
is wrong and what to do about it. Expected outcomes (a stale receipt in a batch
of acks, a duplicate) are return values and not in this file's business.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

# Of the text of an error: what it quotes may be as long as a client likes, and no protocol
# has room for any length.
TEXT_CHARACTERS_MAX: Final = 4_000


def shortened(text: str) -> str:
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    # What to do about it stands at the end.
    half = TEXT_CHARACTERS_MAX // 2
    return f"{text[:half]} ... {text[-half:]}"


class HeadraceError(Exception):
    """The base of them all."""

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False

    def __str__(self) -> str:
        return shortened(super().__str__())

    def without_frames(self) -> Self:
        """Itself, where it is kept or returned instead of raised. The frames that an error
        came through hold all that was at hand there, such as megabytes of a request, and
        often the error itself: then only the garbage collector ends them."""
        error: BaseException | None = self
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__
        return self


# The caller's input.


class InvalidArgument(HeadraceError, ValueError):
    """A value of the wrong type, or out of its range."""

    code = "invalid-argument"


class InvalidName(InvalidArgument):
    code = "invalid-name"


class RecordTooLarge(InvalidArgument):
    code = "record-too-large"


class InvalidReceipt(InvalidArgument):
    """Not a receipt of ours, or of another group or topic."""

    code = "invalid-receipt"


class StaleReceipt(HeadraceError):
    """The lease that the receipt proves is over: it expired, was settled
    already, or the message was given to somebody else."""

    code = "stale-receipt"


class OffsetOutOfRange(InvalidArgument):
    code = "offset-out-of-range"


class DecodeError(HeadraceError, ValueError):
    """A value that is not what the asked-for type can hold."""

    code = "decode-error"


class MalformedMessage(HeadraceError, ValueError):
    """A peer's bytes are not the protocol message that they claim to be."""

    code = "malformed-message"


# What does not exist, or already does.


class UnknownTopic(HeadraceError, LookupError):
    code = "unknown-topic"


class UnknownPartition(HeadraceError, LookupError):
    code = "unknown-partition"


class UnknownGroup(HeadraceError, LookupError):
    code = "unknown-group"


class UnknownMessage(HeadraceError, LookupError):
    code = "unknown-message"


class TopicExists(HeadraceError):
    code = "topic-exists"


class TopicReplaced(HeadraceError):
    """The topic was deleted and made again under its name: the offsets that are known
    of it mean other records now, or none."""

    code = "topic-replaced"


class GroupKindMismatch(HeadraceError):
    """A stream group asked for as a queue, or the other way round."""

    code = "group-kind-mismatch"


class GroupInUse(HeadraceError):
    """The group has members, and what is asked for needs it to have none."""

    code = "group-in-use"
    retriable = True


class StaleGeneration(HeadraceError):
    """The group's partitions were shared out anew since this member looked."""

    code = "stale-generation"
    retriable = True


# Limits and leadership.


class TooManyLeases(HeadraceError):
    code = "too-many-leases"
    retriable = True


class WorkersHung(HeadraceError):
    """More than half of an app's functions on threads did not end when their time was
    over. Only a new process gets rid of their threads."""

    code = "workers-hung"
    retriable = True


class LimitExceeded(HeadraceError):
    code = "limit-exceeded"


class FencedProducer(HeadraceError):
    code = "fenced-producer"


class OutOfOrderSequence(HeadraceError):
    code = "out-of-order-sequence"


class FencedCoordinator(HeadraceError):
    """A later coordinator has already decided for this producer."""

    code = "fenced-coordinator"


class InvalidTransactionState(HeadraceError):
    """What is asked for does not fit the state of the producer's transaction."""

    code = "invalid-transaction-state"


class UnknownTransaction(HeadraceError, LookupError):
    code = "unknown-transaction"


class FencedLeader(HeadraceError):
    """This node is not, or no longer, the partition's leader in that epoch."""

    code = "fenced-leader"
    retriable = True


# The directory and the disk.


class InUse(HeadraceError):
    """Another process has the directory open for writing."""

    code = "in-use"
    retriable = True


class ReadOnly(HeadraceError):
    """Open for reading only, or on a disk or with rights that allow no more."""

    code = "read-only"


class UnsupportedFormat(HeadraceError):
    """The directory was written by another version of Headrace."""

    code = "unsupported-format"


class DiskFull(HeadraceError):
    """Too little free space to publish. Reading and acking go on."""

    code = "disk-full"
    retriable = True


class TooManyFiles(HeadraceError):
    """The process may not open more files. Nothing is lost: raise the limit
    (`ulimit -n`), or use fewer topics and partitions."""

    code = "too-many-files"
    retriable = True


class CorruptBatch(HeadraceError):
    """Bytes that are not a whole, well-formed record batch."""

    code = "corrupt-batch"


class CorruptLog(HeadraceError):
    """Data that was known to be on disk is not what was written. The partition
    stops; `headrace log verify` says where."""

    code = "corrupt-log"


class SyncFailed(HeadraceError):
    """The disk refused to make data durable. Nothing of this handle can be
    trusted to be on disk any more, so it stays closed to writers: reopen."""

    code = "sync-failed"


# The way to a node.


class Unreachable(HeadraceError, ConnectionError):
    """No node of ours answers at that address."""

    code = "unreachable"
    retriable = True


class Disconnected(HeadraceError, ConnectionError):
    """The connection broke before the answer came, so whether the call took effect
    is not known. What is known to do no harm was tried again before."""

    code = "disconnected"
    retriable = True


class DeadlineExceeded(Disconnected):
    """The node answered that what it waits for was not safe in the time of the request.
    What was begun goes on, so this too does not say whether the call takes effect."""

    code = "deadline-exceeded"
    retriable = True


# The handle.


class BufferFull(HeadraceError):
    """What a producer holds back is all that it may hold, and nothing of it got
    away in time. The message was not taken."""

    code = "buffer-full"
    retriable = True


class Closed(HeadraceError):
    code = "closed"


class Forked(HeadraceError):
    """The handle was opened in a parent process; open your own after a fork."""

    code = "forked"


class MissingExtra(HeadraceError, ImportError):
    """An optional part is not installed. The message has the pip command."""

    code = "missing-extra"


# Other people's brokers, and pipelines.


class BrokerUnreachable(HeadraceError, ConnectionError):
    """Nobody answers there, or the connection was cut."""

    code = "broker-unreachable"
    retriable = True


class UnsupportedByBroker(HeadraceError):
    """The broker has no version of a request that we speak."""

    code = "unsupported-by-broker"


class RefusedByBroker(HeadraceError):
    """A broker answered with an error that asking again does not cure."""

    code = "refused-by-broker"


class InvalidOption(InvalidArgument):
    """An option of a Spark reader or writer that is wrong, or contradicts another."""

    code = "invalid-option"


class DataLost(HeadraceError):
    """What a query was to read next is not there any more."""

    code = "data-lost"


# Object stores, in which tables lie.


class StoreUnreachable(HeadraceError, ConnectionError):
    """The store does not answer, or not in time."""

    code = "store-unreachable"
    retriable = True


class StoreFailed(HeadraceError):
    """The store answered with an error that says nothing about what was asked for."""

    code = "store-failed"


class TableChanged(HeadraceError):
    """Files that were to be replaced are not part of the table any more. Nothing was
    changed; look at the table again."""

    code = "table-changed"
    retriable = True
