# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The numbers of a record, for all compiled readers of records."""

from libc.stdint cimport uint8_t, uint64_t


cdef inline const uint8_t* read_number(
    const uint8_t* position, const uint8_t* end, int bits, uint64_t* number
) noexcept nogil:
    """Reads a number without undoing the zigzag; NULL when it is none."""
    cdef uint64_t raw = 0
    cdef uint64_t byte
    cdef int shift = 0
    # Most have one byte or two.
    if end - position >= 2:
        if position[0] < 0x80:
            number[0] = position[0]
            return position + 1
        if position[1] < 0x80:
            number[0] = (<uint64_t>position[1] << 7) | (position[0] & 0x7F)
            return position + 2
    while shift < bits:
        if position >= end:
            return NULL
        byte = position[0]
        position += 1
        if shift == 63 and byte > 1:
            return NULL
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if bits == 32 and raw >> 32:
                return NULL
            number[0] = raw
            return position
        shift += 7
    return NULL
