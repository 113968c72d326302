# cython: language_level=3
"""Nodes that entries leave out of order are kept dense. See merging.pyx."""

from streamd.engine.ids cimport StreamID
from streamd.values.streams.stream cimport Stream


cdef void keep_dense(Stream stream, StreamID id) noexcept nogil      # an entry with this ID was deleted
