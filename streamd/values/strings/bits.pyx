# cython: language_level=3, boundscheck=False, wraparound=False
"""Bits of byte strings: counting, searching, integers of any width, and operations on several strings.

Bits are numbered as in Redis, from the highest of the first byte:

    byte          |       0       |       1       |         a field of 5 bits at bit 6 is the two lowest bits of byte 0,
    bit           |0 1 2 3 4 5 6 7|8 9 ...        |         then the three highest of byte 1
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, memset

from streamd.heap cimport calloc, free

__all__: list = []

cdef enum:
    WORD = 8            # bytes
    ROUND = 31          # words whose counts by byte fit into a byte each: 31 times at most 8

cdef extern from *:
    int leading_zeros "__builtin_clz"(unsigned int) noexcept nogil


cdef inline unsigned int mask_from(Py_ssize_t bit) noexcept nogil:
    """The bits of its byte from `bit` on."""
    return 0xffu >> (bit & 7)


cdef inline unsigned int mask_to(Py_ssize_t bit) noexcept nogil:
    """The bits of its byte up to `bit`."""
    return (0xff00u >> ((bit & 7) + 1)) & 0xffu


cdef inline uint64_t load_word(const uint8_t *p) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, p, WORD)
    return word


# --- Counting ---------------------------------------------------------------------------------------------------------


cdef inline uint64_t counts_by_byte(uint64_t word) noexcept nogil:
    """In each byte, how many of its bits are set: first in pairs of bits, then in fours, then in eights."""
    word -= (word >> 1) & <uint64_t>0x5555555555555555
    word = (word & <uint64_t>0x3333333333333333) + ((word >> 2) & <uint64_t>0x3333333333333333)
    return (word + (word >> 4)) & <uint64_t>0x0f0f0f0f0f0f0f0f


cdef inline Py_ssize_t sum_of_bytes(uint64_t word) noexcept nogil:
    # In halves of 16 bits, since the sum of eight bytes may need more than eight bits.
    word = (word & <uint64_t>0x00ff00ff00ff00ff) + ((word >> 8) & <uint64_t>0x00ff00ff00ff00ff)
    return <Py_ssize_t>((word * <uint64_t>0x0001000100010001) >> 48)


cdef Py_ssize_t count_in_bytes(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """The bits that are set in whole bytes."""
    cdef Py_ssize_t count = 0
    cdef uint64_t counts, rest
    cdef int i
    while size >= ROUND * WORD:
        counts = 0
        for i in range(ROUND):
            counts += counts_by_byte(load_word(data + i * WORD))
        count += sum_of_bytes(counts)
        data += ROUND * WORD
        size -= ROUND * WORD
    while size >= WORD:
        count += sum_of_bytes(counts_by_byte(load_word(data)))
        data += WORD
        size -= WORD
    rest = 0
    memcpy(&rest, data, <size_t>size)
    return count + sum_of_bytes(counts_by_byte(rest))


cdef Py_ssize_t count_bits(const uint8_t *data, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """How many bits of a range are set."""
    cdef Py_ssize_t start = first >> 3, end = last >> 3
    cdef uint64_t edges
    if first > last:
        return 0
    if start == end:
        edges = data[start] & mask_from(first) & mask_to(last)
        return sum_of_bytes(counts_by_byte(edges))
    edges = (data[start] & mask_from(first)) << 8 | (data[end] & mask_to(last))
    return sum_of_bytes(counts_by_byte(edges)) + count_in_bytes(data + start + 1, end - start - 1)


# --- Searching --------------------------------------------------------------------------------------------------------


cdef Py_ssize_t find_bit(const uint8_t *data, Py_ssize_t first, Py_ssize_t last, bint wanted) noexcept nogil:
    """The first bit of a range that is set, or that is clear; -1 when no bit is."""
    cdef Py_ssize_t at = first >> 3, end = last >> 3
    cdef uint64_t dull = 0 if wanted else ~<uint64_t>0      # what does not hold such a bit
    cdef unsigned int found
    cdef unsigned int mask
    if first > last:
        return -1
    mask = mask_from(first)
    while at <= end:
        if at == end:
            mask &= mask_to(last)
        found = (data[at] ^ <unsigned int>(dull & 0xff)) & mask
        if found:
            return (at << 3) + leading_zeros(found) - 24    # of 32 bits, the lowest eight are the byte
        at += 1
        mask = 0xff
        while end - at >= WORD and load_word(data + at) == dull:
            at += WORD
    return -1


# --- Fields -----------------------------------------------------------------------------------------------------------


cdef uint64_t get_field(const uint8_t *data, Py_ssize_t size, uint64_t at, int bits) noexcept nogil:
    """The unsigned number in `bits` bits from `at` on."""
    cdef uint64_t value = 0
    cdef int room, take
    cdef unsigned int byte
    while bits:
        room = 8 - <int>(at & 7)        # bits of this byte from `at` on
        take = bits if bits < room else room
        byte = data[at >> 3] if at >> 3 < <uint64_t>size else 0
        value = (value << take) | ((byte >> (room - take)) & ((1u << take) - 1))
        at += <uint64_t>take
        bits -= take
    return value


cdef void set_field(uint8_t *data, uint64_t at, int bits, uint64_t value) noexcept nogil:
    """Write the lowest `bits` bits of a number from `at` on."""
    cdef int room, take, shift
    cdef unsigned int mask, part
    while bits:
        room = 8 - <int>(at & 7)
        take = bits if bits < room else room
        shift = room - take
        mask = ((1u << take) - 1) << shift
        bits -= take
        part = <unsigned int>((value >> bits) & 0xff) << shift
        data[at >> 3] = <uint8_t>((data[at >> 3] & ~mask) | (part & mask))
        at += <uint64_t>take


# --- Several strings --------------------------------------------------------------------------------------------------
#
# A string at a time, in loops that the compiler turns into vectors.


cdef void and_with(uint8_t *into, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        into[i] &= data[i]


cdef void or_with(uint8_t *into, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        into[i] |= data[i]


cdef void xor_with(uint8_t *into, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        into[i] ^= data[i]


cdef void invert(uint8_t *into, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        into[i] = <uint8_t>~into[i]


cdef void once_with(uint8_t *into, uint8_t *more, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """`into` has the bits that occurred once so far, `more` those that occurred more often."""
    cdef Py_ssize_t i
    for i in range(size):
        more[i] |= into[i] & data[i]
        into[i] = (into[i] ^ data[i]) & <uint8_t>~more[i]


cdef bytes combine(list strings, BitOperation operation):
    """The result of a bit operation on strings, of which there is at least one."""
    cdef bytes result = bytes(max([len(each) for each in strings]))
    cdef uint8_t *into = <uint8_t *>PyBytes_AS_STRING(result)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(result)
    cdef bytes first = strings[0], each
    cdef uint8_t *more = NULL
    if length == 0:
        return result
    if operation in (BITS_AND, BITS_OR, BITS_XOR, BITS_NOT):
        memcpy(into, PyBytes_AS_STRING(first), <size_t>PyBytes_GET_SIZE(first))
    elif operation == BITS_ONE:
        more = <uint8_t *>calloc(<size_t>length, 1)
        if more is NULL:
            raise MemoryError("no memory to combine strings")
        once_with(into, more, <const uint8_t *>PyBytes_AS_STRING(first), PyBytes_GET_SIZE(first))
    for each in strings[1:]:
        add_operand(into, more, length, each, operation)
    free(more)
    if operation == BITS_NOT:
        invert(into, length)
    elif operation == BITS_DIFF:
        invert(into, length)
        restrict(into, length, first)
    elif operation == BITS_ANDOR:
        restrict(into, length, first)
    elif operation == BITS_DIFF1:
        # What is in the others is added to the first, and the first is taken away.
        or_with(into, <const uint8_t *>PyBytes_AS_STRING(first), PyBytes_GET_SIZE(first))
        xor_with(into, <const uint8_t *>PyBytes_AS_STRING(first), PyBytes_GET_SIZE(first))
    return result


cdef void add_operand(uint8_t *into, uint8_t *more, Py_ssize_t length, bytes string, BitOperation operation) noexcept:
    """Take in one of the strings after the first."""
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(string)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(string)
    if operation == BITS_AND:
        restrict(into, length, string)
    elif operation == BITS_XOR:
        xor_with(into, data, size)
    elif operation == BITS_ONE:
        once_with(into, more, data, size)
    else:
        or_with(into, data, size)


cdef void restrict(uint8_t *into, Py_ssize_t length, bytes string) noexcept:
    """Clear the bits that are not in a string."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(string)
    and_with(into, <const uint8_t *>PyBytes_AS_STRING(string), size)
    memset(into + size, 0, <size_t>(length - size))
