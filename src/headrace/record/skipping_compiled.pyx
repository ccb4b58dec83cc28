# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Stepping over records, compiled. What it means is said in skipping.py."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from headrace.record.numbers cimport read_number

from headrace.core.errors import CorruptBatch


def skip_to(
    const uint8_t[::1] data,
    int64_t position,
    int64_t previous,
    int64_t left,
    int64_t wanted,
    int64_t stop,
):
    cdef int64_t size = data.shape[0]
    cdef const uint8_t* start = &data[0] if size else NULL
    cdef const uint8_t* data_end = start + size
    cdef const uint8_t* body
    cdef const uint8_t* end
    cdef uint64_t raw
    while left and previous < wanted - 1 and position < stop:
        if position >= size:
            raise CorruptBatch("a record is cut off at the end of the batch")
        body = read_number(start + position, data_end, 32, &raw)
        if body == NULL or raw & 1 or <int64_t>(raw >> 1) > data_end - body:
            raise CorruptBatch(f"a record's length at byte {position} is impossible")
        end = body + (raw >> 1)
        # Attributes and the time stand before the offset.
        body = read_number(body + 1, data_end, 64, &raw)
        if body != NULL:
            body = read_number(body, data_end, 32, &raw)
        if body == NULL:
            raise CorruptBatch("a record is cut off at the end of the batch")
        if <int64_t>(raw >> 1) >= wanted:
            break
        position, previous, left = end - start, <int64_t>(raw >> 1), left - 1
    return position, previous, left
