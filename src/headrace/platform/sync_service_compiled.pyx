# cython: language_level=3
"""A thread that syncs, compiled: without Python's lock. What it does is said in sync_service.py."""

from libc.errno cimport EINTR, errno
from posix.unistd cimport read, write

cdef extern from *:
    """
    #include <fcntl.h>
    #include <unistd.h>
    static int sync_number(int number) {
    #if defined(F_FULLFSYNC)
        return fcntl(number, F_FULLFSYNC);
    #elif defined(__linux__)
        return fdatasync(number);
    #else
        return fsync(number);
    #endif
    }
    """
    int sync_number(int number) nogil

cdef struct pair:
    int tag
    int number


cdef void _serve(int jobs, int results) noexcept nogil:
    cdef pair job
    while True:
        # A pipe gives and takes so few bytes as a whole.
        if read(jobs, &job, sizeof(job)) != sizeof(job):
            if errno == EINTR:
                continue
            return
        if job.number == -1:
            return
        job.number = errno if sync_number(job.number) else 0
        while write(results, &job, sizeof(job)) != sizeof(job):
            if errno != EINTR:
                return


def serve_syncs(int jobs, int results):
    with nogil:
        _serve(jobs, results)
