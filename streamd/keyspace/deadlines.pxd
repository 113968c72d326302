# cython: language_level=3
"""When keys expire. See deadlines.pyx."""

cimport cython

from streamd.keyspace.key_record cimport KeyRecord


cdef extern from *:
    """
    typedef __int128 streamd_wide;
    """
    ctypedef long long wide "streamd_wide"     # 128 bits: a sum of times that a database of any size has room for


cdef struct Deadline:
    long long at_ms
    KeyRecord *record                         # borrowed: its shard owns it


cdef class Deadlines:
    cdef Deadline *deadlines              # binary heap, earliest first; owned
    cdef Py_ssize_t deadline_count
    cdef Py_ssize_t deadline_room         # allocated, in elements
    cdef wide deadline_sum                # of all deadlines, for the average

    cdef int set_deadline(self, KeyRecord *record, long long at_ms) except -1
    cdef void drop_deadline(self, KeyRecord *record) noexcept
    cdef void sift_up(self, Py_ssize_t at) noexcept
    cdef void sift_down(self, Py_ssize_t at) noexcept
    cdef object take_deadlines(self)


cdef inline long long expiry_of(Deadlines db, KeyRecord *record) noexcept:
    """When a record of a database expires, as Unix time in ms; -1: never."""
    return -1 if record.deadline_at < 0 else db.deadlines[record.deadline_at].at_ms


cdef inline bint is_due(Deadlines db, KeyRecord *record, long long now_ms) noexcept:
    """Whether the time of a record of a database has come."""
    return record.deadline_at >= 0 and db.deadlines[record.deadline_at].at_ms < now_ms


@cython.final
@cython.no_gc
cdef class Block:
    cdef void *data    # owned
    cdef size_t size   # bytes
