# cython: language_level=3
"""KeyspaceListener: what databases report about their keys."""

__all__ = ["EVENTS", "KeyspaceListener"]

EVENTS = {
    "generic": EVENT_GENERIC, "string": EVENT_STRING, "stream": EVENT_STREAM, "expired": EVENT_EXPIRED,
    "evicted": EVENT_EVICTED, "key-miss": EVENT_KEY_MISS, "new": EVENT_NEW, "overwritten": EVENT_OVERWRITTEN,
    "type-changed": EVENT_TYPE_CHANGED, "list": EVENT_LIST, "set": EVENT_SET, "hash": EVENT_HASH,
    "sorted-set": EVENT_SORTED_SET,
}  # fmt: skip
"""The classes of keyspace events, for Python."""


cdef class KeyspaceListener:
    """Notified by databases of changes of keys. This base class wants nothing; one that acts: core/key_changes.pyx."""

    cpdef int key_event(self, object db, int kind, bytes event, bytes key) except -1:
        return 0

    cpdef int key_touched(self, object db, bytes key) except -1:
        return 0

    cpdef int key_removed(self, object db, bytes key) except -1:
        return 0

    cpdef int value_reduced(self, object db, list effect) except -1:
        return 0

    cpdef int flushing(self, object db) except -1:
        return 0

    cpdef int swapping(self, object db, object other) except -1:
        return 0
