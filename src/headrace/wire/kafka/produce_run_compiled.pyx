# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Runs of Produce requests, compiled. What they are is said in produce_run.py."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from crc32c import crc32c

from headrace.core import limits
from headrace.wire.kafka.produce_run import Run

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static uint16_t big16(const unsigned char *at) { return (uint16_t)(at[0] << 8 | at[1]); }
    static uint32_t big32(const unsigned char *at) {
        uint32_t v; memcpy(&v, at, 4);
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        v = __builtin_bswap32(v);
    #endif
        return v;
    }
    static uint64_t big64(const unsigned char *at) {
        return (uint64_t)big32(at) << 32 | big32(at + 4);
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    static int has_crc(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("sse4.2") != 0;
    }
    __attribute__((target("sse4.2")))
    static uint32_t short_crc(const unsigned char *at, size_t size) {
        uint64_t crc = 0xFFFFFFFF, word;
        for (; size >= 8; size -= 8, at += 8) {
            memcpy(&word, at, 8);
            crc = __builtin_ia32_crc32di(crc, word);
        }
        for (; size; size--, at++)
            crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
        return ~(uint32_t)crc;
    }
    #else
    static int has_crc(void) { return 0; }
    static uint32_t short_crc(const unsigned char *at, size_t size) { return 0; }
    #endif
    """
    int16_t big16(const unsigned char *at) nogil
    uint32_t big32(const unsigned char *at) nogil
    uint64_t big64(const unsigned char *at) nogil
    int has_crc() nogil
    uint32_t short_crc(const unsigned char *at, size_t size) nogil

DEF HEADER_BYTES = 61
DEF LENGTH_OVERHEAD = 12
DEF RECORD_BYTES_MIN = 7
# Append time, transactional, control, delete horizon.
DEF UNUSUAL = 0x78
# Beyond this the package, which works on three parts at once, is faster.
DEF SHORT_BYTES_MAX = 2048

cdef bint _has_crc = has_crc()
cdef int64_t _LENGTH_MAX = limits.BATCH_BYTES_MAX - LENGTH_OVERHEAD
cdef int64_t _COUNT_MAX = limits.BATCH_RECORDS_MAX


cdef bint _is_good(const unsigned char *batch, Py_ssize_t size, object whole) except -1:
    """A batch that fills its bytes, is what `check_batch` takes, and is nothing that
    the ordinary way would refuse."""
    cdef int64_t length = <int32_t>big32(batch + 8)
    cdef int attributes = big16(batch + 21)
    cdef int64_t last_delta = <int32_t>big32(batch + 23)
    cdef int64_t count = <int32_t>big32(batch + 57)
    cdef uint32_t crc = big32(batch + 17)
    if length + LENGTH_OVERHEAD != size or batch[16] != 2 or length > _LENGTH_MAX:
        return False
    if attributes & UNUSUAL or attributes & 7 > 4 or <int64_t>big64(batch) < 0:
        return False
    if not 0 < count <= _COUNT_MAX or count != last_delta + 1:
        return False
    if <int64_t>big64(batch) > 0x7FFFFFFFFFFFFFFF - last_delta:
        return False
    if not attributes & 7 and count * RECORD_BYTES_MIN > size - HEADER_BYTES:
        return False
    if _has_crc and size <= SHORT_BYTES_MAX:
        return short_crc(batch + 21, size - 21) == crc
    return <uint32_t>crc32c(whole[21:]) == crc


def read_run(
    data,
    Py_ssize_t start,
    route,
    int64_t batch_bytes_max,
    Py_ssize_t count_max,
    int64_t timestamp_ms_max=0x7FFFFFFFFFFFFFFF,
):
    cdef const unsigned char[::1] view = data
    cdef Py_ssize_t end = view.shape[0]
    if end - start < 4:
        return None
    cdef const unsigned char *base = &view[0]
    cdef bytes head = route[0]
    cdef bytes middle = route[1]
    cdef bytes tail = route[2]
    cdef bint is_flexible = route[3]
    cdef const char *head_bytes = PyBytes_AS_STRING(head)
    cdef const char *middle_bytes = PyBytes_AS_STRING(middle)
    cdef const char *tail_bytes = PyBytes_AS_STRING(tail)
    cdef Py_ssize_t middle_size = len(middle)
    cdef Py_ssize_t tail_size = len(tail)
    cdef Py_ssize_t stop, at, batch_end, size
    cdef Py_ssize_t count = 0, total = 0, first_at = 0, first_size = 0
    cdef Py_ssize_t begin = start
    cdef uint64_t length
    cdef int shift
    cdef int64_t producer_id = -1
    cdef int producer_epoch = -1
    cdef int32_t sequence = -1, this_sequence
    while count < count_max and end - start >= 4:
        stop = start + 4 + <int32_t>big32(base + start)
        at = start + 12 + middle_size
        if at >= stop or stop > end:
            break
        if memcmp(base + start + 4, head_bytes, 4) or memcmp(
            base + start + 12, middle_bytes, middle_size
        ):
            break
        batch_end = stop - tail_size
        if at + 5 > batch_end or memcmp(base + batch_end, tail_bytes, tail_size):
            break
        if is_flexible:
            length = 0
            shift = 0
            while shift < 35 and base[at] & 0x80:
                length |= <uint64_t>(base[at] & 0x7F) << shift
                shift += 7
                at += 1
            if shift == 35:
                break
            length |= <uint64_t>base[at] << shift
            at += 1
            length -= 1
        else:
            length = <uint64_t><int64_t><int32_t>big32(base + at)
            at += 4
        size = batch_end - at
        if length != <uint64_t>size or size < HEADER_BYTES or size > batch_bytes_max:
            break
        if not _is_good(base + at, size, data[at:batch_end] if size > SHORT_BYTES_MAX or not _has_crc else None):
            break
        if (
            <int64_t>big64(base + at + 27) > timestamp_ms_max
            or <int64_t>big64(base + at + 35) > timestamp_ms_max
        ):
            break
        this_sequence = <int32_t>big32(base + at + 53)
        if <int64_t>big64(base + at + 43) >= 0 and this_sequence < 0:
            break
        if count and (
            producer_id != <int64_t>big64(base + at + 43)
            or producer_epoch != <int16_t>big16(base + at + 51)
            or sequence != this_sequence
        ):
            break
        producer_id = <int64_t>big64(base + at + 43)
        producer_epoch = <int16_t>big16(base + at + 51)
        sequence = this_sequence
        if sequence >= 0:
            sequence = <int32_t>((<uint32_t>sequence + big32(base + at + 57)) & 0x7FFFFFFF)
        if not count:
            first_at, first_size = at, size
        count += 1
        total += size
        start = stop
    if not count:
        return None
    cdef bytes correlation_ids = PyBytes_FromStringAndSize(NULL, 4 * count)
    cdef char *ids = PyBytes_AS_STRING(correlation_ids)
    if count == 1:
        memcpy(ids, base + begin + 8, 4)
        return Run(start, correlation_ids, data[first_at : first_at + first_size])
    batches = PyByteArray_FromStringAndSize(NULL, total)
    cdef char *to = PyByteArray_AS_STRING(batches)
    cdef Py_ssize_t number
    for number in range(count):
        memcpy(ids + 4 * number, base + begin + 8, 4)
        stop = begin + 4 + <int32_t>big32(base + begin)
        at = begin + 12 + middle_size
        if is_flexible:
            while base[at] & 0x80:
                at += 1
            at += 1
        else:
            at += 4
        size = stop - tail_size - at
        memcpy(to, base + at, size)
        to += size
        begin = stop
    return Run(start, correlation_ids, batches)


def write_answers(answer, bytes correlation_ids, batches):
    cdef const unsigned char[::1] view = batches
    cdef bytes template = answer[0]
    cdef Py_ssize_t offset_at = answer[1]
    cdef Py_ssize_t size = len(template)
    cdef Py_ssize_t count = len(correlation_ids) // 4
    cdef const char *each = PyBytes_AS_STRING(template)
    cdef const char *ids = PyBytes_AS_STRING(correlation_ids)
    cdef bytes answers = PyBytes_FromStringAndSize(NULL, size * count)
    cdef char *to = PyBytes_AS_STRING(answers)
    cdef Py_ssize_t number, at = 0
    for number in range(count):
        memcpy(to, each, size)
        memcpy(to + 4, ids + 4 * number, 4)
        memcpy(to + offset_at, &view[at], 8)
        at += LENGTH_OVERHEAD + <int32_t>big32(&view[at + 8])
        to += size
    return answers
