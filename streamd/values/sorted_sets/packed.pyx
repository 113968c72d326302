# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A small sorted set: one listpack of members, each followed by its score, in order; byte for byte Redis's.

    "a" 1.5  ->  81 61 02  83 31 2e 35 04          a score is an integer if it is integral and at most 2**62, else text

So -0 is kept as 0. The text of a score is that of replies (protocol/doubles). Everything is found by walking.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from streamd.engine.counted_tree cimport (
    CUT_AFTER, CUT_AFTER_REST, CUT_BY_REST, CUT_NONE, TreeKey,
)
from streamd.engine.listpack cimport (
    LP_END, LP_HEADER, LpValue, lp_get, lp_int_size, lp_put, lp_put_int, lp_skip,
)
from streamd.engine.listpack_edit cimport (
    lp_count, lp_delete, lp_end, lp_find, lp_open, lp_place, lp_seek, lp_size,
)
from streamd.numbers cimport INT64_ROOM
from streamd.protocol.doubles cimport DOUBLE_ROOM, is_integral, put_double, read_float

__all__ = []

cdef enum:
    SCORE_ROOM = 64        # bytes of a score's text, and more than the longest that Redis has ever written


cdef int compare_bytes(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size) noexcept nogil:
    cdef int order = memcmp(a, b, a_size if a_size < b_size else b_size)
    if order == 0 and a_size != b_size:
        return -1 if a_size < b_size else 1
    return order


# --- Reading --------------------------------------------------------------------------------------------------------


cdef inline double score_of(const LpValue *value) noexcept nogil:
    """The score that an element stands for."""
    cdef char text[SCORE_ROOM]
    cdef double score = 0
    cdef size_t n
    if value.data is NULL:
        return <double>value.number
    n = <size_t>value.length if value.length < SCORE_ROOM else SCORE_ROOM - 1
    memcpy(text, value.data, n)
    text[n] = 0
    read_float(text, n, &score)
    return score


cdef const uint8_t *packed_get(const uint8_t *p, Item *item) noexcept nogil:
    cdef LpValue value
    p = lp_get(p, &item.member)
    p = lp_get(p, &value)
    item.score = score_of(&value)
    return p


cdef const uint8_t *packed_find(const uint8_t *lp, const uint8_t *s, size_t n, double *score) noexcept nogil:
    cdef const uint8_t *found = lp_find(lp, s, n, 1)
    cdef LpValue value
    if found is not NULL:
        lp_get(lp_skip(found), &value)
        score[0] = score_of(&value)
    return found


cdef uint64_t packed_count(const uint8_t *lp) noexcept nogil:
    return lp_count(lp) // 2


cdef const uint8_t *packed_seek(const uint8_t *lp, uint64_t rank) noexcept nogil:
    return lp_seek(lp, <int64_t>(2 * rank))


cdef inline bint comes_before(const Item *item, const TreeKey *key) noexcept nogil:
    """Whether a member comes before a key."""
    cdef char digits[INT64_ROOM]
    cdef const uint8_t *text
    cdef uint64_t prefix
    cdef size_t n
    cdef int order
    if key.cut < CUT_BY_REST:
        prefix = score_prefix(item.score)
        if prefix != key.prefix:
            return prefix < key.prefix
        if key.cut != CUT_NONE:
            return key.cut == CUT_AFTER
    text = member_text(&item.member, digits, &n)
    order = compare_bytes(text, n, <const uint8_t *>key.rest, key.size)
    return order < 0 or (order == 0 and key.cut == CUT_AFTER_REST)


cdef uint64_t packed_rank(const uint8_t *lp, const TreeKey *key) noexcept nogil:
    cdef const uint8_t *p = lp + LP_HEADER
    cdef uint64_t rank = 0
    cdef Item item
    while p[0] != LP_END:
        p = packed_get(p, &item)
        if not comes_before(&item, key):
            break
        rank += 1
    return rank


# --- Changing -------------------------------------------------------------------------------------------------------


cdef size_t packed_member_size(const uint8_t *s, size_t n) noexcept nogil:
    return lp_size(s, n) + DOUBLE_ROOM


cdef uint8_t *insert_at(uint8_t *lp, size_t place, const uint8_t *s, size_t n, double score) noexcept nogil:
    """Insert a member with its score at a place. NULL: no memory."""
    cdef char text[DOUBLE_ROOM]
    cdef size_t text_size = 0, size = lp_size(s, n)
    cdef uint8_t *p
    if is_integral(score):
        size += lp_int_size(<int64_t>score)
    else:
        text_size = put_double(text, score)
        size += lp_size(<const uint8_t *>text, text_size)
    lp = lp_open(lp, place, 0, size, 2)
    if lp is NULL:
        return NULL
    p = lp_put(lp + place, s, n)
    if text_size:
        lp_put(p, <const uint8_t *>text, text_size)
    else:
        lp_put_int(p, <int64_t>score)
    return lp


cdef uint8_t *packed_insert(uint8_t *lp, const uint8_t *s, size_t n, double score) noexcept nogil:
    cdef const uint8_t *p = lp + LP_HEADER
    cdef const uint8_t *next
    cdef TreeKey key
    cdef Item item
    key.cut = CUT_NONE
    key.prefix = score_prefix(score)
    key.rest = s
    key.size = n
    while p[0] != LP_END:
        next = packed_get(p, &item)
        if not comes_before(&item, &key):
            break
        p = next
    return insert_at(lp, lp_place(lp, p), s, n, score)


cdef uint8_t *packed_append(uint8_t *lp, const uint8_t *s, size_t n, double score) noexcept nogil:
    return insert_at(lp, lp_place(lp, lp_end(lp)), s, n, score)


cdef uint8_t *packed_delete(uint8_t *lp, const uint8_t *at) noexcept nogil:
    return lp_delete(lp, lp_place(lp, at), 2)


# --- Checking -------------------------------------------------------------------------------------------------------


cdef bint is_score(const LpValue *value) noexcept nogil:
    """Whether an element can be a score: it is a number, and read_float reads all of it."""
    cdef char text[SCORE_ROOM]
    cdef double score
    if value.data is NULL:
        return True
    if value.length >= SCORE_ROOM:
        return False
    memcpy(text, value.data, <size_t>value.length)
    text[value.length] = 0
    return read_float(text, <size_t>value.length, &score) and score == score


cdef const char *packed_check(const uint8_t *lp) noexcept nogil:
    cdef const uint8_t *p = lp + LP_HEADER
    cdef const uint8_t *text
    cdef char digits[INT64_ROOM]
    cdef LpValue value
    cdef Item item, before
    cdef TreeKey key
    cdef size_t n
    cdef bint is_first = True
    if lp_count(lp) & 1:
        return b"a member without a score"
    while p[0] != LP_END:
        lp_get(lp_skip(p), &value)
        if not is_score(&value):
            return b"a score that is not a number"
        p = packed_get(p, &item)
        if not is_first:
            text = member_text(&item.member, digits, &n)
            key.cut = CUT_NONE
            key.prefix = score_prefix(item.score)
            key.rest = text
            key.size = n
            if not comes_before(&before, &key):
                return b"members out of order"
        before = item
        is_first = False
    return NULL
