# cython: language_level=3
"""Reading sorted sets out of RDB streams. See loading.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from streamd.persistence.rdb.value_loader cimport ValueLoader
from streamd.values.sorted_sets.sorted_set cimport SortedSet
from streamd.values.sorted_sets.sorted_set_limits cimport SortedSetLimits


@cython.final
cdef class SortedSetLoader(ValueLoader):
    cdef SortedSetLimits limits

    cdef SortedSet read_packed(self, uint8_t *lp, int64_t offset)
    cdef int read_member(self, SortedSet set, int rdb_type, size_t *longest) except -1
    cdef int read_text_score(self, double *score) except -1
    cdef SortedSet choose_form(self, SortedSet set, size_t longest)
