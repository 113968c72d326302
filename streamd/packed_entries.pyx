# cython: language_level=3, boundscheck=False, wraparound=False
"""Entries of a stream as bytes of a reply, with an index: what processes that read an archive hand to the server.

    data    *2 $15 1526919030474-0 *2 $1 a $1 1  *2 $15 1526919030474-1 ...    elements of an array, in RESP2 and RESP3
    index   ms, seq, end                         ms, seq, end                  three native 64-bit numbers for each

They ascend, or descend. streamd/arrow/entry_batches.pyx writes them; the server copies ranges of them into replies.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

__all__ = ["PackedEntries"]


@cython.final
cdef class PackedEntries:

    def __cinit__(self, index=b"", data=b""):
        self.index = bytes(index)       # aligned, wherever it was
        self.data = data
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.count = len(self.index) // sizeof(PackedRow)
        self.rows = <const PackedRow *><const char *>self.index
        self.text = <const char *>self.view.buf
        if self.count and self.rows[self.count - 1].end != <uint64_t>self.view.len:
            raise ValueError("the index is not that of these entries")

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    def id_at(self, Py_ssize_t at):
        return (<object>self.rows[at].ms << 64) | self.rows[at].seq

    def size(self, Py_ssize_t start, Py_ssize_t stop):
        return self.size_between(start, stop)
