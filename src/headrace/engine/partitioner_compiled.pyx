# cython: language_level=3, boundscheck=False, wraparound=False
"""murmur2, compiled. What it means is said in partitioner.py."""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int32_t, uint32_t

from headrace.core.errors import InvalidArgument


def murmur2(const unsigned char[::1] data not None):
    return hash_of(&data[0] if data.shape[0] else NULL, data.shape[0])


def partitions_of_keys(
    const unsigned char[::1] starts not None,
    const unsigned char[::1] data not None,
    int partitions,
):
    if partitions < 1:
        raise InvalidArgument(f"a topic has at least one partition, not {partitions}")
    cdef Py_ssize_t count = max(0, starts.shape[0] // 4 - 1)
    cdef bytearray chosen = bytearray(4 * count)
    cdef int32_t* out = <int32_t*>PyByteArray_AS_STRING(chosen)
    cdef const int32_t* bounds = <const int32_t*>&starts[0] if count else NULL
    cdef Py_ssize_t number
    for number in range(count):
        if bounds[number] < 0 or not bounds[number] <= bounds[number + 1] <= data.shape[0]:
            raise InvalidArgument("keys lie outside of their data")
        out[number] = <int32_t>(
            (
                hash_of(
                    &data[bounds[number]] if bounds[number] < data.shape[0] else NULL,
                    bounds[number + 1] - bounds[number],
                )
                & 0x7FFFFFFF
            )
            % <uint32_t>partitions
        )
    return chosen


cdef uint32_t hash_of(const unsigned char* data, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t position = 0
    cdef uint32_t multiplier = 0x5BD1E995
    cdef uint32_t result = <uint32_t>0x9747B28C ^ <uint32_t>length
    cdef uint32_t word
    while length - position >= 4:
        word = (
            data[position]
            | <uint32_t>data[position + 1] << 8
            | <uint32_t>data[position + 2] << 16
            | <uint32_t>data[position + 3] << 24
        )
        word *= multiplier
        word ^= word >> 24
        result = (result * multiplier) ^ (word * multiplier)
        position += 4
    if position < length:
        word = 0
        while length > position:
            length -= 1
            word = word << 8 | data[length]
        result = (result ^ word) * multiplier
    result = (result ^ (result >> 13)) * multiplier
    return result ^ (result >> 15)
