# cython: language_level=3
"""Quota: what may still be added to the reply to one XREAD or XREADGROUP, and the entries of one stream in it."""

from libc.stdint cimport INT64_MAX, int64_t

from streamd.protocol.reply cimport ReplyWriter


cdef struct Quota:
    # How much more may be added to the reply to one request.
    int64_t left            # entries; INT64_MAX: no limit
    int64_t sent            # entries of the previous streams
    size_t max_bytes        # 0: no limit
    size_t start            # where the counted bytes start in the reply: after the outer header
    size_t header           # header size of the stream being written: counts once its length is filled in


cdef inline void quota_init(Quota *quota, int64_t max_count, int64_t max_bytes) noexcept:
    # For both, 0: no limit.
    quota.left = max_count or INT64_MAX
    quota.sent = 0
    quota.max_bytes = <size_t>max_bytes
    quota.start = quota.header = 0


cdef inline bint has_enough_bytes(const Quota *quota, ReplyWriter reply, int64_t n) noexcept:
    """Whether no further entry may follow; n: entries of the stream being written. The first is always written."""
    return (
        quota.max_bytes != 0 and quota.sent + n > 0
        and reply.length - quota.start - quota.header >= quota.max_bytes
    )


cdef inline bint is_spent(const Quota *quota, ReplyWriter reply) noexcept:
    """Whether no further stream may follow."""
    return quota.left <= 0 or has_enough_bytes(quota, reply, 0)


cdef inline int64_t share_of(const Quota *quota, int64_t count) noexcept:
    """How many entries the next stream may add, when each may add `count`; for both, 0: no limit."""
    if quota.left == INT64_MAX:
        return count
    return min(count, quota.left) if count else quota.left


cdef inline size_t open_entries(ReplyWriter reply, Quota *quota, int64_t expected) except? 0:
    """Start the entries of a stream; returns what close_entries needs."""
    cdef size_t opened = reply.open_array(expected)
    quota.header = reply.length - opened
    return opened


cdef inline int close_entries(ReplyWriter reply, Quota *quota, size_t opened, int64_t n) except -1:
    quota.header = 0
    quota.sent += n
    if quota.left != INT64_MAX:
        quota.left -= n
    return reply.close_array(opened, n)
