# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records to columns, compiled. What it means is said in columns.py."""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from headrace.record.numbers cimport read_number

from headrace.core.errors import CorruptBatch
from headrace.record.columns import BytesColumn, Columns, HeadersColumn

cdef int64_t MS_MAX = 0x7FFFFFFFFFFFFFFF // 1000
cdef int64_t COLUMN_BYTES_MAX = 0x7FFFFFFF

# What `fill` answers when the records are not what they claim to be.
cdef int IS_CORRUPT = -1
cdef int IS_TOO_LARGE = -2


cdef struct Growing:
    # A column of bytes that is being filled: where its starts, its bytes and its bits
    # go, and how far they went.
    int32_t* starts
    uint8_t* data
    uint8_t* validity
    int64_t size
    int64_t rows
    int64_t nulls


cdef struct Row:
    int64_t offset
    int64_t timestamp_us
    const uint8_t* key
    int64_t key_bytes
    const uint8_t* value
    int64_t value_bytes
    const uint8_t* headers
    int64_t header_count
    const uint8_t* end


cdef inline const uint8_t* read_bytes(
    const uint8_t* position, const uint8_t* end, const uint8_t** found, int64_t* size
) noexcept nogil:
    """Reads a length and so many bytes; -1 for the length of nothing."""
    cdef uint64_t raw
    position = read_number(position, end, 32, &raw)
    if position == NULL:
        return NULL
    if raw == 1:
        found[0] = NULL
        size[0] = -1
        return position
    if raw & 1 or <int64_t>(raw >> 1) > end - position:
        return NULL
    found[0] = position
    size[0] = <int64_t>(raw >> 1)
    return position + size[0]


cdef inline int64_t in_microseconds(int64_t base_ms, int64_t delta_ms) noexcept nogil:
    # Unsigned: a sum that does not fit into 64 bits goes on at the other end, as in Kafka.
    cdef int64_t milliseconds = <int64_t>(<uint64_t>base_ms + <uint64_t>delta_ms)
    if milliseconds > MS_MAX:
        milliseconds = MS_MAX
    elif milliseconds < -MS_MAX:
        milliseconds = -MS_MAX
    return milliseconds * 1000


cdef inline int add(Growing* column, const uint8_t* data, int64_t size) noexcept nogil:
    cdef int64_t row = column.rows
    if size >= 0:
        if column.size + size > COLUMN_BYTES_MAX:
            return IS_TOO_LARGE
        memcpy(column.data + column.size, data, size)
        column.size += size
        column.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
    else:
        column.nulls += 1
    column.rows = row + 1
    column.starts[row + 1] = <int32_t>column.size
    return 0


