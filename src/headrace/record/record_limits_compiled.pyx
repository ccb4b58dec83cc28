# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Limits of records, compiled. What it means is said in record_limits.py."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from headrace.record.numbers cimport read_number

from headrace.core import limits

cdef int64_t KEY_BYTES_MAX = limits.KEY_BYTES_MAX
cdef int64_t HEADERS_MAX = limits.HEADERS_MAX
cdef int64_t HEADER_BYTES_MAX = limits.HEADER_BYTES_MAX

cdef int WITHIN = 0
cdef int CORRUPT = 1
cdef int LONG_KEY = 2
cdef int MANY_HEADERS = 3
cdef int LONG_HEADERS = 4


cdef int find_header_fault(
    const uint8_t* position, const uint8_t* end, const uint8_t* stop, int64_t count
) noexcept nogil:
    cdef uint64_t raw
    cdef int64_t number
    cdef int64_t total = 0
    if 2 * count > end - position:
        return CORRUPT
    if count > HEADERS_MAX:
        return MANY_HEADERS
    for number in range(2 * count):
        position = read_number(position, stop, 32, &raw)
        if position == NULL:
            return CORRUPT
        if raw == 1 and number & 1:
            continue
        if raw & 1 or <int64_t>(raw >> 1) > end - position:
            return CORRUPT
        total += <int64_t>(raw >> 1)
        position += raw >> 1
    if position != end:
        return CORRUPT
    return LONG_HEADERS if total > HEADER_BYTES_MAX else WITHIN


cdef int find(const uint8_t* position, const uint8_t* stop, int64_t count) noexcept nogil:
    cdef const uint8_t* end
    cdef uint64_t raw
    cdef int64_t number
    cdef int which
    cdef int fault
    for number in range(count):
        position = read_number(position, stop, 32, &raw)
        if position == NULL or raw & 1 or <int64_t>(raw >> 1) > stop - position:
            return CORRUPT
        end = position + (raw >> 1)
        # Attributes, the time, the offset.
        if stop - position < 1:
            return CORRUPT
        position = read_number(position + 1, stop, 64, &raw)
        if position == NULL:
            return CORRUPT
        position = read_number(position, stop, 32, &raw)
        if position == NULL:
            return CORRUPT
        for which in range(2):
            position = read_number(position, stop, 32, &raw)
            if position == NULL:
                return CORRUPT
            if raw == 1:
                continue
            if raw & 1:
                return CORRUPT
            if which == 0 and <int64_t>(raw >> 1) > KEY_BYTES_MAX:
                return LONG_KEY
            if <int64_t>(raw >> 1) > stop - position:
                return CORRUPT
            position += raw >> 1
        position = read_number(position, stop, 32, &raw)
        if position == NULL or raw & 1 or position > end:
            return CORRUPT
        if raw:
            fault = find_header_fault(position, end, stop, <int64_t>(raw >> 1))
            if fault != WITHIN:
                return fault
        elif position != end:
            return CORRUPT
        position = end
    return WITHIN if position == stop else CORRUPT


def find_fault(data, int64_t count):
    cdef const uint8_t[::1] view = data
    cdef const uint8_t* start
    cdef int64_t size = view.shape[0]
    if not size:
        return CORRUPT if count else WITHIN
    start = &view[0]
    return find(start, start + size, count)
