# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Fields and values in one listpack: small hashes, as Redis stores them, byte for byte.

    width 2    field value field value ...                     in the order of insertion
    width 3    field value expiry field value expiry ...       expiry: Unix time in ms, 0: none; the soonest first,
                                                               of several at a time the latest change; fields
                                                               without expiry last, in the order of insertion

A field is found by reading from the start.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from streamd.engine.listpack cimport (
    LP_END, LP_HEADER, LpValue, lp_bytes, lp_get, lp_int_size, lp_put, lp_put_int, lp_set_header, lp_skip,
)
from streamd.engine.listpack_edit cimport lp_find, lp_open, lp_size
from streamd.heap cimport malloc

__all__ = []


# --- Reading ------------------------------------------------------------------------------------------------------


cdef bint pairs_read(const uint8_t *lp, unsigned int width, uint64_t place, HashItem *out) noexcept nogil:
    cdef const uint8_t *p = lp + place
    cdef LpValue expiry
    if p[0] == LP_END:
        return False
    p = lp_get(p, &out.field)
    p = lp_get(p, &out.value)
    out.expire_at_ms = NEVER
    if width == 3:
        p = lp_get(p, &expiry)
        if expiry.number:
            out.expire_at_ms = expiry.number
    out.place = place
    out.size = <uint64_t>(p - lp) - place
    return True


cdef bint pairs_find(
    const uint8_t *lp, unsigned int width, const uint8_t *name, size_t n, HashItem *out
) noexcept nogil:
    cdef const uint8_t *p = lp_find(lp, name, n, width - 1)
    return p is not NULL and pairs_read(lp, width, <uint64_t>(p - lp), out)


cdef int64_t pairs_due(const uint8_t *lp) noexcept nogil:
    cdef HashItem first
    return first.expire_at_ms if pairs_read(lp, 3, LP_HEADER, &first) else NEVER


# --- Changing -----------------------------------------------------------------------------------------------------


cdef inline size_t size_of(LpValue value) noexcept nogil:
    """Bytes that `put` writes."""
    return lp_int_size(value.number) if value.data is NULL else lp_size(value.data, value.length)


cdef inline uint8_t *put(uint8_t *p, LpValue value) noexcept nogil:
    return lp_put_int(p, value.number) if value.data is NULL else lp_put(p, value.data, value.length)


cdef inline int64_t as_stored(int64_t expire_at_ms) noexcept nogil:
    return 0 if expire_at_ms == NEVER else expire_at_ms


cdef size_t place_for(const uint8_t *lp, int64_t expire_at_ms) noexcept nogil:
    """Where an item with an expiry belongs: before the first that expires then, later, or never."""
    cdef HashItem item
    cdef uint64_t place = LP_HEADER
    if expire_at_ms == NEVER:
        return lp_bytes(lp) - 1
    while pairs_read(lp, 3, place, &item) and item.expire_at_ms != NEVER and item.expire_at_ms < expire_at_ms:
        place += item.size
    return place


cdef uint8_t *pairs_add(
    uint8_t *lp, unsigned int width, LpValue field, LpValue value, int64_t expire_at_ms
) noexcept nogil:
    """Add a field that is not there yet."""
    cdef size_t place = lp_bytes(lp) - 1
    cdef size_t size = size_of(field) + size_of(value)
    cdef uint8_t *p
    if width == 3:
        place = place_for(lp, expire_at_ms)
        size += lp_int_size(as_stored(expire_at_ms))
    lp = lp_open(lp, place, 0, size, width)
    if lp is not NULL:
        p = put(put(lp + place, field), value)
        if width == 3:
            lp_put_int(p, as_stored(expire_at_ms))
    return lp


cdef uint8_t *pairs_set_value(uint8_t *lp, const HashItem *item, LpValue value) noexcept nogil:
    cdef const uint8_t *old = lp_skip(lp + item.place)
    cdef size_t place = <size_t>(old - lp)
    cdef size_t removed = <size_t>(lp_skip(old) - old)
    cdef size_t size = size_of(value)
    if removed != size:
        lp = lp_open(lp, place, removed, size, 0)
    if lp is not NULL:
        put(lp + place, value)
    return lp


cdef uint8_t *pairs_set_expiry(uint8_t *lp, const HashItem *item, int64_t expire_at_ms) noexcept nogil:
    """Give an item of a listpack of width 3 another expiry, and the place where it then belongs."""
    cdef size_t kept = <size_t>(lp_skip(lp_skip(lp + item.place)) - (lp + item.place))
    cdef size_t size = kept + lp_int_size(as_stored(expire_at_ms))
    cdef size_t place = place_for(lp, expire_at_ms)
    cdef size_t old = item.place
    lp = lp_open(lp, place, 0, size, 3)
    if lp is NULL:
        return NULL
    if place <= old:
        old += size
    memcpy(lp + place, lp + old, kept)
    lp_put_int(lp + place + kept, as_stored(expire_at_ms))
    return lp_open(lp, old, item.size, 0, -3)


cdef uint8_t *pairs_remove(uint8_t *lp, unsigned int width, const HashItem *item) noexcept nogil:
    return lp_open(lp, item.place, item.size, 0, -<int64_t>width)


cdef uint8_t *pairs_with_expiries(const uint8_t *lp) noexcept nogil:
    """A copy of a listpack of width 2 with an expiry for each field: none."""
    cdef uint64_t place = LP_HEADER, count = 0
    cdef HashItem item
    cdef uint8_t *copy
    cdef uint8_t *p
    while pairs_read(lp, 2, place, &item):
        place += item.size
        count += 1
    copy = <uint8_t *>malloc(lp_bytes(lp) + lp_int_size(0) * count)
    if copy is NULL:
        return NULL
    p = copy + LP_HEADER
    place = LP_HEADER
    while pairs_read(lp, 2, place, &item):
        memcpy(p, lp + place, item.size)
        p = lp_put_int(p + item.size, 0)
        place += item.size
    p[0] = LP_END
    lp_set_header(copy, <size_t>(p - copy) + 1, 3 * count)
    return copy


cdef uint8_t *pairs_without_expiries(const uint8_t *lp) noexcept nogil:
    """A copy of a listpack of width 3 without the expiries."""
    cdef uint64_t place = LP_HEADER, count = 0
    cdef size_t kept
    cdef HashItem item
    cdef uint8_t *copy = <uint8_t *>malloc(lp_bytes(lp))
    cdef uint8_t *p = copy + LP_HEADER
    if copy is NULL:
        return NULL
    while pairs_read(lp, 3, place, &item):
        kept = <size_t>(lp_skip(lp_skip(lp + place)) - (lp + place))
        memcpy(p, lp + place, kept)
        p += kept
        place += item.size
        count += 1
    p[0] = LP_END
    lp_set_header(copy, <size_t>(p - copy) + 1, 2 * count)
    return copy
