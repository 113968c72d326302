# cython: language_level=3
"""Reading lists out of RDB streams. See loading.pyx."""

cimport cython

from streamd.persistence.rdb.value_loader cimport ValueLoader
from streamd.values.lists.list_value cimport List


@cython.final
cdef class ListLoader(ValueLoader):
    cdef object context                       # the server's; None: built-in settings

    cdef int get_node(self, List value, int rdb_type) except -1
