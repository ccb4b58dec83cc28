# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The beginning of lz4 frames, compiled. What it means is said in lz4_beginning.py."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

cdef uint32_t PLAIN_BLOCK = 0x80000000
DEF MATCH_BYTES_MIN = 4


cdef inline uint32_t little32(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24


cdef inline int64_t longer(
    const uint8_t** position, const uint8_t* end, int64_t length
) noexcept nogil:
    """A length of 15 goes on in the bytes that follow; -1 when these are cut off."""
    cdef uint8_t more
    if length != 15:
        return length
    while True:
        if position[0] >= end:
            return -1
        more = position[0][0]
        position[0] += 1
        length += more
        if more != 255:
            return length


cdef int64_t open_block(
    const uint8_t* position, const uint8_t* end, uint8_t* output, int64_t have, int64_t limit
) noexcept nogil:
    """How much there is behind the block, at most `limit`; -1 when it is damaged."""
    cdef uint8_t token
    cdef int64_t length, distance
    cdef const uint8_t* source
    while position < end:
        token = position[0]
        position += 1
        length = longer(&position, end, token >> 4)
        if length < 0 or length > end - position:
            return -1
        if length > limit - have:
            memcpy(output + have, position, limit - have)
            return limit
        memcpy(output + have, position, length)
        have += length
        position += length
        # The last sequence of a block has no match.
        if position == end:
            return have
        if end - position < 2:
            return -1
        distance = position[0] | <int64_t>position[1] << 8
        position += 2
        length = longer(&position, end, token & 15)
        if length < 0 or not 0 < distance <= have:
            return -1
        length = min(length + MATCH_BYTES_MIN, limit - have)
        source = output + have - distance
        if distance >= length:
            memcpy(output + have, source, length)
            have += length
        else:
            while length:
                output[have] = source[0]
                have += 1
                source += 1
                length -= 1
        if have == limit:
            return limit
    return -1


cdef int64_t open_frame(
    const uint8_t* position, const uint8_t* stop, uint8_t* output, int64_t limit, bint* is_all
) noexcept nogil:
    cdef uint8_t flags
    cdef uint32_t word
    cdef int64_t size, have = 0
    if stop - position < 7 or little32(position) != 0x184D2204:
        return -1
    flags = position[4]
    if flags >> 6 != 1:
        return -1
    size = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if stop - position < size:
        return -1
    position += size
    while have < limit:
        if stop - position < 4:
            return -1
        word = little32(position)
        position += 4
        if not word:
            is_all[0] = True
            return have
        size = word & ~PLAIN_BLOCK
        if size > stop - position:
            return -1
        if not word & PLAIN_BLOCK:
            have = open_block(position, position + size, output, have, limit)
            if have < 0:
                return -1
        else:
            memcpy(output + have, position, min(size, limit - have))
            have += min(size, limit - have)
        position += size + (4 if flags & 0x10 else 0)
        if position > stop:
            return -1
    return have


def read_lz4_beginning(data, int64_t limit):
    cdef const uint8_t[::1] view = data
    cdef int64_t size = view.shape[0]
    cdef bint is_all = False
    output = PyBytes_FromStringAndSize(NULL, limit)
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(output)
    cdef int64_t have = -1
    if size:
        have = open_frame(&view[0], &view[0] + size, start, limit, &is_all)
    if have < 0:
        return None
    return (output if have == limit else output[:have]), bool(is_all)
