# cython: language_level=3, boundscheck=False, wraparound=False
"""TimedValues: the values of a database that have something to do at a time of their own, by time.

A hash whose fields expire is such a value. Its class is derived from TimedValue, its type says when it is due
(ValueType.due) and what it does then (ValueType.act); the database keeps a value here while it is stored and due some
time. A binary heap, as for the deadlines of keys: each value knows its place, and is moved or dropped in O(log n).
"""

cimport cython
from cpython.object cimport PyObject

from streamd.heap cimport count_object, free, realloc

__all__ = []

cdef enum:
    LEAST_ROOM = 16


@cython.no_gc
cdef class TimedValue:
    """The base of values that may be due at a time of their own."""


@cython.final
@cython.no_gc
cdef class TimedValues:
    """Values by time."""

    def __dealloc__(self):
        count_object(-self.counted)
        free(self.heap)

    cdef int put(self, TimedValue value, bytes key, long long at_ms) except -1:
        """Let a value that is stored under `key` be due at a Unix time in ms, whether it was due before or not."""
        cdef Timed *moved
        cdef Py_ssize_t room, at
        if value.timed_place == 0:
            if self.count == self.room:
                room = LEAST_ROOM if self.room == 0 else 2 * self.room
                moved = <Timed *>realloc(self.heap, room * sizeof(Timed))
                if moved is NULL:
                    raise MemoryError("no memory for the times of values")
                self.heap = moved
                self.room = room
            value.timed_key = key
            self.counted += timed_size(value)
            count_object(timed_size(value))
            self.place(self.count, Timed(at_ms, <PyObject *>value))
            self.count += 1
            self.sift_up(self.count - 1)
            return 0
        at = value.timed_place - 1
        self.heap[at].at_ms = at_ms
        self.sift_up(at)
        self.sift_down(value.timed_place - 1)
        return 0

    cdef void drop(self, TimedValue value) noexcept:
        """Forget a value."""
        cdef Py_ssize_t hole
        cdef Timed *moved
        if value.timed_place == 0:
            return
        hole = value.timed_place - 1
        self.count -= 1
        self.counted -= timed_size(value)
        count_object(-timed_size(value))
        value.timed_place = 0
        value.timed_key = None
        if hole != self.count:
            self.place(hole, self.heap[self.count])
            self.sift_up(hole)
            self.sift_down(hole)
        if self.room > 4 * LEAST_ROOM and self.count < self.room >> 2:
            moved = <Timed *>realloc(self.heap, (self.room >> 1) * sizeof(Timed))
            if moved is not NULL:  # when it cannot shrink, it stays
                self.heap = moved
                self.room >>= 1

    cdef void place(self, Py_ssize_t at, Timed timed) noexcept:
        self.heap[at] = timed
        (<TimedValue>timed.value).timed_place = <unsigned int>(at + 1)

    cdef void sift_up(self, Py_ssize_t at) noexcept:
        """Move the element at `at` towards the root until its parent is not later."""
        cdef Timed moving = self.heap[at]
        cdef Py_ssize_t parent
        while at > 0:
            parent = (at - 1) >> 1
            if self.heap[parent].at_ms <= moving.at_ms:
                break
            self.place(at, self.heap[parent])
            at = parent
        self.place(at, moving)

    cdef void sift_down(self, Py_ssize_t at) noexcept:
        """Move the element at `at` away from the root until no child is earlier."""
        cdef Timed moving = self.heap[at]
        cdef Py_ssize_t child
        while True:
            child = 2 * at + 1
            if child >= self.count:
                break
            if child + 1 < self.count and self.heap[child + 1].at_ms < self.heap[child].at_ms:
                child += 1
            if self.heap[child].at_ms >= moving.at_ms:
                break
            self.place(at, self.heap[child])
            at = child
        self.place(at, moving)

    def check_invariants(self):
        """Walk everything and assert order and places."""
        cdef Py_ssize_t at
        assert self.count <= self.room
        for at in range(self.count):
            assert (<TimedValue>self.heap[at].value).timed_place == <unsigned int>(at + 1)
            assert (<TimedValue>self.heap[at].value).timed_key is not None
            assert self.heap[(at - 1) >> 1 if at else 0].at_ms <= self.heap[at].at_ms, "no parent is later"
