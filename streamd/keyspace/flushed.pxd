# cython: language_level=3
"""What is left of a flushed database. See flushed.pyx."""

cimport cython

from streamd.keyspace.key_index cimport KeyIndex


@cython.final
@cython.no_gc
cdef class Detached:
    cdef KeyIndex *shards                 # [shard_count], owned
    cdef Py_ssize_t shard_count           # those that have not been freed
    cdef readonly Py_ssize_t count        # records not yet released
