"""Which records of a refused batch were at fault, for clients that tell their callers.

Java and librdkafka give the callers of the named records the reason, and those of the
others that their batch was refused because of them.
"""

from __future__ import annotations

from headrace.core.errors import CorruptBatch, HeadraceError
from headrace.core.ports import Buffer
from headrace.engine.contents import LIGHT_BYTES, LIGHT_RECORDS
from headrace.engine.conversion import InvalidTimestamp
from headrace.record import read_header
from headrace.record.reader import read_records
from headrace.record.record import Record
from headrace.record.record_limits import KeylessRecords
from headrace.wire.kafka.generated.produce_response import BatchIndexAndErrorMessage


def record_errors(
    error: HeadraceError, batch: Buffer | None
) -> tuple[BatchIndexAndErrorMessage, ...]:
    """None where the batch is at fault as a whole, or holds more than is opened on the spot:
    it is refused all the same."""
    if batch is None or not isinstance(error, KeylessRecords | InvalidTimestamp):
        return ()
    header = read_header(batch)
    if header.count > LIGHT_RECORDS:
        return ()
    try:
        records = read_records(bytes(batch), header, LIGHT_BYTES)
    except CorruptBatch:
        return ()
    return tuple(
        BatchIndexAndErrorMessage(number, str(error))
        for number, record in enumerate(records)
        if _is_at_fault(record, error)
    )


def _is_at_fault(record: Record, error: KeylessRecords | InvalidTimestamp) -> bool:
    if isinstance(error, InvalidTimestamp):
        return error.is_about(record.timestamp_ms)
    return record.key is None
