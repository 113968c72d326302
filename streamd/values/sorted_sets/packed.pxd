# cython: language_level=3
"""A sorted set in one listpack: member, score, member, score, in order. See packed.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.counted_tree cimport TreeKey
from streamd.engine.listpack cimport LpValue
from streamd.numbers cimport INT64_ROOM, put_int64


cdef struct Item:
    # A member and its score.
    LpValue member             # its bytes are borrowed from the set
    double score


cdef extern from *:
    """
    static inline unsigned long long streamd_score_prefix(double score) {
        unsigned long long bits;
        score += 0.0;           /* -0 becomes 0 */
        memcpy(&bits, &score, sizeof bits);
        return bits >> 63 ? ~bits : bits | 1ull << 63;
    }
    """
    uint64_t score_prefix "streamd_score_prefix"(double score) noexcept nogil
        # 64 bits in the order of scores; equal for equal scores.


cdef inline const uint8_t *member_text(const LpValue *member, char *digits, size_t *n) noexcept nogil:
    """The bytes of a member; digits: INT64_ROOM bytes for those of an integer."""
    if member.data is not NULL:
        n[0] = <size_t>member.length
        return member.data
    n[0] = put_int64(digits, member.number)
    return <const uint8_t *>digits


cdef int compare_bytes(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size) noexcept nogil
    # Below, at or above 0; a string comes after those that it begins with.

cdef const uint8_t *packed_get(const uint8_t *p, Item *item) noexcept nogil
    # The member and score at p, and what follows them.
cdef const uint8_t *packed_find(const uint8_t *lp, const uint8_t *s, size_t n, double *score) noexcept nogil
    # Where a member is; NULL: nowhere.
cdef uint64_t packed_count(const uint8_t *lp) noexcept nogil
cdef const uint8_t *packed_seek(const uint8_t *lp, uint64_t rank) noexcept nogil     # the rank must be below the count
cdef uint64_t packed_rank(const uint8_t *lp, const TreeKey *key) noexcept nogil    # members before a key
cdef size_t packed_member_size(const uint8_t *s, size_t n) noexcept nogil  # with any score, at most
cdef uint8_t *packed_insert(uint8_t *lp, const uint8_t *s, size_t n, double score) noexcept nogil
    # The listpack with a member that it did not have; NULL: no memory, the old one is unchanged.
cdef uint8_t *packed_append(uint8_t *lp, const uint8_t *s, size_t n, double score) noexcept nogil   # at the end
cdef uint8_t *packed_delete(uint8_t *lp, const uint8_t *at) noexcept nogil     # without the member at a place
cdef const char *packed_check(const uint8_t *lp) noexcept nogil
    # NULL, or what is wrong with a valid listpack that should be a sorted set.
