# cython: language_level=3
"""Offsets of bits in requests. See bit_offsets.pyx."""

from libc.stdint cimport int64_t

from streamd.core.context cimport Context

cdef int64_t require_bit_offset(Context ctx, bytes text, int width) except -1    # width 0: `#` is not accepted
