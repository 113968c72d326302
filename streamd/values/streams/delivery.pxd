# cython: language_level=3
"""How entries of a stream reach the consumers of its groups. See delivery.pyx."""

from libc.stdint cimport int64_t

from streamd.engine.ids cimport StreamID
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.pel cimport NO_OWNER, PelRecord, delivered_ms
from streamd.values.streams.stream cimport Stream, StreamCursor


cdef struct ClaimRule:
    int64_t now_ms             # Unix time
    int64_t min_idle_ms        # entries delivered more recently are left alone
    int64_t delivery_ms        # the delivery time set on claimed entries
    int64_t delivery_count     # the delivery count set on them; -1: see count_up
    bint count_up              # without delivery_count: one more than before
    bint force                 # also claim entries that are not pending


# What happened to an entry that was to be claimed.
cdef enum Claim:
    CLAIM_LEFT = 0             # nothing happened: not pending, or not idle for long enough
    CLAIM_MOVED = 1            # the consumer has it now
    CLAIM_DROPPED = 2          # it was pending but is no longer in the stream; its pending record was removed


cdef int64_t distance_from_first(Stream stream, StreamID id) noexcept nogil
cdef bint lag_of(Stream stream, Group group, int64_t *out) noexcept nogil   # False: unknown
cdef void advance(Stream stream, Group group, StreamID id) noexcept nogil
cdef Consumer seen_consumer(Group group, bytes name, int64_t now_ms)  # created if missing
cdef int claim_one(
    Group group, PelRecord *record, StreamID id, bint exists, Consumer consumer, const ClaimRule *rule) except -1 nogil
cdef inline int64_t idle_of(const PelRecord *record, int64_t now_ms) noexcept nogil:
    """Milliseconds since the last delivery, or since 1970 when unowned; negative when the clock was set back."""
    return now_ms - delivered_ms(record)


cdef inline bint is_claimable(const PelRecord *record, const ClaimRule *rule) noexcept nogil:
    """Whether a pending entry has been idle for long enough."""
    return rule.min_idle_ms <= 0 or record.owner == NO_OWNER or idle_of(record, rule.now_ms) >= rule.min_idle_ms


# --- Finding entries one after another ------------------------------------------------------------------------------

cdef struct Finder:
    # Looks up entries by ID; fast when the IDs ascend and most entries between them are requested. Invalid after any
    # change of the stream's entries.
    StreamCursor cursor        # at the last entry found
    StreamID asked             # the last ID requested
    bint started
    bint at_end                # no entry is at or after `asked`; otherwise the cursor is on the first such entry


cdef inline void finder_init(Finder *finder) noexcept nogil:
    finder.started = False


cdef bint find_entry(Finder *finder, Stream stream, StreamID id) noexcept nogil    # False: no live entry has this ID
