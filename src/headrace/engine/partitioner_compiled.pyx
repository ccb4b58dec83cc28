# cython: language_level=3, boundscheck=False, wraparound=False
"""murmur2, compiled. What it means is said in partitioner.py."""

from libc.stdint cimport uint32_t


def murmur2(const unsigned char[::1] data not None):
    cdef Py_ssize_t length = data.shape[0]
    cdef Py_ssize_t position = 0
    cdef uint32_t multiplier = 0x5BD1E995
    cdef uint32_t result = 0x9747B28C ^ <uint32_t>length
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
