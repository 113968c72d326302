# cython: language_level=3, boundscheck=False, wraparound=False
"""Deadlines: the records of a database that expire, by time.

A binary heap whose elements carry the time, so that sifting does not touch the records. Each record knows its place in
the heap, where its time is, so that changing or removing an expiry is O(log n). No parent is later than its child.
"""

cimport cython

from streamd.heap cimport free, realloc
from streamd.keyspace.key_record cimport KeyRecord


cdef class Deadlines:
    """The part of a database that knows when its keys expire."""

    def __cinit__(self):
        self.deadlines = NULL

    def __dealloc__(self):
        free(self.deadlines)

    cdef void sift_up(self, Py_ssize_t at) noexcept:
        """Move the element at `at` towards the root until its parent is not later."""
        cdef Deadline moving = self.deadlines[at]
        cdef Py_ssize_t parent
        while at > 0:
            parent = (at - 1) >> 1
            if self.deadlines[parent].at_ms <= moving.at_ms:
                break
            self.deadlines[at] = self.deadlines[parent]
            self.deadlines[at].record.deadline_at = <int>at
            at = parent
        self.deadlines[at] = moving
        moving.record.deadline_at = <int>at

    cdef void sift_down(self, Py_ssize_t at) noexcept:
        """Move the element at `at` away from the root until no child is earlier."""
        cdef Deadline moving = self.deadlines[at]
        cdef Py_ssize_t child
        while True:
            child = 2 * at + 1
            if child >= self.deadline_count:
                break
            if child + 1 < self.deadline_count and self.deadlines[child + 1].at_ms < self.deadlines[child].at_ms:
                child += 1
            if self.deadlines[child].at_ms >= moving.at_ms:
                break
            self.deadlines[at] = self.deadlines[child]
            self.deadlines[at].record.deadline_at = <int>at
            at = child
        self.deadlines[at] = moving
        moving.record.deadline_at = <int>at

    cdef int set_deadline(self, KeyRecord *record, long long at_ms) except -1:
        """Let `record` expire at `at_ms`, whether it had an expiry before or not."""
        cdef Deadline *moved
        cdef Py_ssize_t room
        if record.deadline_at >= 0:
            self.deadline_sum += at_ms - self.deadlines[record.deadline_at].at_ms
            self.deadlines[record.deadline_at].at_ms = at_ms
            self.sift_up(record.deadline_at)
            self.sift_down(record.deadline_at)
            return 0
        if self.deadline_count == self.deadline_room:
            room = 16 if self.deadline_room == 0 else 2 * self.deadline_room
            moved = <Deadline *>realloc(self.deadlines, room * sizeof(Deadline))
            if moved is NULL:
                raise MemoryError()
            self.deadlines = moved
            self.deadline_room = room
        self.deadline_sum += at_ms
        self.deadlines[self.deadline_count].at_ms = at_ms
        self.deadlines[self.deadline_count].record = record
        self.deadline_count += 1
        self.sift_up(self.deadline_count - 1)
        return 0

    cdef void drop_deadline(self, KeyRecord *record) noexcept:
        """Let `record` never expire; it must have an expiry."""
        cdef Py_ssize_t hole = record.deadline_at
        cdef Py_ssize_t last = self.deadline_count - 1
        cdef Deadline *moved
        self.deadline_sum -= self.deadlines[hole].at_ms
        self.deadline_count = last
        if hole != last:
            self.deadlines[hole] = self.deadlines[last]
            self.deadlines[hole].record.deadline_at = <int>hole
            self.sift_up(hole)
            self.sift_down(hole)
        record.deadline_at = -1
        if self.deadline_room > 64 and last < self.deadline_room >> 2:
            moved = <Deadline *>realloc(self.deadlines, (self.deadline_room >> 1) * sizeof(Deadline))
            if moved is not NULL:  # when it cannot shrink, it stays
                self.deadlines = moved
                self.deadline_room >>= 1

    cdef object take_deadlines(self):
        """Remove all deadlines; return the memory of the heap, for LazyFree."""
        cdef Block block = Block.__new__(Block)
        block.data, block.size = self.deadlines, self.deadline_room * sizeof(Deadline)
        self.deadlines = NULL
        self.deadline_count = 0
        self.deadline_room = 0
        self.deadline_sum = 0
        return block


@cython.final
@cython.no_gc
cdef class Block:
    """A block of C memory for LazyFree to free: returning a large one to the system takes a while."""

    def __dealloc__(self):
        free(self.data)

    def free_effort(self):
        """About how many pages there are. O(1)."""
        return self.size >> 12

    def detach(self):
        return self

    def free(self):
        """Free it, without the interpreter's lock."""
        with nogil:
            free(self.data)
        self.data = NULL
