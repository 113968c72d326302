# cython: language_level=3, boundscheck=False, wraparound=False
"""DeadLetters: once a second, the server moves entries to dead-letter streams that nobody claims.

Two kinds of entries: those of groups with ACKWAIT that have been pending for longer than that after their last
delivery, and those that could not be moved when they should have been. Each move is a unit of its own, as if a client
had requested it. The pending entries of a group are looked through by ID, some thousand in a slice of time, and the
next second goes on where this one has ended.
"""

from streamd.core.capability cimport Capability
from streamd.core.clock cimport monotonic_us
from streamd.core.context cimport Context, Frame
from streamd.core.dispatch cimport Dispatcher
from streamd.core.effects cimport EVERYWHERE
from streamd.engine.ids cimport StreamID, make_id
from streamd.keyspace.database cimport Database
from streamd.values.streams.acting cimport is_held
from streamd.values.streams.dead_letters cimport move
from streamd.values.streams.delivery cimport idle_of
from streamd.values.streams.group cimport Group
from streamd.values.streams.pel cimport PelCursor, PelRecord, pel_find, pel_next, pel_seek
from streamd.values.streams.ruled_group cimport RuledGroup, find_ruled
from streamd.values.streams.stream cimport Stream

import logging

from streamd.core.info import Fields
from streamd.delivery.rules import read_rules, stream_of_rules
from streamd.delivery.state import Place, state_of
from streamd.errors import printable

__all__ = ["DeadLetters"]

log = logging.getLogger("streamd")

cdef enum:
    SLICE_US = 1000            # of a second
    STEP = 100                 # pending entries between two looks at the clock


cdef class DeadLetters(Capability):
    """The rules that need a clock.

    resume  where to go on in the pending entries of a group, by Place: (ms, seq)
    logged  keys of rules that do not parse, which the log has
    """

    cdef object host
    cdef dict resume
    cdef set logged
    cdef long long until_us

    info = {
        "delivery": (Fields("dead_letters_moved dead_letters_not_moved", lambda self: self.figures()),),
    }

    def __init__(self, host):
        self.host = host
        self.resume = {}
        self.logged = set()

    def figures(self):
        """Entries moved since the server started, and those that could not be moved."""
        state = state_of(self.host.dispatcher.context)
        return state.moved, sum([len(failure.ids) for failure in state.failures.values()])

    def each_second(self, long long now_ms):
        cdef Dispatcher dispatcher = self.host.dispatcher
        cdef Context ctx = dispatcher.context
        cdef Database db
        cdef Frame frame
        state = state_of(ctx)
        if is_held(self.host) or not (state.failures or any([db.reserved for db in self.host.databases])):
            return
        self.until_us = monotonic_us() + SLICE_US
        frame = ctx.frame()
        try:
            ctx.now_ms = now_ms
            for db in self.host.databases:
                db.now_ms = now_ms
            for place in list(state.failures):
                self.try_again(ctx, place, state.failures[place])
            for db in self.host.databases:
                for key in list(db.reserved or ()):
                    self.follow_rules(ctx, db, key)
        finally:
            ctx.go_back(frame)
        dispatcher.serve_ready()

    cdef int try_again(self, Context ctx, object place, object failure) except -1:
        """Move what could not be moved before, or forget it: it was acknowledged, or the rule has changed."""
        cdef RuledGroup ruled = self.open_group(ctx, ctx.databases[place.db_index], place.stream, place.group)
        cdef PelRecord *record
        for ms, seq in list(failure.ids)[:STEP]:
            record = NULL if ruled is None else pel_find(&ruled.group.pel, make_id(ms, seq))
            if record is NULL or not ruled.is_used_up(record):
                state_of(ctx).forget(place, (ms, seq))
            elif not self.move_one(ctx, ruled, make_id(ms, seq)):
                return 0
        return 0

    cdef int follow_rules(self, Context ctx, Database db, bytes key) except -1:
        """Look through the groups of one stream that have ACKWAIT."""
        cdef bytes stream_key = stream_of_rules(key)
        cdef RuledGroup ruled
        try:
            if stream_key is None:
                raise ValueError("the key has not the name that goes with a stream")
            rules = read_rules(db, stream_key)
        except ValueError as error:
            if key not in self.logged:
                self.logged.add(key)
                log.warning("Rules at '%s' are not obeyed: %s", printable(key), error)
            return 0
        self.logged.discard(key)
        for name, rule in rules.items():
            if rule.ack_wait_ms and monotonic_us() < self.until_us:
                ruled = self.open_group(ctx, db, stream_key, name)
                if ruled is not None:
                    self.look_through(ctx, ruled, Place(db.index, stream_key, name))
        return 0

    cdef RuledGroup open_group(self, Context ctx, Database db, bytes key, bytes name):
        """A group, or None if it is missing or has no rule. The context changes to its database."""
        cdef object value = db.peek(key)
        cdef Group group = (<Stream>value).groups.get(name) if type(value) is Stream else None
        if group is None:
            return None
        ctx.db = db
        return find_ruled(ctx, key, <Stream>value, group)

    cdef int look_through(self, Context ctx, RuledGroup ruled, object place) except -1:
        cdef PelCursor walk
        cdef PelRecord *record
        cdef StreamID id
        cdef int steps = 0
        ms, seq = self.resume.pop(place, (0, 0))
        pel_seek(&ruled.group.pel, &walk, -1, make_id(ms, seq))
        record = pel_next(&walk)
        while record is not NULL:
            steps += 1
            id = record.id
            if steps % STEP == 0 and monotonic_us() >= self.until_us:
                self.resume[place] = (id.ms, id.seq)
                break
            if ruled.is_used_up(record) and idle_of(record, ctx.now_ms) > ruled.ack_wait_ms:
                self.move_one(ctx, ruled, id)
            record = pel_next(&walk)
        return 0

    cdef bint move_one(self, Context ctx, RuledGroup ruled, StreamID id) except -1:
        """Move one entry, as a unit of its own."""
        cdef Dispatcher dispatcher = self.host.dispatcher
        cdef bint is_moved
        ctx.effects = []
        is_moved = move(ctx, ruled, id, False)
        for effect in ctx.effects:
            dispatcher.effects.add(ctx.db.index, effect, EVERYWHERE)
        dispatcher.effects.finish_unit()
        return is_moved
