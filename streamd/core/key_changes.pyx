# cython: language_level=3, boundscheck=False, wraparound=False
"""KeyChanges: notifies capabilities of what happens to keys.

Databases report every change to one of these (`listener.KeyspaceListener`); a change that no capability wants costs
them one test of a flag.

    events         of the classes in `wanted` go to `publisher`
    touched keys   go to `observers`, if there are any: transactions (WATCH) and client-side caching
    removed keys   expired or evicted: a DEL is propagated, so that files and replicas need no clock of their own
    reduced values a part has expired: so is a command that removes it
"""

from streamd.core.capability cimport Capability
from streamd.core.client cimport ClientHost
from streamd.core.effects cimport EVERYWHERE, Effects

__all__ = ["KeyChanges"]


cdef class KeyChanges(KeyspaceListener):
    """The listener for all databases of a server."""

    def __init__(self, ClientHost host not None, Effects effects not None):
        self.host = host
        self.effects = effects
        self.observers = ()

    def observe(self, Capability capability not None, bint is_on):
        """Start or stop notifying a capability of changed keys."""
        if is_on != (capability in self.observers):
            observers = [each for each in self.observers if each is not capability]
            if is_on:
                observers.append(capability)
            self.observers = tuple(sorted(observers, key=rank))
            self.wants_touched = len(observers) > 0

    cpdef int key_event(self, object db, int kind, bytes event, bytes key) except -1:
        return self.publisher.key_event(db, kind, event, key)

    cpdef int key_touched(self, object db, bytes key) except -1:
        cdef Capability capability
        cdef bint by_server = key is self.removed
        cdef tuple observers = self.observers   # an observer may unregister meanwhile
        for capability in observers:
            capability.key_touched(db, key, by_server)
        self.removed = None
        return 0

    cpdef int key_removed(self, object db, bytes key) except -1:
        if self.wants_touched:
            self.removed = key
        return self.value_reduced(db, [b"DEL", key])

    cpdef int value_reduced(self, object db, list effect) except -1:
        self.effects.add(db.index, effect, EVERYWHERE)
        if self.host.executing is None:
            self.effects.finish_unit()  # outside any command: a unit of its own
        return 0

    cpdef int flushing(self, object db) except -1:
        cdef Capability capability
        cdef tuple observers = self.observers
        for capability in observers:
            capability.flushing(db)
        return 0

    cpdef int swapping(self, object db, object other) except -1:
        cdef Capability capability
        cdef tuple observers = self.observers
        for capability in observers:
            capability.swapping(db, other)
        return 0


def rank(Capability capability not None):
    """The position of an observer among the others."""
    return capability.observer_rank
