# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Columns to records, compiled. What it means is said in column_builder.py."""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from headrace.core.errors import InvalidArgument, RecordTooLarge
from headrace.core.limits import RECORD_BYTES_MAX

# Lengths, attributes, time, offset and an empty header block, each at its longest.
cdef int64_t OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 1
cdef int64_t RECORD_MAX = RECORD_BYTES_MAX


cdef inline uint8_t* write_number(uint8_t* position, int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while raw > 0x7F:
        position[0] = <uint8_t>(raw & 0x7F | 0x80)
        position += 1
        raw >>= 7
    position[0] = <uint8_t>raw
    return position + 1


cdef inline int number_size(int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while raw > 0x7F:
        size += 1
        raw >>= 7
    return size


cdef class Column:
    """The buffers of a BytesColumn, held while they are read."""

    cdef bint is_there
    cdef int64_t rows
    cdef const int32_t* starts
    cdef const uint8_t* data
    cdef const uint8_t* validity
    cdef const unsigned char[::1] held_starts
    cdef const unsigned char[::1] held_data
    cdef const unsigned char[::1] held_validity

    def __cinit__(self, column):
        self.is_there = column is not None
        self.validity = NULL
        self.data = NULL
        self.rows = 0
        if column is None:
            return
        self.held_starts = column.starts
        self.rows = self.held_starts.shape[0] // 4 - 1
        if self.rows < 0:
            raise InvalidArgument("a column without starts")
        self.starts = <const int32_t*>&self.held_starts[0]
        self.held_data = column.data
        if self.held_data.shape[0]:
            self.data = &self.held_data[0]
        if column.validity is not None:
            self.held_validity = column.validity
            if self.held_validity.shape[0] * 8 < self.rows:
                raise InvalidArgument("a column's validity is too short")
            if self.rows:
                self.validity = &self.held_validity[0]

    cdef inline int64_t size_of(self, int64_t row) noexcept nogil:
        """-1 for null."""
        if not self.is_there:
            return -1
        if self.validity != NULL and not self.validity[row >> 3] >> (row & 7) & 1:
            return -1
        return self.starts[row + 1] - self.starts[row]


    cdef inline int64_t bytes_at(self, int64_t row) except -1:
        if not self.is_there:
            return 0
        if self.starts[row] < 0 or not (
            self.starts[row] <= self.starts[row + 1] <= self.held_data.shape[0]
        ):
            raise InvalidArgument("a column's starts lie outside of its data")
        return self.starts[row + 1] - self.starts[row]


def encode_rows(rows, key, value, headers, timestamps_ms, int64_t base_timestamp_ms):
    cdef const unsigned char[::1] held_rows = rows
    cdef int64_t count = held_rows.shape[0] // 4
    cdef const int32_t* chosen = <const int32_t*>&held_rows[0] if count else NULL
    cdef const unsigned char[::1] held_times
    cdef const int64_t* times = NULL
    cdef int64_t time_count = 0
    if timestamps_ms is not None:
        held_times = timestamps_ms
        time_count = held_times.shape[0] // 8
        times = <const int64_t*>&held_times[0] if time_count else NULL
    cdef Column keys = Column(key)
    cdef Column values = Column(value)
    cdef Column blocks = Column(headers)
    cdef int64_t number, row, key_bytes, value_bytes, header_bytes, size, body, delta
    cdef int64_t room = 0
    for number in range(count):
        row = chosen[number]
        if (
            row < 0
            or keys.is_there and row >= keys.rows
            or values.is_there and row >= values.rows
            or blocks.is_there and row >= blocks.rows
            or timestamps_ms is not None and row >= time_count
        ):
            raise InvalidArgument(f"there is no row {row}")
        size = keys.bytes_at(row) + values.bytes_at(row) + blocks.bytes_at(row)
        room += size + OVERHEAD
    cdef bytearray output = PyByteArray_FromStringAndSize(NULL, room)
    cdef uint8_t* start = <uint8_t*>PyByteArray_AS_STRING(output)
    cdef uint8_t* position = start
    for number in range(count):
        row = chosen[number]
        delta = 0
        if timestamps_ms is not None:
            delta = <int64_t>(<uint64_t>times[row] - <uint64_t>base_timestamp_ms)
        key_bytes = keys.size_of(row)
        value_bytes = values.size_of(row)
        header_bytes = blocks.size_of(row)
        body = (
            1
            + number_size(delta)
            + number_size(number)
            + number_size(key_bytes)
            + number_size(value_bytes)
            + (key_bytes if key_bytes > 0 else 0)
            + (value_bytes if value_bytes > 0 else 0)
            + (header_bytes if header_bytes > 0 else 1)
        )
        if body > RECORD_MAX:
            raise RecordTooLarge(
                f"row {row} makes a record of {body} bytes, at most {RECORD_MAX} are allowed"
            )
        position = write_number(position, body)
        position[0] = 0
        position = write_number(position + 1, delta)
        position = write_number(position, number)
        position = write_number(position, key_bytes)
        if key_bytes > 0:
            memcpy(position, keys.data + keys.starts[row], key_bytes)
            position += key_bytes
        position = write_number(position, value_bytes)
        if value_bytes > 0:
            memcpy(position, values.data + values.starts[row], value_bytes)
            position += value_bytes
        if header_bytes > 0:
            memcpy(position, blocks.data + blocks.starts[row], header_bytes)
            position += header_bytes
        else:
            position[0] = 0
            position += 1
    PyByteArray_Resize(output, position - start)
    return output
