# cython: language_level=3
"""A group with a rule, during one command. See ruled_group.pyx."""

from libc.stdint cimport int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.key_order cimport KeyOrder
from streamd.values.streams.pel cimport PelCursor, PelRecord
from streamd.values.streams.stream cimport Stream, StreamCursor


cdef class RuledGroup:
    cdef bytes key                        # of the stream
    cdef Stream stream
    cdef Group group
    cdef bytes dead_letter                # key of the stream that entries are moved to; empty: they are not
    cdef uint64_t limit                   # the delivery count from which on an entry is not delivered again
    cdef int64_t ack_wait_ms              # 0: nothing is moved without a claim
    cdef int64_t back_off_ms              # after the first delivery; 0: none
    cdef double factor                    # by which it grows with each delivery
    cdef int64_t max_back_off_ms
    cdef double jitter                    # the part of it by which it varies, 0 to 1
    cdef uint64_t suspect                 # the delivery count from which on an entry is delivered alone
    cdef int64_t max_pending              # entries in the hands of consumers, from which on `>` gets none; 0: no limit
    cdef int64_t consumer_pending         # the same for each consumer
    cdef int64_t consumer_ttl_ms          # how long a consumer may be idle; 0: for ever

    cdef StreamID archived                # entries at or below it that are not in memory may be in the archive
    cdef KeyOrder order                   # of the pending entries by key; None: the rule does not order them
    cdef uint64_t held                    # entries that may be passed over because of their key

    cdef inline bint is_used_up(self, const PelRecord *record) noexcept nogil:
        """Whether a pending entry is not delivered again."""
        return record.delivery_count >= self.limit

    cdef inline bint is_suspect(self, const PelRecord *record) noexcept nogil:
        """Whether a pending entry is delivered alone: it may be the reason why its consumers did not acknowledge it."""
        return record.delivery_count >= self.suspect

    cdef int64_t ready_ms(self, const PelRecord *record) noexcept nogil     # Unix time from which on it may be claimed
    cdef bint is_held(self, const PelRecord *record, int64_t now_ms) noexcept nogil
    cdef bint waits_for_turn(self, const PelRecord *record) noexcept nogil     # passed over: `>` delivers it
    cdef bint is_blocked(self, const PelRecord *record) except -1              # ... but not yet
    cdef int64_t room_of(self, Consumer consumer) noexcept nogil    # how many new entries a consumer may get


# --- Where no rules are, this costs a look at two fields -----------------------------------------------------------

cdef inline bint has_rules(Context ctx) noexcept:
    """Whether there are any rules for streams of the selected database."""
    return ctx.db.reserved is not None or ctx.has_default_rules


cdef inline RuledGroup find_ruled(Context ctx, bytes key, Stream stream, Group group):
    """The group with its rule, or None: it has none, or others decide."""
    return find_rule_of(ctx, key, stream, group) if has_rules(ctx) and not ctx.is_replaying else None


cdef inline int signal_room(Context ctx, bytes key) except -1:
    """An entry may have left the hands of a consumer: run the readers again that a rule may have made wait."""
    return ctx.db.signal_ready(key) if has_rules(ctx) else 0


cdef RuledGroup find_rule_of(Context ctx, bytes key, Stream stream, Group group)


# --- Order by key -----------------------------------------------------------------------------------------------------

cdef int follow_order(RuledGroup ruled, bytes field) except -1
cdef bint is_passed_over(const PelRecord *record) noexcept nogil
cdef bint find_key(StreamCursor cursor, bytes field, uint64_t *key) noexcept


# --- What a claim without IDs delivers ------------------------------------------------------------------------------

cdef struct ClaimWalk:
    # A walk over what a claim delivers, oldest delivery first. See next_deliverable.
    PelCursor cursor
    int64_t now_ms
    int64_t min_idle_ms
    int skipped                # records of a group with a rule that are not delivered now
    bint has_jumped            # to where an earlier walk was cut
    bint is_cut                # there may be more: this walk has met too many that are not delivered now


cdef int claim_walk_init(
    ClaimWalk *walk, Group group, RuledGroup ruled, int64_t now_ms, int64_t min_idle_ms) except -1
cdef PelRecord *next_deliverable(ClaimWalk *walk, Context ctx, RuledGroup ruled, list used_up) except? NULL
cdef int64_t next_ready_ms(Group group, RuledGroup ruled, int64_t now_ms, int64_t min_idle_ms) except -1
