# cython: language_level=3
"""A window on a file, compiled: mapped pages. What it means is said in window.py."""

import os

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.errno cimport EAGAIN, errno
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, mmap, munmap
from posix.unistd cimport _SC_PAGESIZE, sysconf

cdef extern from "sys/stat.h" nogil:
    cdef struct stat_of "stat":
        long long st_size
    int fstat(int descriptor, stat_of *found)

cdef extern from "sys/mman.h" nogil:
    int mincore(void *start, size_t length, unsigned char *pages)

cdef Py_ssize_t _PAGE = sysconf(_SC_PAGESIZE)


cdef class Window:
    """The mapping lives as long as this, and this as long as any view on it."""

    cdef void *_start
    cdef Py_ssize_t _mapped
    cdef Py_ssize_t _skipped

    def __cinit__(self, int descriptor, Py_ssize_t length, long long position):
        self._skipped = position % _PAGE
        self._mapped = length + self._skipped
        cdef void *found = mmap(
            NULL, self._mapped, PROT_READ, MAP_SHARED, descriptor, position - self._skipped
        )
        if found == MAP_FAILED:
            self._start = NULL
            raise OSError(errno, os.strerror(errno))
        self._start = found

    cdef bint is_resident(self) except -1:
        cdef Py_ssize_t count = (self._mapped + _PAGE - 1) // _PAGE
        cdef bytearray pages = bytearray(count)
        cdef unsigned char *each = <unsigned char *>PyByteArray_AS_STRING(pages)
        if mincore(self._start, self._mapped, each):
            # Then nobody can tell.
            return True
        while count:
            count -= 1
            if not each[count] & 1:
                return False
        return True

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(
            view, self, <char *>self._start + self._skipped, self._mapped - self._skipped, 1, flags
        )

    def __dealloc__(self):
        if self._start != NULL:
            munmap(self._start, self._mapped)


def open_window(int descriptor, Py_ssize_t length, long long position, *, bint is_resident=False):
    cdef stat_of found
    if fstat(descriptor, &found):
        raise OSError(errno, os.strerror(errno))
    if position + length > found.st_size:
        length = <Py_ssize_t>(found.st_size - position)
    if length <= 0:
        return b""
    cdef Window window = Window(descriptor, length, position)
    if is_resident and not window.is_resident():
        raise BlockingIOError(EAGAIN, "not all of it is in memory")
    return memoryview(window)
