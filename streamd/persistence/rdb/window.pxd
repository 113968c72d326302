# cython: language_level=3
"""The window on an RDB stream. See window.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef enum:
    LEAST_LISTPACK = 7         # bytes


cdef inline uint64_t load_le(const uint8_t *p, unsigned int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef unsigned int i
    for i in range(size):
        value |= <uint64_t>p[i] << (8 * i)
    return value


@cython.final
cdef class Window:
    cdef object source                        # None: all bytes are there already
    cdef bytes fixed                          # the bytes in that case
    cdef uint8_t *memory                      # owned
    cdef size_t room                          # bytes malloc'ed for it
    cdef const uint8_t *base                  # the first byte at hand
    cdef const uint8_t *at                    # the next byte to be read
    cdef const uint8_t *end                   # past the last byte at hand
    cdef uint64_t base_offset                 # of `base` in the stream
    cdef int64_t size                         # of the stream, or more; -1: not known
    cdef const uint8_t *summed                # the checksum covers what comes before
    cdef uint64_t crc
    cdef bint sums                            # whether a checksum is to be computed
    cdef uint64_t pause_at                    # offset at which the next step ends
    cdef str name                             # of the file, for errors

    cdef inline uint64_t position(self) noexcept:
        return self.base_offset + <uint64_t>(self.at - self.base)

    cdef inline bint is_step_over(self) noexcept:
        return self.position() >= self.pause_at

    cdef inline int need(self, uint64_t count) except -1:
        """Make `count` bytes available from `at` on. This invalidates pointers into the window."""
        if <uint64_t>(self.end - self.at) >= count:
            return 0
        return self.fill(count)

    cdef inline uint8_t get_byte(self) except? 255:
        if self.at == self.end:
            self.fill(1)
        self.at += 1
        return (self.at - 1)[0]

    cdef inline uint64_t get_le(self, unsigned int size) except? 0:
        self.need(size)
        self.at += size
        return load_le(self.at - size, size)

    cdef void show(self, bytes source, Py_ssize_t size) noexcept
    cdef int corrupt(self, str expected, str found, int64_t offset=*) except -1
    cdef int fill(self, uint64_t count) except -1
    cdef void settle(self, size_t kept) noexcept
    cdef int sum_up(self) except -1
    cdef bint get_length(self, uint64_t *out) except -1
    cpdef uint64_t get_count(self) except? 0
    cdef uint64_t get_small(self, uint64_t most, str what) except? 0
    cdef int get_lzf_head(self, uint64_t *packed, uint64_t *unpacked) except -1
    cpdef bytes get_bytes(self)
    cdef uint8_t *get_block(self, uint64_t *size) except NULL
    cdef int skip(self, uint64_t count) except -1
    cdef int skip_string(self) except -1
