# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Changing listpacks in place: the small lists, sets, hashes and sorted sets of Redis, byte for byte.

Each change moves what follows it, and the block is reallocated to its new size: right for the few hundred elements that
such a collection has. All changes are one step, lp_open: bytes give way to other bytes. To change several elements at
once, open one gap, and write them with the writers of listpack.pxd.
Callers: the rooms of these types.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

from streamd.engine.listpack cimport (
    LP_COUNT_UNKNOWN, LpValue, lp_backlen_size, lp_equals, lp_get, lp_header_count, lp_int_size, lp_put,
    lp_put_int, lp_set_header, lp_skip,
)
from streamd.heap cimport malloc, realloc
from streamd.numbers cimport read_int64

__all__ = []


# --- The whole --------------------------------------------------------------------------------------------------------


cdef uint8_t *lp_new() noexcept nogil:
    cdef uint8_t *lp = <uint8_t *>malloc(LP_HEADER + 1)
    if lp is not NULL:
        lp_set_header(lp, LP_HEADER + 1, 0)
        lp[LP_HEADER] = LP_END
    return lp


cdef uint8_t *lp_copy(const uint8_t *lp) noexcept nogil:
    cdef uint8_t *copied = <uint8_t *>malloc(lp_bytes(lp))
    if copied is not NULL:
        memcpy(copied, lp, lp_bytes(lp))
    return copied


cdef uint64_t lp_count(const uint8_t *lp) noexcept nogil:
    cdef uint64_t count = lp_header_count(lp)
    cdef const uint8_t *p
    if count != LP_COUNT_UNKNOWN:
        return count
    count = 0
    p = lp_first(lp)
    while p[0] != LP_END:
        p = lp_skip(p)
        count += 1
    return count


cdef size_t lp_string_size(size_t n) noexcept nogil:
    cdef size_t encoded = n + (1 if n < 64 else 2 if n < 4096 else 5)
    return encoded + lp_backlen_size(encoded)


cdef size_t lp_size(const uint8_t *s, size_t n) noexcept nogil:
    cdef int64_t number
    return lp_int_size(number) if read_int64(<const char *>s, n, &number) else lp_string_size(n)


# --- Finding ----------------------------------------------------------------------------------------------------------


cdef const uint8_t *lp_seek(const uint8_t *lp, int64_t index) noexcept nogil:
    """The element at an index; NULL: beyond the last one."""
    cdef const uint8_t *p = lp_first(lp)
    cdef int64_t count = lp_header_count(lp)
    if count != LP_COUNT_UNKNOWN:
        if index < -count or index >= count:
            return NULL
        if index >= 0 and index >= count // 2:
            index -= count
        elif index < -count // 2:
            index += count
    if index < 0:
        p = lp_end(lp)
        while index < 0:
            if p == lp + LP_HEADER:
                return NULL
            p = lp_previous(p)
            index += 1
        return p
    while p[0] != LP_END:
        if index == 0:
            return p
        p = lp_skip(p)
        index -= 1
    return NULL


cdef const uint8_t *lp_find(const uint8_t *lp, const uint8_t *s, size_t n, unsigned int skip) noexcept nogil:
    """The first element whose text is s; NULL: none."""
    cdef const uint8_t *p = lp_first(lp)
    cdef LpValue value
    cdef int64_t number = 0
    cdef bint is_number = read_int64(<const char *>s, n, &number)
    cdef unsigned int _left
    if not is_number and n < 64:
        return find_short(p, s, n, skip)
    while p[0] != LP_END:
        lp_get(p, &value)
        if value.data is NULL:
            if is_number and value.number == number:
                return p
        elif lp_equals(&value, s, n):
            return p
        p = lp_skip(p)
        for _left in range(skip):
            if p[0] == LP_END:
                return NULL
            p = lp_skip(p)
    return NULL


cdef const uint8_t *find_short(const uint8_t *p, const uint8_t *s, size_t n, unsigned int skip) noexcept nogil:
    """As above, for a string of less than 64 bytes that is not an integer: the first byte rules out most elements."""
    cdef uint8_t head = 0x80 | <uint8_t>n
    cdef unsigned int _left
    while p[0] != LP_END:
        if p[0] == head:
            if memcmp(p + 1, s, n) == 0:
                return p
        elif p[0] >= 0xE0 and is_same(p, s, n):
            return p
        p = lp_skip(p)
        for _left in range(skip):
            if p[0] == LP_END:
                return NULL
            p = lp_skip(p)
    return NULL


cdef bint is_same(const uint8_t *p, const uint8_t *s, size_t n) noexcept nogil:
    """Whether an element, encoded in any way, has this text."""
    cdef LpValue value
    lp_get(p, &value)
    return lp_equals(&value, s, n)


# --- Changing ---------------------------------------------------------------------------------------------------------


cdef uint8_t *lp_open(uint8_t *lp, size_t place, size_t removed, size_t added, int64_t elements) noexcept nogil:
    """Replace `removed` bytes at `place` by `added` bytes, which the caller writes."""
    cdef size_t total = lp_bytes(lp)
    cdef size_t behind = total - place - removed
    cdef size_t new_total = total - removed + added
    cdef int64_t count = lp_header_count(lp)
    cdef uint8_t *moved
    if added > removed:
        if new_total > LP_MAX_BYTES:
            return NULL
        moved = <uint8_t *>realloc(lp, new_total)
        if moved is NULL:
            return NULL
        lp = moved
    if added != removed:
        memmove(lp + place + added, lp + place + removed, behind)
    if added < removed:
        moved = <uint8_t *>realloc(lp, new_total)
        lp = lp if moved is NULL else moved
    if count != LP_COUNT_UNKNOWN:       # unknown, it stays so
        count += elements
    lp_set_header(lp, new_total, <uint64_t>count)
    return lp


cdef uint8_t *lp_append(uint8_t *lp, const uint8_t *s, size_t n) noexcept nogil:
    cdef size_t place = lp_bytes(lp) - 1
    lp = lp_open(lp, place, 0, lp_size(s, n), 1)
    if lp is not NULL:
        lp_put(lp + place, s, n)
    return lp


cdef uint8_t *lp_insert_int(uint8_t *lp, size_t place, int64_t value) noexcept nogil:
    lp = lp_open(lp, place, 0, lp_int_size(value), 1)
    if lp is not NULL:
        lp_put_int(lp + place, value)
    return lp


cdef uint8_t *lp_append_int(uint8_t *lp, int64_t value) noexcept nogil:
    return lp_insert_int(lp, lp_bytes(lp) - 1, value)


cdef uint8_t *lp_delete(uint8_t *lp, size_t place, uint64_t count) noexcept nogil:
    """Remove up to `count` elements."""
    cdef const uint8_t *p = lp + place
    cdef int64_t elements = 0
    while count and p[0] != LP_END:
        p = lp_skip(p)
        count -= 1
        elements -= 1
    return lp_open(lp, place, <size_t>(p - lp) - place, 0, elements)
