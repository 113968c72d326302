# cython: language_level=3
"""Entry IDs inside compiled code: two unsigned 64-bit halves, never a Python tuple."""

from libc.stdint cimport UINT64_MAX, uint64_t

from streamd.numbers cimport INT64_ROOM, put_uint64

cdef enum:
    ID_ROOM = 2 * INT64_ROOM + 1       # maximum number of characters of an ID


cdef struct StreamID:
    uint64_t ms
    uint64_t seq


cdef inline int id_cmp(StreamID a, StreamID b) noexcept nogil:
    """Negative, zero or positive when a is below, equal to or above b."""
    if a.ms != b.ms:
        return -1 if a.ms < b.ms else 1
    if a.seq != b.seq:
        return -1 if a.seq < b.seq else 1
    return 0


cdef inline StreamID make_id(uint64_t ms, uint64_t seq) noexcept nogil:
    cdef StreamID id
    id.ms = ms
    id.seq = seq
    return id


cdef inline bint id_is_zero(StreamID id) noexcept nogil:
    return id.ms == 0 and id.seq == 0


cdef inline bint id_increment(StreamID *id) noexcept nogil:
    """Step to the next ID; False, with no change, at the greatest one."""
    if id.seq != UINT64_MAX:
        id.seq += 1
    elif id.ms != UINT64_MAX:
        id.ms += 1
        id.seq = 0
    else:
        return False
    return True


cdef inline bint id_decrement(StreamID *id) noexcept nogil:
    """Step to the previous ID; False, with no change, at 0-0."""
    if id.seq != 0:
        id.seq -= 1
    elif id.ms != 0:
        id.ms -= 1
        id.seq = UINT64_MAX
    else:
        return False
    return True


cdef inline size_t put_id(char *p, StreamID id) noexcept nogil:
    """Write an ID as `ms-seq` at p, at most ID_ROOM characters; returns how many."""
    cdef size_t n = put_uint64(p, id.ms)
    p[n] = c'-'
    return n + 1 + put_uint64(p + n + 1, id.seq)
