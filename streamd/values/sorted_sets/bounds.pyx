# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Bounds of ranges by score and by member, as requests write them.

    1.5  (1.5  -inf  +inf          of scores; `(` leaves the score itself out
    [a  (a  -  +                   of members, all of which should have one score; `-` and `+` are the ends

A bound becomes a key before or after the members that it is about (counted_tree), so that a range is what lies between
two ranks. Behaviour: Redis 8.6, as seen on a running server: a number ends at a zero byte, and no number at all is 0.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memchr, strlen

from streamd.engine.counted_tree cimport CUT_AFTER, CUT_AFTER_REST, CUT_BEFORE, CUT_BY_REST
from streamd.protocol.doubles cimport read_float
from streamd.values.sorted_sets.packed cimport score_prefix

from streamd.errors import CommandError

__all__ = []


cdef int parse_score(bytes text, bint is_high, Bound *bound) except -1:
    """A bound by score. is_high: it is the end of a range, which includes its score unless `(` is before it."""
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef bint leaves_out = p[0] == c'('
    cdef double score = 0
    cdef size_t n
    p += leaves_out
    n = strlen(p)
    if n and (memchr(p, c'x', n) or memchr(p, c'X', n) or not read_float(p, n, &score) or score != score):
        raise CommandError("ERR min or max is not a float")
    bound.edge = EDGE_KEY
    bound.key.cut = CUT_AFTER if is_high != leaves_out else CUT_BEFORE
    bound.key.prefix = score_prefix(score)
    bound.key.rest = NULL
    bound.key.size = 0
    return 0


cdef int parse_scores(bytes low, bytes high, Bounds *bounds) except -1:
    parse_score(low, False, &bounds.low)
    return parse_score(high, True, &bounds.high)


cdef int parse_member(bytes text, bint is_high, Bound *bound) except -1:
    """A bound by member, as parse_score."""
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(text)
    bound.edge = EDGE_KEY
    if n == 1 and (p[0] == c'-' or p[0] == c'+'):
        bound.edge = EDGE_START if p[0] == c'-' else EDGE_END
    elif n == 0 or (p[0] != c'(' and p[0] != c'['):
        raise CommandError("ERR min or max not valid string range item")
    else:
        bound.key.cut = CUT_AFTER_REST if is_high != (p[0] == c'(') else CUT_BY_REST
        bound.key.prefix = 0
        bound.key.rest = p + 1
        bound.key.size = <size_t>(n - 1)
    return 0


cdef int parse_members(bytes low, bytes high, Bounds *bounds) except -1:
    parse_member(low, False, &bounds.low)
    return parse_member(high, True, &bounds.high)


cdef inline uint64_t rank_at(SortedSet set, const Bound *bound) noexcept:
    if bound.edge == EDGE_START:
        return 0
    return set.count() if bound.edge == EDGE_END else set.rank_of(&bound.key)


cdef uint64_t ranks_between(SortedSet set, const Bounds *bounds, uint64_t *first) noexcept:
    cdef uint64_t end = rank_at(set, &bounds.high)
    first[0] = rank_at(set, &bounds.low)
    return end - first[0] if end > first[0] else 0
