# cython: language_level=3
"""LZF, the compression of strings in RDB files. See lzf.pyx."""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    LZF_GROWTH = 88            # a compressed byte expands to at most this many bytes: three for a match of 264


cdef struct LzfTable:
    # Where the compressor last saw each four bytes. Zero it once; it then serves any number of inputs.
    uint32_t base              # the number of the first byte of the next input, so that older places are known as old
    uint32_t seen[1 << 13]


cdef size_t lzf_compress(
    LzfTable *table, const uint8_t *data, size_t size, uint8_t *out, size_t room) noexcept nogil
    # Bytes written, 0: more than `room` would be needed. `size` below 2 GiB.
cdef bint lzf_expand(const uint8_t *data, size_t size, uint8_t *out, size_t expected) noexcept nogil
    # From untrusted bytes; False: they do not give exactly `expected` bytes.
