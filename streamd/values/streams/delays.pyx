# cython: language_level=3, boundscheck=False, wraparound=False
"""Delays: entries that move to another stream when they are due, and entries that expire.

    FEEDS jobs DUE due UNIQUE id       XADD later * due 1795255200000 id 7 job x        waits in `later`, then
                                       MULTI, XADD jobs <now> id 7 job x, XDEL later <id>, EXEC
    EXPIRES until                      XDELEX later DELREF IDS 1 <id>

An entry is in one of the streams, and never in both, for everybody who reads files or follows as a replica: a move is
one unit. Whatever waits is a plain entry; the index of it (due_index.pyx) is in memory only. Moves are ordered by time,
then by ID, except that the index must have read the stream first: after a start, those that are overdue come first.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from streamd.core.clock cimport monotonic_us
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, make_id
from streamd.engine.listpack cimport LpValue
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.values.streams.appending cimport append
from streamd.values.streams.arguments cimport id_text
from streamd.values.streams.due_index cimport DueIndex, bytes_of
from streamd.values.streams.merging cimport keep_dense
from streamd.values.streams.node cimport StreamCursor, cursor_pair
from streamd.values.streams.stream cimport DELREF, Stream

from streamd.delivery.progress import progress_of
from streamd.errors import CommandError
from streamd.keyspace.hash_slot import slot_of

__all__ = ["Delays"]

cdef enum:
    STEP = 8                   # entries between two looks at the clock
    MOST_AT_ONCE = 1000        # entries in one unit
    MOST_REPLACED = 1000       # entries that are deleted at once because later ones have replaced them
    RETRY_MS = 1000            # after a move that was impossible


@cython.final
cdef class Delays:
    """What the rule of a stream says about the times in its entries."""

    def __init__(self, bytes key not None, rule not None):
        self.key = key
        self.target = rule.feeds
        if rule.feeds:
            self.waiting = DueIndex(rule.due, rule.unique, True)
            self.replaces = len(rule.unique) > 0
        if rule.expires:
            self.expiring = DueIndex(rule.expires, b"", False)

    def check_invariants(self):
        if self.waiting is not None:
            self.waiting.check_invariants()
        if self.expiring is not None:
            self.expiring.check_invariants()

    cpdef bint follow(self, Context ctx, Stream stream, long long until_us, bint may_act) except -1:
        """Read new entries, then delete and move what is due; returns whether there is more to do now.

        until_us  the monotonic time at which a slice ends
        may_act   whether entries may be deleted and moved: not on a replica
        """
        cdef bint has_more = False
        stream.merges = True
        if self.expiring is not None:
            has_more = not self.expiring.catch_up(stream, until_us)
        if self.waiting is not None and not has_more:
            has_more = not self.waiting.catch_up(stream, until_us)
            if self.waiting.superseded and may_act:
                self.delete_superseded(ctx, stream)
                has_more = has_more or len(self.waiting.superseded) > 0
        if has_more:
            return True
        self.note_unreadable(ctx)
        if not may_act:
            return False
        if self.expiring is not None and self.expire(ctx, stream, until_us):
            return True
        return self.waiting is not None and self.move_due(ctx, stream, until_us)

    cdef int replace(self, Context ctx, Stream stream, list request, long long until_us) except -1:
        """Delete what the entry replaces that a request has added. The effect of that comes first.

        request  None: its effect has been added
        """
        self.waiting.catch_up(stream, until_us)
        if self.waiting.superseded:
            if ctx.effects is None:
                ctx.propagate(request)
            self.delete_superseded(ctx, stream)
        return 0

    cdef int delete_superseded(self, Context ctx, Stream stream) except -1:
        """Delete waiting entries that a later one has replaced, a slice of them."""
        cdef list effect = [b"XDEL", self.key]
        cdef StreamID id
        cdef list ids = self.waiting.superseded[-MOST_REPLACED:]
        del self.waiting.superseded[-MOST_REPLACED:]
        for ms, seq in ids:
            id = make_id(ms, seq)
            if self.waiting.is_replaced(id) and stream.remove(id):
                keep_dense(stream, id)
                effect.append(id_text(id))
        if len(effect) > 2:
            progress_of(ctx, self.key).replaced += len(effect) - 2
            self.note_deleted(ctx, effect, len(effect) - 2)
        return 0

    cdef bint expire(self, Context ctx, Stream stream, long long until_us) except -1:
        """Delete entries whose time is over; returns whether there are more."""
        cdef StreamCursor cursor
        cdef bint ignored
        cdef list ids = []
        while self.expiring.find_due(ctx.now_ms, &cursor, &ignored):
            self.expiring.take()
            ids.append(id_text(cursor.id))
            stream.remove_with(cursor.id, DELREF)
            keep_dense(stream, cursor.id)
            if len(ids) % STEP == 0 and (len(ids) == MOST_AT_ONCE or monotonic_us() >= until_us):
                break
        if ids:
            progress_of(ctx, self.key).expired += len(ids)
            self.note_deleted(ctx, [b"XDELEX", self.key, b"DELREF", b"IDS", b"%d" % len(ids)] + ids, len(ids))
        return self.expiring.first_ms() <= ctx.now_ms

    cdef bint move_due(self, Context ctx, Stream stream, long long until_us) except -1:
        """Move entries that are due; returns whether there are more."""
        cdef StreamCursor cursor
        cdef bint is_superseded
        cdef int moved = 0
        cdef list ids = []
        progress = progress_of(ctx, self.key)
        if ctx.now_ms < self.retry_ms:
            return False
        try:
            if self.waiting.first_ms() <= ctx.now_ms:
                self.require_same_slot(ctx)
            while self.waiting.find_due(ctx.now_ms, &cursor, &is_superseded):
                if not is_superseded:
                    append(ctx, self.target, self.words_of(&cursor))
                    moved += 1
                self.waiting.take()
                stream.remove(cursor.id)
                keep_dense(stream, cursor.id)
                ids.append(id_text(cursor.id))
                if len(ids) % STEP == 0 and (len(ids) == MOST_AT_ONCE or monotonic_us() >= until_us):
                    break
        except CommandError as error:
            progress.error = str(error)
            self.retry_ms = ctx.now_ms + RETRY_MS
            return False
        finally:
            if ids:
                progress.moved += moved
                progress.replaced += len(ids) - moved
                self.note_deleted(ctx, [b"XDEL", self.key] + ids, len(ids))
        progress.error = ""
        return self.waiting.first_ms() <= ctx.now_ms

    cdef int note_unreadable(self, Context ctx) except -1:
        """Show how many entries have times that are not numbers, if that has changed."""
        cdef uint64_t unreadable = 0
        if self.waiting is not None:
            unreadable += self.waiting.unreadable
        if self.expiring is not None:
            unreadable += self.expiring.unreadable
        if unreadable != self.unreadable:
            self.unreadable = unreadable
            progress_of(ctx, self.key).unreadable = unreadable
        return 0

    cdef int require_same_slot(self, Context ctx) except -1:
        if ctx.config.cluster_enabled and slot_of(self.target) != slot_of(self.key):
            raise CommandError("CROSSSLOT The stream is in another slot")     # the rule was written by hand
        return 0

    cdef list words_of(self, StreamCursor *cursor):
        """The fields and values that move. The time is left out, unless it is all that the entry has."""
        cdef LpValue field, value
        cdef list words = []
        cdef list left_out = []
        while cursor.pairs_left:
            cursor_pair(cursor, &field, &value)
            pair = [bytes_of(&field), bytes_of(&value)]
            if pair[0] == self.waiting.field:
                left_out += pair
            else:
                words += pair
        return words or left_out

    cdef int note_deleted(self, Context ctx, list effect, Py_ssize_t count) except -1:
        """Entries were deleted, by this request."""
        ctx.dirty += <unsigned long long>count
        ctx.db.touched(self.key)
        ctx.db.signal_ready(self.key)       # consumers that a rule limits may have room
        ctx.db.event(EVENT_STREAM, b"xdel", self.key)
        if ctx.is_propagating:
            ctx.propagate(effect)
        return 0

    cdef int forget(self) except -1:
        """The stream is gone: let go of it."""
        if self.waiting is not None:
            self.waiting.clear()
        if self.expiring is not None:
            self.expiring.clear()
        return 0

    cdef int64_t next_ms(self) noexcept:
        """When there is something to do next, Unix time in ms; INT64_MAX: never."""
        cdef int64_t first = INT64_MAX
        if self.waiting is not None:
            first = max(self.waiting.first_ms(), self.retry_ms)
        if self.expiring is not None:
            first = min(first, self.expiring.first_ms())
        return first
