# cython: language_level=3, boundscheck=False, wraparound=False
"""Filling bytes, compiled. What it means is said in filling.py."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char* memory, Py_ssize_t size, int flags)
    const int PyBUF_WRITE
    PyObject* make_bytes "PyBytes_FromStringAndSize"(const char* text, Py_ssize_t size) except NULL
    char* start_of "PyBytes_AS_STRING"(PyObject* made)
    int resize "_PyBytes_Resize"(PyObject** made, Py_ssize_t size) except -1

    ctypedef struct Managed "_PyManagedBufferObject":
        Py_ssize_t exports

    ctypedef struct View "PyMemoryViewObject":
        Managed* mbuf


def filled(Py_ssize_t capacity, fill):
    if capacity < 0:
        raise ValueError("negative count")
    cdef PyObject* made = make_bytes(NULL, capacity)
    cdef Py_ssize_t size
    try:
        room = PyMemoryView_FromMemory(start_of(made), capacity, PyBUF_WRITE)
        try:
            size = fill(room)
        finally:
            try:
                # Views of it count here, whatever else holds it is refused by `release`.
                if (<View*>room).mbuf.exports > 1:
                    raise BufferError("the room is kept")
                room.release()
            except BufferError:
                # It is kept somewhere, so its memory must stay.
                made = NULL
                raise
        if not 0 <= size <= capacity:
            raise ValueError(f"{size} of {capacity} bytes")
        if size != capacity:
            # Where that fails, it is freed and NULL.
            resize(&made, size)
        return <object>made
    finally:
        Py_XDECREF(made)
