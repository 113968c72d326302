# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Whether bytes from outside are a valid stream node, and if not, what is wrong and where.

Everything that the readers of node.pxd rely on is checked in one pass: elements are whole and within the bytes, their
back-lengths lead back, the master entry's counts hold, and IDs ascend. Loading checks every node, so the pass does as
little as possible. Only after finding a fault does it check the bytes as a listpack: a fault there is the better
answer, because everything after it was read from the wrong place.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.ids cimport StreamID, id_cmp, make_id
from streamd.engine.listpack cimport (
    LP_COUNT_UNKNOWN, LP_END, LP_HEADER, LP_SIZES, lp_backlen_size, lp_bytes, lp_encoded_size, lp_get_int,
    lp_header_count, lp_validate,
)
from streamd.values.streams.node cimport FLAG_DELETED, FLAG_SAME_NAMES, MASTER_ELEMENTS

__all__ = []


# --- Elements: the next one, or NULL when the element is invalid -----------------------------------------------------


cdef inline const uint8_t *sound_element(const uint8_t *p, const uint8_t *last) noexcept nogil:
    """The element after the one at `p`, if that is whole, has its back-length and ends no later than `last`."""
    cdef uint64_t n = LP_SIZES[p[0]], left = <uint64_t>(last - p)
    cdef unsigned int size, i
    if n:
        if n > left or p[n - 1] != n - 1:
            return NULL
        return p + n
    if p[0] > 0xF0 or left < (5 if p[0] == 0xF0 else 2):
        return NULL
    n = lp_encoded_size(p)
    size = lp_backlen_size(n)
    if n + size > left:
        return NULL
    p += n
    for i in range(size):
        if p[i] != (<uint8_t>((n >> (7 * (size - 1 - i))) & 127) | (128 if i else 0)):
            return NULL
    return p + size


cdef const uint8_t *sound_long_int(const uint8_t *p, const uint8_t *last, int64_t *out) noexcept nogil:
    """Like sound_int, for one that does not fit into seven bits."""
    cdef uint8_t b = p[0]
    if b & 0xE0 == 0xC0:
        if last - p < 3 or p[2] != 2:
            return NULL
        out[0] = ((<int64_t>(b & 0x1F) << 8 | p[1]) ^ 4096) - 4096
        return p + 3
    if b < 0xF1 or sound_element(p, last) is NULL:
        return NULL
    return lp_get_int(p, out)


cdef inline const uint8_t *sound_int(const uint8_t *p, const uint8_t *last, int64_t *out) noexcept nogil:
    """Like sound_element, for an integer, which it reads."""
    if p[0] < 0x80:
        out[0] = p[0]
        return p + 2 if p[1] == 1 else NULL     # neither byte is the one at `last`, which is LP_END
    return sound_long_int(p, last, out)


# --- Nodes ------------------------------------------------------------------------------------------------------------


cdef const char *walk_node(
    const uint8_t *lp, size_t size, StreamID master, NodeCensus *census, const uint8_t **at
) noexcept nogil:
    """Walk a node and take its census; returns what is wrong, with its position in `at`, or NULL."""
    cdef const uint8_t *p = lp + LP_HEADER
    cdef const uint8_t *last = lp + size - 1
    cdef int64_t live, deleted, names, flags, ms, seq, pairs, elements
    cdef uint64_t number, _n
    cdef int64_t counts[2]
    cdef StreamID id
    cdef StreamID before = master
    cdef bint first = True
    census.first_live = census.last_live = make_id(0, 0)
    if size < LP_HEADER + 1 or lp_bytes(lp) != size or last[0] != LP_END:
        return b"a node is no listpack"
    at[0] = p
    p = sound_int(p, last, &live)
    if p is NULL:
        return b"a node does not start with the number of its live entries"
    at[0] = p
    p = sound_int(p, last, &deleted)
    if p is NULL:
        return b"a node has no number of deleted entries"
    at[0] = p
    p = sound_int(p, last, &names)
    if p is NULL or names < 1:
        return b"a node has no number of field names"
    at[0] = p
    if names > <int64_t>size:
        return b"a node has less field names than it says"
    for _n in range(<uint64_t>names):
        p = sound_element(p, last)
        if p is NULL:
            return b"a node has less field names than it says"
    at[0] = p
    p = sound_int(p, last, &elements)
    if p is NULL or elements != 0:
        return b"the master entry does not end with 0"
    number = <uint64_t>names + MASTER_ELEMENTS
    counts[0] = counts[1] = 0
    while p != last:
        at[0] = p
        p = sound_int(p, last, &flags)
        if p is NULL or not 0 <= flags <= (FLAG_DELETED | FLAG_SAME_NAMES):
            return b"an entry has unknown flags"
        p = sound_int(p, last, &ms)
        if p is NULL:
            return b"an entry has no ID"
        p = sound_int(p, last, &seq)
        if p is NULL:
            return b"an entry has no ID"
        id = make_id(master.ms + <uint64_t>ms, master.seq + <uint64_t>seq)
        if id_cmp(id, before) <= 0 and not (first and id_cmp(id, before) == 0):
            return b"the IDs of entries do not ascend"
        first = False
        before = id
        pairs = names
        elements = names + 3
        if not flags & FLAG_SAME_NAMES:
            p = sound_int(p, last, &pairs)
            if p is NULL or pairs < 1 or pairs > <int64_t>size:
                return b"an entry has no number of fields"
            pairs *= 2
            elements = pairs + 4
        for _n in range(<uint64_t>pairs):
            p = sound_element(p, last)
            if p is NULL:
                return b"an entry has less fields or values than it says"
        at[0] = p
        p = sound_int(p, last, &ms)
        if p is NULL or ms != elements:
            return b"an entry does not end with the number of its elements"
        number += <uint64_t>elements + 1
        counts[flags & FLAG_DELETED] += 1
        if not flags & FLAG_DELETED:
            if counts[0] == 1:
                census.first_live = id
            census.last_live = id
    at[0] = lp + LP_HEADER
    census.live = counts[0]
    census.deleted = counts[1]
    census.last = before
    if live != counts[0] or deleted != counts[1]:
        return b"a node has other numbers of live and deleted entries than it says"
    if first:
        return b"a node has no entries"
    if lp_header_count(lp) != LP_COUNT_UNKNOWN and lp_header_count(lp) != number:
        return b"a node is no listpack"
    return NULL


cdef const char *node_fault(
    const uint8_t *lp, size_t size, StreamID master, NodeCensus *census, size_t *offset
) noexcept nogil:
    """What is wrong with a node, and at which offset; NULL, with the census taken, when it is valid. O(size)."""
    cdef const uint8_t *at = lp
    cdef const char *reason = walk_node(lp, size, master, census, &at)
    cdef const char *deeper
    if reason is NULL:
        return NULL
    deeper = lp_validate(lp, size, offset)
    if deeper is not NULL:
        return deeper
    offset[0] = <size_t>(at - lp)
    return reason
