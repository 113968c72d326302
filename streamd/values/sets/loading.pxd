# cython: language_level=3
"""Sets in RDB streams. See loading.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from streamd.persistence.rdb.value_loader cimport ValueLoader
from streamd.persistence.rdb.write cimport RdbWriter
from streamd.values.sets.set_limits cimport SetLimits
from streamd.values.sets.set_value cimport Set


@cython.final
cdef class SetLoader(ValueLoader):
    cdef SetLimits limits
    cdef Set get_intset(self)
    cdef Set get_packed(self)
    cdef Set new_for(self, uint64_t count)


cdef int set_rdb_type(Set set, int version) except -1
cdef int put_set(RdbWriter writer, Set set) except -1
