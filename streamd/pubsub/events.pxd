# cython: language_level=3
"""Keyspace events as messages. See events.pyx."""

from streamd.core.capability cimport Capability
from streamd.core.key_changes cimport KeyChanges
from streamd.pubsub.hub cimport Hub


cdef class KeyEvents(Capability):
    cdef object config
    cdef Hub hub
    cdef KeyChanges key_changes
    cdef bint by_key                      # events are published by key: `__keyspace@0__:key`
    cdef bint by_event                    # ... by event: `__keyevent@0__:xadd`
