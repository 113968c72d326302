# cython: language_level=3
"""What databases report. See listener.pyx."""


# Classes of keyspace events: each event belongs to one. What a listener wants is a set of them.
cdef enum EventClass:
    EVENT_GENERIC = 1 << 0        # commands on keys of any type
    EVENT_STRING = 1 << 1
    EVENT_STREAM = 1 << 2
    EVENT_EXPIRED = 1 << 3
    EVENT_EVICTED = 1 << 4
    EVENT_KEY_MISS = 1 << 5       # a missing key was read
    EVENT_NEW = 1 << 6            # a key was added
    EVENT_OVERWRITTEN = 1 << 7
    EVENT_TYPE_CHANGED = 1 << 8
    EVENT_LIST = 1 << 9
    EVENT_SET = 1 << 10
    EVENT_HASH = 1 << 11
    EVENT_SORTED_SET = 1 << 12


cdef class KeyspaceListener:
    # Notified by databases, and by handlers through them, of changes of keys. The base class wants nothing.
    cdef public int wanted                # set of EventClass whose events are reported
    cdef public bint wants_touched        # whether changed keys are reported (WATCH, client-side caching)
    cpdef int key_event(self, object db, int kind, bytes event, bytes key) except -1
    cpdef int key_touched(self, object db, bytes key) except -1       # its value or expiry changed, or it was removed
    cpdef int key_removed(self, object db, bytes key) except -1       # by the server itself: expired or evicted
    cpdef int value_reduced(self, object db, list effect) except -1   # ... a part of a value; by the command `effect`
    cpdef int flushing(self, object db) except -1                     # all keys are about to be removed
    cpdef int swapping(self, object db, object other) except -1       # two databases are about to be exchanged
