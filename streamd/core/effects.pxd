# cython: language_level=3
"""The changes made by commands, for files and replicas. See effects.pyx."""

cimport cython

from streamd.core.client cimport ClientHost
from streamd.core.context cimport Context


cdef enum Destination:
    EVERYWHERE              # files and replicas
    REPLICAS                # replicas only
    FILES                   # files only
    NOWHERE


@cython.final
@cython.freelist(256)
cdef class Effect:
    cdef readonly int db_index
    cdef readonly list args               # a complete request
    cdef readonly Destination destination


cdef class EffectSink:
    cdef public long long offset          # the replication offset after what it has received

    cpdef int take_effects(self, list effects, long long now_ms) except -1


@cython.final
cdef class Effects:
    cdef ClientHost host
    cdef Context context
    cdef list pending                     # of Effect: those of the running unit
    cdef bint has_redirected              # some of them do not go everywhere
    cdef readonly tuple files             # of EffectSink: receive effects that go everywhere
    cdef readonly tuple replicas          # of EffectSink: receive all effects
    cdef public EffectSink counter        # whose offset is the server's replication offset; None: nothing is counted
    cdef public long long data_offset     # the replication offset after the last change of data
    cdef bint is_unflushed                # some were passed to the sinks since the last turn

    cdef int add(self, int db_index, list args, Destination destination) except -1
    cdef int redirect(self, Py_ssize_t first, Destination destination) except -1
    cdef int discard(self) except -1
    cdef int finish_unit(self) except -1
    cdef int hand_over(self, list effects) except -1
