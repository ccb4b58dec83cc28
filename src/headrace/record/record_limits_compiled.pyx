# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Limits of records, compiled. What it means is said in record_limits.py."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from headrace.record.numbers cimport read_number

from headrace.core import limits

cdef int64_t KEY_BYTES_MAX = limits.KEY_BYTES_MAX
cdef int64_t HEADERS_MAX = limits.HEADERS_MAX
cdef int64_t HEADER_BYTES_MAX = limits.HEADER_BYTES_MAX
cdef int64_t RECORD_BYTES_MAX = limits.RECORD_BYTES_MAX

cdef int WITHIN = 0
cdef int CORRUPT = 1
cdef int LONG_KEY = 2
cdef int MANY_HEADERS = 3
cdef int LONG_HEADERS = 4
cdef int NO_KEY = 5
cdef int LONG_RECORD = 6

cdef int LIMITS = 1
cdef int KEYED = 2
cdef int PART = 4

DEF HEADER_BYTES = 61
DEF LENGTH_OVERHEAD = 12
DEF BATCH_LENGTH_AT = 8
DEF CODEC_AT = 22
DEF CODEC_MASK = 7
DEF BASE_TIME_AT = 27
DEF LATEST_TIME_AT = 35
DEF COUNT_AT = 57
DEF NO_TIMESTAMP_MS = -1


cdef inline int64_t big32(const uint8_t* at) noexcept nogil:
    return <int32_t>(
        <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | <uint32_t>at[3]
    )


cdef inline int64_t big64(const uint8_t* at) noexcept nogil:
    return <int64_t>(
        <uint64_t><uint32_t>big32(at) << 32 | <uint64_t><uint32_t>big32(at + 4)
    )


cdef int find_header_fault(
    const uint8_t* position, const uint8_t* end, const uint8_t* stop, int64_t count, int rules
) noexcept nogil:
    cdef uint64_t raw
    cdef int64_t number
    cdef int64_t total = 0
    if 2 * count > end - position:
        return CORRUPT
    if rules & LIMITS and count > HEADERS_MAX:
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
    return LONG_HEADERS if rules & LIMITS and total > HEADER_BYTES_MAX else WITHIN


cdef inline int cut_off(
    const uint8_t* field, const uint8_t* stop, int64_t bytes_max, int rules
) noexcept nogil:
    """A number could not be read: was it cut off, and may it be?"""
    while field < stop and bytes_max:
        if field[0] < 0x80:
            return CORRUPT
        field += 1
        bytes_max -= 1
    return WITHIN if rules & PART and bytes_max else CORRUPT


cdef int find(
    const uint8_t* position,
    const uint8_t* stop,
    int64_t count,
    int rules,
    int64_t base_ms,
    int64_t* latest_ms,
) noexcept nogil:
    cdef int64_t time_ms
    cdef const uint8_t* end
    cdef const uint8_t* field
    cdef uint64_t raw
    cdef int64_t number
    cdef int which
    cdef int fault
    for number in range(count):
        field = position
        position = read_number(field, stop, 32, &raw)
        if position == NULL:
            return cut_off(field, stop, 5, rules)
        if raw & 1 or (not rules & PART and <int64_t>(raw >> 1) > stop - position):
            return CORRUPT
        if rules & LIMITS and <int64_t>(raw >> 1) > RECORD_BYTES_MAX:
            return LONG_RECORD
        end = position + (raw >> 1)
        # Attributes, the time, the offset.
        if stop - position < 1:
            return cut_off(position, stop, 1, rules)
        field = position + 1
        position = read_number(field, stop, 64, &raw)
        if position == NULL:
            return cut_off(field, stop, 10, rules)
        # Unsigned: a sum that does not fit into 64 bits goes on at the other end.
        time_ms = <int64_t>(<uint64_t>base_ms + ((raw >> 1) ^ -(raw & 1)))
        if time_ms > latest_ms[0]:
            latest_ms[0] = time_ms
        field = position
        position = read_number(field, stop, 32, &raw)
        if position == NULL:
            return cut_off(field, stop, 5, rules)
        if raw != <uint64_t>number << 1:
            return CORRUPT
        for which in range(2):
            field = position
            position = read_number(field, stop, 32, &raw)
            if position == NULL:
                return cut_off(field, stop, 5, rules)
            if raw == 1:
                if which == 0 and rules & KEYED:
                    return NO_KEY
                continue
            if raw & 1:
                return CORRUPT
            if rules & LIMITS and which == 0 and <int64_t>(raw >> 1) > KEY_BYTES_MAX:
                return LONG_KEY
            if <int64_t>(raw >> 1) > end - position:
                return CORRUPT
            position += raw >> 1
            if position > stop:
                return WITHIN
        field = position
        position = read_number(field, stop, 32, &raw)
        if position == NULL:
            return cut_off(field, stop, 5, rules)
        if raw & 1 or position > end:
            return CORRUPT
        if end > stop:
            return WITHIN
        if raw:
            fault = find_header_fault(position, end, stop, <int64_t>(raw >> 1), rules)
            if fault != WITHIN:
                return fault
        elif position != end:
            return CORRUPT
        position = end
        if rules & PART and position == stop:
            return WITHIN
    return WITHIN if position == stop else CORRUPT


def find_fault(data, int64_t count, int rules, int64_t base_ms):
    cdef const uint8_t[::1] view = data
    cdef const uint8_t* start
    cdef int64_t size = view.shape[0]
    cdef int64_t latest_ms = NO_TIMESTAMP_MS
    cdef int fault
    if not size:
        return CORRUPT if count and not rules & PART else WITHIN, NO_TIMESTAMP_MS
    start = &view[0]
    fault = find(start, start + size, count, rules, base_ms, &latest_ms)
    return fault, NO_TIMESTAMP_MS if fault else latest_ms


def find_fault_in_plain(batches, int rules, int64_t bytes_max):
    cdef const uint8_t[::1] view = batches
    cdef int64_t stop = view.shape[0]
    cdef int64_t position = 0
    cdef int64_t number = 0
    cdef int64_t size
    cdef int64_t end
    cdef int64_t latest_ms
    cdef int64_t says_ms
    cdef int part
    cdef const uint8_t* batch
    cdef int fault
    compressed = []
    wrong = []
    while stop - position >= HEADER_BYTES:
        batch = &view[position]
        size = big32(batch + BATCH_LENGTH_AT) + LENGTH_OVERHEAD
        if not HEADER_BYTES <= size <= stop - position:
            break
        if batch[CODEC_AT] & CODEC_MASK:
            compressed.append((number, position))
        else:
            end = size
            part = 0
            if size - HEADER_BYTES > bytes_max:
                end = HEADER_BYTES + bytes_max
                part = PART
            latest_ms = NO_TIMESTAMP_MS
            fault = find(
                batch + HEADER_BYTES,
                batch + end,
                big32(batch + COUNT_AT),
                rules | part,
                big64(batch + BASE_TIME_AT),
                &latest_ms,
            )
            if fault != WITHIN:
                return fault, [], []
            says_ms = big64(batch + LATEST_TIME_AT)
            if latest_ms > says_ms or (latest_ms != says_ms and not part):
                wrong.append((position, latest_ms))
        position += size
        number += 1
    return WITHIN, compressed, wrong
