# cython: language_level=3, boundscheck=False, wraparound=False
"""DeadLetters: once a second, the server moves entries to dead-letter streams that nobody claims, and removes idle
consumers.

Two kinds of entries: those of groups with ACKWAIT that have been pending for longer than that after their last
delivery, and those that could not be moved when they should have been. Each move is a unit of its own, as if a client
had requested it. Streams are looked at in slices. The pending entries of a group are looked through by ID, some
thousand in a slice of time, and the next second goes on where this one has ended.

What could not be moved since it is in the archive alone is read from there, for one group at a time. The entries stay
pending for that time, and are moved when the answer is there, if they are still to be moved then.

Consumers of groups with CONSUMERTTL are removed by idle_consumers.pyx. Whoever was seen is not in files, nor known to
replicas, unless it got or claimed something: so nobody is idle before this server could have seen it for that time.
"""

from libc.stdint cimport int64_t

from streamd.core.capability cimport Capability
from streamd.core.clock cimport monotonic_us
from streamd.core.context cimport Context, Frame
from streamd.core.dispatch cimport Dispatcher
from streamd.core.effects cimport EVERYWHERE
from streamd.engine.ids cimport StreamID, make_id
from streamd.keyspace.database cimport Database
from streamd.keyspace.hash_slot cimport slot_of
from streamd.values.streams.acting cimport is_held
from streamd.values.streams.dead_letters cimport move
from streamd.values.streams.default_streams cimport DefaultStreams
from streamd.values.streams.delivery cimport idle_of
from streamd.values.streams.group cimport Group
from streamd.values.streams.idle_consumers cimport idle_consumers, note_waiting, retire
from streamd.values.streams.pel cimport PelCursor, PelRecord, pel_find, pel_next, pel_seek
from streamd.values.streams.ruled_group cimport RuledGroup, find_ruled
from streamd.values.streams.stream cimport Stream
from streamd.values.streams.tiered_groups cimport ArchivedPending, archived_for_server, is_maybe_archived

import logging
from functools import partial

from streamd.core.info import Fields
from streamd.delivery.rules import read_rules, stream_of_rules
from streamd.delivery.state import Place, state_of
from streamd.errors import CommandError, printable

__all__ = ["DeadLetters"]

log = logging.getLogger("streamd")

cdef enum:
    SLICE_US = 1000            # between two turns of clients
    STEP = 100                 # pending entries between two looks at the clock, or read from the archive at a time


