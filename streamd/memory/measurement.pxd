# cython: language_level=3
"""What memory is used for. See measurement.pyx."""

cimport cython

from streamd.core.capability cimport Capability
from streamd.core.dispatch cimport Dispatcher
from streamd.core.info cimport ReadNumbers
from streamd.memory.eviction cimport Eviction


@cython.final
cdef class MemoryReport:
    cdef public long long used            # everything that is counted
    cdef public long long peak            # the maximum ever used
    cdef public long long peak_ms         # when that was, as Unix time
    cdef public long long startup         # used before there were any data or clients
    cdef public long long resident        # what the process holds
    cdef public long long clients         # connections with their buffers, without replicas
    cdef public long long replicas        # those of replicas, and the stream that is kept for them alone
    cdef public long long lookups         # structures that find keys, and those that expire
    cdef public long long keys            # the number of keys of all databases
    cdef public long long uncounted       # what maxmemory does not count
    cdef public long long scripts         # code of scripts,
    cdef public long long functions       # ... of functions,
    cdef public long long interpreters    # ... and those that run them, with what was compiled

    cdef long long find_overhead(self) noexcept
    cdef long long find_dataset(self) noexcept
    cdef double find_dataset_percent(self) noexcept
    cdef double find_fragmentation(self) noexcept


cdef class Measurement(Capability):
    cdef Eviction eviction
    cdef Dispatcher dispatcher
    cdef list databases
    cdef object code_owner          # what `read_code` is called with
    cdef ReadNumbers read_code      # NULL: there is no code
    cdef long long held             # resident memory when the process was last looked at,
    cdef long long looked_us        # ... and when that was, monotonic

    cdef int count_code(self, object owner, ReadNumbers read) except -1
    cpdef MemoryReport measure(self)
    cpdef long long resident(self) except -1
