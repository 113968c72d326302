# cython: language_level=3, boundscheck=False, wraparound=False
"""ListpackEditor: a listpack that is edited in place, as a list of Python's."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t

from streamd.engine.listpack cimport LP_END, LpValue, lp_bytes, lp_get, lp_put, lp_skip
from streamd.engine.listpack_edit cimport (
    lp_append, lp_append_int, lp_copy, lp_count, lp_delete, lp_end, lp_find, lp_first, lp_insert_int,
    lp_last, lp_new, lp_open, lp_place, lp_seek, lp_size,
)
from streamd.heap cimport free

__all__ = ["ListpackEditor"]


@cython.final
@cython.no_gc
cdef class ListpackEditor:
    """Elements are `bytes`; indexes count from the end if negative, and raise IndexError beyond."""

    cdef uint8_t *lp        # owned

    def __cinit__(self):
        self.lp = lp_new()
        if self.lp is NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.lp)

    cdef int become(self, uint8_t *lp) except -1:
        if lp is NULL:
            raise MemoryError
        self.lp = lp
        return 0

    cdef size_t place(self, int64_t index) except? 0:
        """Where an element is; where the end byte is, for the index behind the last one."""
        cdef const uint8_t *element
        if index >= 0 and <size_t>index == lp_count(self.lp):
            return lp_place(self.lp, lp_end(self.lp))
        element = lp_seek(self.lp, index)
        if element is NULL:
            raise IndexError(index)
        return lp_place(self.lp, element)

    def insert(self, int64_t index, bytes value not None):
        self.put(self.place(index), 0, value, 1)

    def insert_int(self, int64_t index, int64_t value):
        self.become(lp_insert_int(self.lp, self.place(index), value))

    def append(self, bytes value not None):
        self.become(lp_append(self.lp, <uint8_t *>PyBytes_AS_STRING(value), len(value)))

    def append_int(self, int64_t value):
        self.become(lp_append_int(self.lp, value))

    def replace(self, int64_t index, bytes value not None):
        cdef size_t place = self.place(index)
        self.put(place, lp_skip(self.lp + place) - (self.lp + place), value, 0)

    cdef int put(self, size_t place, size_t removed, bytes value, int64_t elements) except -1:
        """Write an element in place of `removed` bytes."""
        cdef const uint8_t *text = <uint8_t *>PyBytes_AS_STRING(value)
        self.become(lp_open(self.lp, place, removed, lp_size(text, len(value)), elements))
        lp_put(self.lp + place, text, len(value))
        return 0

    def insert_pair(self, int64_t index, bytes one not None, bytes two not None):
        """Two elements in one gap."""
        cdef size_t place = self.place(index)
        cdef const uint8_t *first = <uint8_t *>PyBytes_AS_STRING(one)
        cdef const uint8_t *second = <uint8_t *>PyBytes_AS_STRING(two)
        cdef uint8_t *p
        self.become(lp_open(self.lp, place, 0, lp_size(first, len(one)) + lp_size(second, len(two)), 2))
        p = lp_put(self.lp + place, first, len(one))
        lp_put(p, second, len(two))

    def delete(self, int64_t index, int count=1):
        self.become(lp_delete(self.lp, self.place(index), count))

    def find(self, bytes value not None, int skip=0):
        """The offset in bytes of the first such element; None: there is none."""
        cdef const uint8_t *found = lp_find(self.lp, <uint8_t *>PyBytes_AS_STRING(value), len(value), skip)
        return None if found is NULL else lp_place(self.lp, found)

    def place_of(self, int64_t index):
        """The offset in bytes of an element."""
        return self.place(index)

    def last(self):
        cdef const uint8_t *p = lp_last(self.lp)
        cdef LpValue value
        if p is NULL:
            return None
        lp_get(p, &value)
        return b"%d" % value.number if value.data is NULL else value.data[:value.length]

    def values(self):
        cdef const uint8_t *p = lp_first(self.lp)
        cdef LpValue value
        found = []
        while p[0] != LP_END:
            p = lp_get(p, &value)
            found.append(b"%d" % value.number if value.data is NULL else value.data[:value.length])
        return found

    def copy(self):
        cdef ListpackEditor copied = ListpackEditor()
        free(copied.lp)
        copied.lp = NULL
        copied.become(lp_copy(self.lp))
        return copied

    def encoded(self):
        return self.lp[:lp_bytes(self.lp)]

    def __len__(self):
        return lp_count(self.lp)
