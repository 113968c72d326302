# cython: language_level=3
"""Appending to a stream what the server moves there. See appending.pyx."""

from streamd.core.context cimport Context


cdef int append(Context ctx, bytes key, list words) except -1      # CommandError if that is impossible
