# cython: language_level=3
"""What commands have changed, for files and replicas. See effects.pyx."""

cimport cython

from streamd.core.client cimport ClientHost
from streamd.core.context cimport Context


cdef enum Destination:
    EVERYWHERE              # files and replicas
    REPLICAS                # replicas alone: nothing has changed here


@cython.final
@cython.freelist(256)
cdef class Effect:
    cdef readonly int db_index
    cdef readonly list args               # a whole request
    cdef readonly Destination destination


cdef class EffectSink:
    cpdef int take_effects(self, list effects, long long now_ms) except -1


@cython.final
cdef class Effects:
    cdef ClientHost host
    cdef Context context
    cdef list pending                     # of Effect: those of the unit that is being run
    cdef bint has_for_replicas            # some of them are for replicas alone
    cdef readonly tuple files             # of EffectSink: get what goes everywhere
    cdef readonly tuple replicas          # of EffectSink: get all
    cdef bint is_unflushed                # some have been handed over since the last turn

    cdef int add(self, int db_index, list args, Destination destination) except -1
    cdef int finish_unit(self) except -1
    cdef int hand_over(self, list effects) except -1
