# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Runs of Produce requests, compiled. What they are is said in produce_run.py."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from crc32c import crc32c

from headrace.core import limits
from headrace.wire.kafka.produce_run import Part, Run

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
# ROUTES_MAX: a run has no more parts than there are routes.
DEF PARTS_MAX = 64

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


cdef struct Request:
    # Where its frame, and its batch, begins.
    Py_ssize_t start
    Py_ssize_t at
    Py_ssize_t size
    unsigned char part


cdef struct Reading:
    # The part of one route. What the pointers point to, the route keeps.
    const char *head
    const char *middle
    const char *tail
    Py_ssize_t middle_size
    Py_ssize_t tail_size
    bint is_flexible
    int64_t batch_bytes_max
    int64_t timestamp_ms_max
    int64_t producer_id
    int producer_epoch
    int32_t sequence
    Py_ssize_t count
    Py_ssize_t total
    char *to


cdef object _find(dict by_middle, list lengths, const unsigned char *base, Py_ssize_t start, Py_ssize_t end):
    """The route of the request there, or None."""
    cdef Py_ssize_t length
    cdef PyObject *found
    for each in lengths:
        length = each
        if start + 12 + length > end:
            break
        found = PyDict_GetItem(
            by_middle, PyBytes_FromStringAndSize(<const char *>base + start + 12, length)
        )
        if found != NULL and not memcmp(
            base + start + 4, PyBytes_AS_STRING((<object>found)[0]), 4
        ):
            return <object>found
    return None


cdef bint _find_batch(
    const unsigned char *base, Reading *part, Request *request, Py_ssize_t stop
) noexcept nogil:
    """Finds the bytes between the length and the tail."""
    cdef Py_ssize_t at = request.start + 12 + part.middle_size
    cdef Py_ssize_t batch_end = stop - part.tail_size
    cdef uint64_t length = 0
    cdef int shift = 0
    # A varint of five bytes, or an integer of four, and a batch behind it.
    if at + 5 > batch_end or memcmp(base + batch_end, part.tail, part.tail_size):
        return False
    if part.is_flexible:
        while shift < 35 and base[at] & 0x80:
            length |= <uint64_t>(base[at] & 0x7F) << shift
            shift += 7
            at += 1
        if shift == 35:
            return False
        length |= <uint64_t>base[at] << shift
        at += 1
        length -= 1
    else:
        length = <uint64_t><int64_t><int32_t>big32(base + at)
        at += 4
    request.at = at
    request.size = batch_end - at
    return length == <uint64_t>request.size and request.size >= HEADER_BYTES


cdef bint _takes(
    Reading *part, const unsigned char *batch, Py_ssize_t size, object whole
) except -1:
    """Whether the batch may follow; then it is counted."""
    cdef int64_t producer_id
    cdef int producer_epoch
    cdef int32_t sequence
    if size > part.batch_bytes_max or not _is_good(batch, size, whole):
        return False
    if (
        <int64_t>big64(batch + 27) > part.timestamp_ms_max
        or <int64_t>big64(batch + 35) > part.timestamp_ms_max
    ):
        return False
    producer_id = <int64_t>big64(batch + 43)
    producer_epoch = <int16_t>big16(batch + 51)
    sequence = <int32_t>big32(batch + 53)
    if producer_id >= 0 and sequence < 0:
        return False
    if part.count and (
        producer_id != part.producer_id
        or producer_epoch != part.producer_epoch
        or sequence != part.sequence
    ):
        return False
    part.producer_id = producer_id
    part.producer_epoch = producer_epoch
    part.sequence = sequence
    if sequence >= 0:
        part.sequence = <int32_t>((<uint32_t>sequence + big32(batch + 57)) & 0x7FFFFFFF)
    part.count += 1
    part.total += size
    return True