cdef bytearray room(int64_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


cdef class Room:
    """The memory that a growing column writes to."""

    cdef bytearray starts
    cdef bytearray data
    cdef bytearray validity
    cdef Growing growing

    def __cinit__(self, int64_t rows, int64_t size):
        # Not filled with zeros: most of it is written to, and the rest given back.
        self.starts = room(4 * (rows + 1))
        self.data = room(size)
        self.validity = bytearray((rows + 7) // 8)
        self.growing.starts = <int32_t*>PyByteArray_AS_STRING(self.starts)
        self.growing.data = <uint8_t*>PyByteArray_AS_STRING(self.data)
        self.growing.validity = <uint8_t*>PyByteArray_AS_STRING(self.validity)
        self.growing.size = self.growing.rows = self.growing.nulls = 0
        self.growing.starts[0] = 0

    cdef int grow(self, int64_t more) except -1:
        if more > 0:
            PyByteArray_Resize(self.data, len(self.data) + more)
            self.growing.data = <uint8_t*>PyByteArray_AS_STRING(self.data)
        return 0

    cdef object column(self):
        cdef int64_t rows = self.growing.rows
        PyByteArray_Resize(self.starts, 4 * (rows + 1))
        PyByteArray_Resize(self.data, self.growing.size)
        PyByteArray_Resize(self.validity, (rows + 7) // 8)
        return BytesColumn(
            self.starts, self.data, self.validity if self.growing.nulls else None
        )


cdef const uint8_t* behind_headers(
    const uint8_t* position, const uint8_t* end, int64_t count
) noexcept nogil:
    """Behind so many headers; NULL when they are not there."""
    cdef const uint8_t* found = NULL
    cdef int64_t size = 0
    for _ in range(count):
        position = read_bytes(position, end, &found, &size)
        if position == NULL or size < 0:
            return NULL
        position = read_bytes(position, end, &found, &size)
        if position == NULL:
            return NULL
    return position


cdef int add_name(Room names, const uint8_t* name, int64_t size) except? -1:
    """As `add`; what is not UTF-8 is replaced, as everywhere."""
    cdef int64_t at
    for at in range(size):
        if name[at] > 127:
            break
    else:
        return add(&names.growing, name, size)
    cdef bytes replaced = PyUnicode_DecodeUTF8(<const char*>name, size, "replace").encode()
    names.grow(len(replaced) - size)
    return add(&names.growing, <const uint8_t*>PyBytes_AS_STRING(replaced), len(replaced))


def decode_columns(blocks, int64_t start, int64_t end, *, bint with_headers=False):
    cdef int64_t rows = 0
    cdef int64_t size = 0
    for records, header in blocks:
        # A count that the bytes cannot hold is a lie that would cost memory.
        if header.count * 7 > len(records):
            raise CorruptBatch("a record is cut off at the end of the batch")
        rows += header.count
        size += len(records)
    cdef Room keys = Room(rows, size)
    cdef Room values = Room(rows, size)
    # Each header takes two bytes or more.
    cdef Room names = Room(size // 2 if with_headers else 0, size if with_headers else 0)
    cdef Room header_values = Room(size // 2 if with_headers else 0, size if with_headers else 0)
    cdef bytearray offsets = room(8 * rows)
    cdef bytearray timestamps = room(8 * rows)
    cdef bytearray types = room(4 * rows)
    cdef bytearray header_starts = room(4 * (rows + 1))
    cdef bytearray header_validity = bytearray((rows + 7) // 8 if with_headers else 0)
    cdef int64_t* offset_at = <int64_t*>PyByteArray_AS_STRING(offsets)
    cdef int64_t* timestamp_at = <int64_t*>PyByteArray_AS_STRING(timestamps)
    cdef int32_t* type_at = <int32_t*>PyByteArray_AS_STRING(types)
    cdef int32_t* header_start_at = <int32_t*>PyByteArray_AS_STRING(header_starts)
    cdef uint8_t* header_validity_at = <uint8_t*>PyByteArray_AS_STRING(header_validity)
    header_start_at[0] = 0
    cdef int64_t row = 0
    cdef int64_t without_headers = 0
    cdef int64_t base_offset, base_ms, append_us, last_delta, previous, count, at
    cdef int32_t timestamp_type
    cdef bint has_append_time
    cdef const unsigned char[::1] data
    cdef const uint8_t* position
    cdef const uint8_t* data_end
    cdef const uint8_t* found = NULL
    cdef int64_t found_bytes = 0
    cdef Row record
    cdef int outcome

    for records, header in blocks:
        count = header.count
        base_offset = header.base_offset
        base_ms = header.base_timestamp_ms
        has_append_time = header.has_log_append_time
        append_us = in_microseconds(header.max_timestamp_ms, 0) if has_append_time else 0
        last_delta = header.last_offset_delta
        timestamp_type = 1 if has_append_time else 0
        previous = -1
        data = records
        position = &data[0] if data.shape[0] else NULL
        data_end = position + data.shape[0]
        for _ in range(count):
            position = read_record(position, data_end, &previous, last_delta, &record)
            if position == NULL:
                raise CorruptBatch("a record is not well formed")
            if record.header_count:
                position = behind_headers(record.headers, record.end, record.header_count)
                if position != record.end:
                    raise CorruptBatch("the headers of a record are not well formed")
            record.offset += base_offset
            if record.offset < start or record.offset >= end:
                continue
            outcome = add(&keys.growing, record.key, record.key_bytes)
            outcome |= add(&values.growing, record.value, record.value_bytes)
            if outcome:
                raise CorruptBatch("more bytes than one column can hold")
            offset_at[row] = record.offset
            timestamp_at[row] = (
                append_us if has_append_time else in_microseconds(base_ms, record.timestamp_us)
            )
            type_at[row] = timestamp_type
            if with_headers:
                position = record.headers
                for at in range(record.header_count):
                    position = read_bytes(position, record.end, &found, &found_bytes)
                    outcome |= add_name(names, found, found_bytes)
                    position = read_bytes(position, record.end, &found, &found_bytes)
                    outcome |= add(&header_values.growing, found, found_bytes)
                if outcome:
                    raise CorruptBatch("more bytes than one column can hold")
                position = record.end
                header_start_at[row + 1] = <int32_t>names.growing.rows
                if record.header_count:
                    header_validity_at[row >> 3] |= <uint8_t>(1 << (row & 7))
                else:
                    without_headers += 1
            row += 1
        if position != data_end:
            raise CorruptBatch("bytes follow the last record")

    PyByteArray_Resize(offsets, 8 * row)
    PyByteArray_Resize(timestamps, 8 * row)
    PyByteArray_Resize(types, 4 * row)
    headers = None
    if with_headers:
        PyByteArray_Resize(header_starts, 4 * (row + 1))
        PyByteArray_Resize(header_validity, (row + 7) // 8)
        headers = HeadersColumn(
            header_starts,
            header_validity if without_headers else None,
            names.column(),
            header_values.column(),
            names.growing.rows,
        )
    return Columns(row, keys.column(), values.column(), offsets, timestamps, types, headers)


cdef inline const uint8_t* read_record(
    const uint8_t* position,
    const uint8_t* data_end,
    int64_t* previous,
    int64_t last_delta,
    Row* record,
) noexcept nogil:
    """Behind one record, or behind its header count when it has headers: these are the
    caller's to read. NULL when it is none. The offset is a delta, and so is the time."""
    cdef uint64_t raw
    cdef const uint8_t* end
    position = read_number(position, data_end, 32, &raw)
    if position == NULL or raw & 1 or <int64_t>(raw >> 1) > data_end - position:
        return NULL
    end = position + (raw >> 1)
    # One byte of attributes, of which none is in use.
    position = read_number(position + 1, end, 64, &raw)
    if position == NULL:
        return NULL
    record.timestamp_us = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    position = read_number(position, end, 32, &raw)
    if position == NULL:
        return NULL
    record.offset = <int64_t>(raw >> 1)
    if raw & 1 or record.offset <= previous[0] or record.offset > last_delta:
        return NULL
    previous[0] = record.offset
    position = read_bytes(position, end, &record.key, &record.key_bytes)
    if position == NULL:
        return NULL
    position = read_bytes(position, end, &record.value, &record.value_bytes)
    if position == NULL:
        return NULL
    position = read_number(position, end, 32, &raw)
    if position == NULL:
        return NULL
    if raw & 1 or <int64_t>raw > end - position:
        return NULL
    record.headers = position
    record.header_count = <int64_t>(raw >> 1)
    record.end = end
    if not record.header_count and position != end:
        return NULL
    return position