cdef class DeadLetters(Capability):
    """The rules that need a clock.

    left       what this second has still to look at: (Database, keys, whether they are those of streams)
    resume     where to go on in the pending entries of a group, by Place: (ms, seq)
    logged     keys of rules that do not parse, which the log has
    is_reading entries are being read from the archive
    most_read  how many at a time: one, after an error, which may be that of a single one
    acting_ms  Unix time of the first second since which this server has been the one that acts; 0: it does not
    """

    cdef object host
    cdef DefaultStreams defaults
    cdef list left
    cdef dict resume
    cdef set logged
    cdef bint is_reading
    cdef int most_read
    cdef long long until_us
    cdef int64_t acting_ms

    info = {
        "delivery": (
            Fields("dead_letters_moved dead_letters_not_moved consumers_removed", lambda self: self.figures()),
        ),
    }

    def __init__(self, host):
        self.host = host
        self.defaults = host.get(DefaultStreams)
        self.left = []
        self.resume = {}
        self.logged = set()
        self.most_read = STEP

    def figures(self):
        """Entries moved since the server started, those that could not be moved, and consumers removed."""
        state = state_of(self.host.dispatcher.context)
        return state.moved, sum([len(failure.ids) for failure in state.failures.values()]), state.consumers_removed

    def each_second(self, long long now_ms):
        cdef Database db
        state = state_of(self.host.dispatcher.context)
        if is_held(self.host):
            self.acting_ms = 0
            return
        self.acting_ms = self.acting_ms or now_ms
        if state.failures:
            self.act(self.try_all_again)
        if self.left:
            return                            # this second goes on where the last one has come to
        for db in self.host.databases:
            if db.reserved is not None:
                self.left.append((db, list(db.reserved), False))
            if self.defaults.is_on:
                self.left.append((db, list(self.defaults.streams_of(db)), True))
        if self.left:
            self.go_on()

    def go_on(self):
        """Look at some streams; runs again soon while others are left."""
        if is_held(self.host):
            self.left.clear()
            return
        self.act(self.follow_some)
        if self.left:
            self.host.loop.call_soon(self.go_on)

    cdef int act(self, object work) except -1:
        """Do a slice of work, with a context of its own."""
        cdef Dispatcher dispatcher = self.host.dispatcher
        cdef Context ctx = dispatcher.context
        cdef Database db
        cdef Frame frame = ctx.frame()
        self.until_us = monotonic_us() + SLICE_US
        try:
            ctx.now_ms = dispatcher.unix_ms()
            for db in self.host.databases:
                db.now_ms = ctx.now_ms
            work(ctx)
        finally:
            ctx.go_back(frame)
        return dispatcher.serve_ready()

    def follow_some(self, Context ctx):
        while self.left and monotonic_us() < self.until_us:
            db, keys, is_default = self.left[len(self.left) - 1]
            if not keys:
                self.left.pop()
            elif is_default:
                self.follow_defaults(ctx, db, keys.pop())
            else:
                self.follow_rules(ctx, db, keys.pop())

    def try_all_again(self, Context ctx):
        failures = state_of(ctx).failures
        for place in list(failures):
            self.try_again(ctx, place, failures[place])

    cdef int try_again(self, Context ctx, object place, object failure) except -1:
        """Move what could not be moved before, or forget it: it was acknowledged, or the rule has changed."""
        cdef RuledGroup ruled = self.open_group(ctx, ctx.databases[place.db_index], place.stream, place.group)
        cdef list archived = []
        for ms, seq in list(failure.ids)[:STEP]:
            if not self.is_to_move(ctx, ruled, place, ms, seq):
                continue
            if is_maybe_archived(ctx, ruled.key, ruled.stream, make_id(ms, seq)):
                archived.append((ms, seq))
            elif not self.move_one(ctx, ruled, make_id(ms, seq)):
                return 0
        if archived and not self.is_reading:
            self.read_archived(ctx, ruled, place, archived[:self.most_read])
        return 0

    cdef bint is_to_move(self, Context ctx, RuledGroup ruled, object place, object ms, object seq) except -1:
        """Whether an entry that could not be moved still has to be; if not, it is forgotten."""
        cdef PelRecord *record = NULL if ruled is None else pel_find(&ruled.group.pel, make_id(ms, seq))
        if record is not NULL and ruled.is_used_up(record):
            return True
        state_of(ctx).forget(place, (ms, seq))
        return False

    cdef int read_archived(self, Context ctx, RuledGroup ruled, object place, list ids) except -1:
        """Read entries that are not in memory; they are moved when they have been read."""
        cdef ArchivedPending archived = find_archived(ctx, ruled, ids)
        wanted = archived.wanted(ctx, ruled.key, ruled.stream)
        ctx.tiers.fetch(ctx.db, wanted, partial(self.has_read, place, ids))
        self.is_reading = True              # not if that fails: nothing would take it back
        return 0

    def has_read(self, place, ids, fetched):
        self.is_reading = False
        if not is_held(self.host):
            self.act(partial(self.move_archived, place, ids, fetched))

    def move_archived(self, place, ids, fetched, Context ctx):
        """Move entries that were read, and have the next ones read."""
        cdef RuledGroup ruled = self.open_group(ctx, ctx.databases[place.db_index], place.stream, place.group)
        cdef ArchivedPending archived
        cdef bint is_moved = False
        failures = state_of(ctx).failures
        ids = [(ms, seq) for ms, seq in ids if self.is_to_move(ctx, ruled, place, ms, seq)]
        if not ids or ctx.tiers is None:
            return
        archived = find_archived(ctx, ruled, ids)
        try:
            if archived is not None and archived.ids:
                archived.part = fetched.part(archived.wanted(ctx, ruled.key, ruled.stream))
                if archived.part is None:
                    return                  # the next second asks again
            self.most_read = STEP
        except CommandError as error:
            self.most_read = 1
            # The others, and those of other groups, are tried before it.
            state_of(ctx).forget(place, ids[0])
            state_of(ctx).note_failure(place, ids[0], str(error))
            failures[place] = failures.pop(place)
            return
        for ms, seq in ids:
            is_moved |= self.move_one(ctx, ruled, make_id(ms, seq), archived)
        if is_moved and place in failures:
            self.try_again(ctx, place, failures[place])

    cdef int follow_rules(self, Context ctx, Database db, bytes key) except -1:
        """Look through the groups of one stream that have ACKWAIT or CONSUMERTTL."""
        cdef bytes stream_key = stream_of_rules(key)
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
            self.follow_group(ctx, db, stream_key, name, rule)
        return 0

    cdef int follow_defaults(self, Context ctx, Database db, bytes key) except -1:
        """The same for the groups that have their rules from the configuration."""
        cdef object value = db.peek(key)
        if type(value) is not Stream:
            return 0
        try:
            own = read_rules(db, key)
        except ValueError:
            return 0
        for name in list((<Stream>value).groups):
            rule = None if name in own else self.defaults.defaults.group_rule(key, name)
            if rule is not None:
                self.follow_group(ctx, db, key, name, rule)
        return 0

    cdef int follow_group(self, Context ctx, Database db, bytes key, bytes name, object rule) except -1:
        """Do what the rule of one group wants done by the clock."""
        cdef Dispatcher dispatcher = self.host.dispatcher
        cdef RuledGroup ruled
        if not (rule.ack_wait_ms or rule.consumer_ttl_ms) or monotonic_us() >= self.until_us:
            return 0
        if dispatcher.router is not None and not dispatcher.router.is_settled(slot_of(key)):
            return 0
        ruled = self.open_group(ctx, db, key, name)
        if ruled is None:
            return 0
        if ruled.ack_wait_ms:
            self.look_through(ctx, ruled, Place(db.index, key, name))
        if ruled.consumer_ttl_ms:
            self.remove_idle(ctx, ruled)
        return 0

    cdef int remove_idle(self, Context ctx, RuledGroup ruled) except -1:
        """Remove consumers that were not seen for too long, each in units of its own."""
        cdef bint has_more
        note_waiting(ctx, ruled)
        for name in idle_consumers(ctx, ruled, self.acting_ms):
            has_more = True
            while has_more:
                if monotonic_us() >= self.until_us:
                    return 0
                self.begin(ctx)
                has_more = retire(ctx, ruled, name)
                self.finish(ctx)
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

    cdef bint move_one(self, Context ctx, RuledGroup ruled, StreamID id, ArchivedPending archived=None) except -1:
        """Move one entry, as a unit of its own."""
        cdef bint is_moved
        self.begin(ctx)
        is_moved = move(ctx, ruled, id, False, archived)
        self.finish(ctx)
        return is_moved

    cdef int begin(self, Context ctx) except -1:
        """Begin a unit of effects."""
        ctx.effects = []
        return 0

    cdef int finish(self, Context ctx) except -1:
        """Pass the effects of a unit on."""
        cdef Dispatcher dispatcher = self.host.dispatcher
        for effect in ctx.effects:
            dispatcher.effects.add(ctx.db.index, effect, EVERYWHERE)
        dispatcher.effects.finish_unit()
        return 0


cdef ArchivedPending find_archived(Context ctx, RuledGroup ruled, list ids):
    """Those entries, (ms, seq), of which the archive is asked; None: no group reads it, or memory has everything."""
    cdef ArchivedPending archived = archived_for_server(ctx, ruled.key, ruled.stream)
    if archived is not None:
        for ms, seq in ids:
            archived.add(ruled.stream, make_id(ms, seq))
    return archived