def read_run(data, Py_ssize_t start, routes, bounds_of, Py_ssize_t count_max):
    cdef const unsigned char[::1] view = data
    cdef Py_ssize_t end = view.shape[0]
    # Each takes more than its batch's header.
    count_max = min(count_max, (end - start) // HEADER_BYTES)
    if count_max < 1:
        return None
    cdef Request *requests = <Request *>PyMem_Malloc(count_max * sizeof(Request))
    if requests == NULL:
        raise MemoryError
    try:
        return _read_run(data, &view[0], start, end, routes, bounds_of, count_max, requests)
    finally:
        PyMem_Free(requests)


cdef object _read_run(
    object data,
    const unsigned char *base,
    Py_ssize_t start,
    Py_ssize_t end,
    object routes,
    object bounds_of,
    Py_ssize_t count_max,
    Request *requests,
):
    cdef dict by_middle = routes.by_middle
    cdef list lengths = routes.lengths
    cdef list found = []
    cdef list targets = []
    cdef Reading parts[PARTS_MAX]
    cdef Reading *part = NULL
    cdef Request *request
    cdef Py_ssize_t count = 0, stop
    cdef int known = 0, which = 0
    cdef bytes head, middle, tail
    while count < count_max and end - start >= 4:
        stop = start + 4 + <int32_t>big32(base + start)
        if stop > end or stop < start + 12:
            break
        # Most often it is that of the request before.
        if part == NULL or (
            start + 12 + part.middle_size > end
            or memcmp(base + start + 4, part.head, 4)
            or memcmp(base + start + 12, part.middle, part.middle_size)
        ):
            route = _find(by_middle, lengths, base, start, end)
            if route is None:
                break
            which = 0
            while which < known and found[which] is not route:
                which += 1
            part = &parts[which]
            if which == known:
                if known == PARTS_MAX:
                    break
                bounds = bounds_of(route)
                if bounds is None:
                    break
                head, middle, tail = route[0], route[1], route[2]
                part.head = PyBytes_AS_STRING(head)
                part.middle = PyBytes_AS_STRING(middle)
                part.tail = PyBytes_AS_STRING(tail)
                part.middle_size = len(middle)
                part.tail_size = len(tail)
                part.is_flexible = route[3]
                part.batch_bytes_max = bounds[0]
                part.timestamp_ms_max = bounds[1]
                part.count = part.total = 0
        request = &requests[count]
        request.start = start
        request.part = which
        if not _find_batch(base, part, request, stop):
            break
        if not _takes(
            part,
            base + request.at,
            request.size,
            data[request.at : request.at + request.size]
            if request.size > SHORT_BYTES_MAX or not _has_crc
            else None,
        ):
            break
        if which == known:
            found.append(route)
            targets.append(bounds[2])
            known += 1
        count += 1
        start = stop
    if not count:
        return None
    order, correlation_ids = _ids_of(base, requests, count)
    made = _parts_of(data, base, found, targets, parts, requests, count)
    # What its own constructor does, at half the cost.
    return tuple.__new__(Run, (start, order, correlation_ids, made))


cdef tuple _ids_of(const unsigned char *base, Request *requests, Py_ssize_t count):
    cdef bytes order = PyBytes_FromStringAndSize(NULL, count)
    cdef bytes correlation_ids = PyBytes_FromStringAndSize(NULL, 4 * count)
    cdef char *which = PyBytes_AS_STRING(order)
    cdef char *ids = PyBytes_AS_STRING(correlation_ids)
    cdef Py_ssize_t number
    for number in range(count):
        which[number] = requests[number].part
        memcpy(ids + 4 * number, base + requests[number].start + 8, 4)
    return order, correlation_ids


cdef list _parts_of(
    object data,
    const unsigned char *base,
    list routes,
    list targets,
    Reading *parts,
    Request *requests,
    Py_ssize_t count,
):
    cdef list made = []
    cdef Request *request
    cdef Reading *part
    cdef Py_ssize_t number
    for number in range(len(routes)):
        part = &parts[number]
        batches = None
        if part.count > 1:
            batches = PyByteArray_FromStringAndSize(NULL, part.total)
            part.to = PyByteArray_AS_STRING(batches)
        made.append(batches)
    for number in range(count):
        request = &requests[number]
        part = &parts[request.part]
        if part.count == 1:
            made[request.part] = data[request.at : request.at + request.size]
        else:
            memcpy(part.to, base + request.at, request.size)
            part.to += request.size
    return [
        tuple.__new__(Part, (routes[number], parts[number].count, made[number], targets[number]))
        for number in range(len(routes))
    ]


def write_answers(answers, run):
    cdef bytes order = run[1]
    cdef bytes correlation_ids = run[2]
    cdef list parts = run[3]
    cdef Py_ssize_t count = len(order), number, size
    cdef Py_ssize_t total = 0
    cdef const char *templates[PARTS_MAX]
    cdef Py_ssize_t sizes[PARTS_MAX]
    cdef Py_ssize_t offsets_at[PARTS_MAX]
    cdef const unsigned char *places[PARTS_MAX]
    cdef const unsigned char[::1] view
    cdef int which
    # They keep what the pointers point to.
    cdef list kept = []
    for number in range(len(parts)):
        template, offset_at = answers[number]
        templates[number] = PyBytes_AS_STRING(template)
        sizes[number] = len(template)
        offsets_at[number] = offset_at
        view = parts[number][2]
        places[number] = &view[0]
        kept.append(template)
        total += sizes[number] * <Py_ssize_t>parts[number][1]
    cdef bytes written = PyBytes_FromStringAndSize(NULL, total)
    cdef char *to = PyBytes_AS_STRING(written)
    cdef const char *ids = PyBytes_AS_STRING(correlation_ids)
    cdef const unsigned char *of_requests = <const unsigned char *>PyBytes_AS_STRING(order)
    for number in range(count):
        which = of_requests[number]
        size = sizes[which]
        memcpy(to, templates[which], size)
        memcpy(to + 4, ids + 4 * number, 4)
        memcpy(to + offsets_at[which], places[which], 8)
        places[which] += LENGTH_OVERHEAD + <int32_t>big32(places[which] + 8)
        to += size
    return written
