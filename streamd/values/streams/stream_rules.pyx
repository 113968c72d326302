# cython: language_level=3, boundscheck=False, wraparound=False
"""StreamRules: what the rules of streams do, without being asked, in slices between the commands of clients.

    a key changes    ─▶ key_touched ─▶ marked ─▶ work, as soon as the loop is idle: a slice of each marked stream
    an entry is due  ─▶ ring        ─▶ marked
    each second      ─▶ all         ─▶ marked      so a clock that jumps is noticed within a second

The strings that hold the rules (delivery/rules.py) decide; this class compares them with what it knows, when one of
them has changed and each second; that takes time in proportion to their number, in one piece. While no stream has a
rule of its own, it does not observe keys, and costs nothing.
Each change is a unit of its own, as if a client had requested it. While the server must not change data by itself
(acting.pyx), or its slot is being moved, it only keeps the index of times up, so that a promoted replica can go on.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memcmp

from streamd.core.capability cimport Capability
from streamd.core.clock cimport monotonic_us
from streamd.core.context cimport Context, Frame
from streamd.core.dispatch cimport Dispatcher
from streamd.core.effects cimport EVERYWHERE
from streamd.keyspace.database cimport Database
from streamd.keyspace.hash_slot cimport slot_of
from streamd.values.streams.acting cimport is_held
from streamd.values.streams.default_streams cimport DefaultStreams
from streamd.values.streams.delays cimport Delays
from streamd.values.streams.retention cimport Retention
from streamd.values.streams.stream cimport Stream

from streamd.core.info import Fields
from streamd.delivery.defaults import stream_rule_in_force
from streamd.delivery.progress import all_progress
from streamd.delivery.rules import NO_STREAM_RULE, feeds_itself, parse_rules, stream_of_rules
from streamd.delivery.trimmed import REASONS, trimmed_of
from streamd.keyspace.database import RESERVED

__all__ = ["StreamRules"]

cdef bytes PREFIX = RESERVED

cdef enum:
    SLICE_US = 300             # between two turns of clients
    MOST_CHANGES = 100         # ... of entries one by one


cdef class RuledStream:
    """A stream that has a rule of its own.

    rule       the StreamRule in it
    is_marked  it is in the list of those to be looked at
    is_exact   ... to the last entry, not only for whole nodes
    """

    cdef Database db
    cdef bytes key
    cdef object rule
    cdef Delays delays                     # None: no entry has a time
    cdef Retention retention               # None: its entries are kept
    cdef bint is_marked
    cdef bint is_exact


cdef bint has_delays(RuledStream ruled) noexcept:
    return ruled.delays is not None


cdef class StreamRules(Capability):
    """The streams with rules, and what is to be done for them.

    defaults      finds streams that a rule of the configuration is about; `version` is what was last read of it
    arrived       (Database, key) of streams that have changed, and may have such a rule
    streams       by database: by key
    texts         by database: the string of rules as it was read, by its key; None: the key holds no rules
    marked        RuledStream: those to be looked at, first come, first served
    timed         RuledStream: those with delays
    timer         rings when the next entry is due, at timer_ms (Unix time; 0: no entry is due)
    budget        changes that this slice may still make
    current       the one that is being changed; its own changes do not mark it
    is_stale      strings may have changed
    is_scheduled  `work` will be called
    """

    observer_rank = 20
    info = {
        "delivery": (
            Fields(
                "entries_delayed_moved entries_delayed_replaced entries_expired entries_with_bad_time"
                " delays_not_moving",
                lambda self: self.sums(),
            ),
            Fields(" ".join([f"trimmed_by_{each}" for each in REASONS]), lambda self: self.amounts()),
        ),
    }

    cdef object host
    cdef DefaultStreams defaults
    cdef int version
    cdef dict arrived
    cdef list streams
    cdef list texts
    cdef list marked
    cdef list timed
    cdef object timer
    cdef int64_t timer_ms
    cdef int budget
    cdef RuledStream current
    cdef bint is_stale
    cdef bint is_scheduled

    def __init__(self, host):
        self.host = host
        self.defaults = host.get(DefaultStreams)
        self.arrived = {}
        self.streams = [{} for _ in host.databases]
        self.texts = [{} for _ in host.databases]
        self.marked = []
        self.timed = []

    def amounts(self):
        """What was trimmed since the server started, by the option that it was trimmed for."""
        by_reason = trimmed_of(self.host.dispatcher.context).by_reason
        return tuple([f"entries={by_reason[each].entries},bytes={by_reason[each].bytes}" for each in REASONS])

    def sums(self):
        """What was done with times since the server started, for all streams."""
        return all_progress(self.host.dispatcher.context).sums()

    # --- Which streams have rules -------------------------------------------------------------------------------------

    cdef int refresh(self) except -1:
        """Learn the rules from the strings that hold them."""
        cdef Dispatcher dispatcher = self.host.dispatcher
        cdef Context ctx = dispatcher.context
        cdef Database db
        cdef dict known, found, texts
        cdef RuledStream ruled
        cdef bint has_any = False
        self.is_stale = False
        self.version = self.defaults.version
        self.arrived.clear()
        for db in self.host.databases:
            known = self.streams[db.index]
            texts = {}
            if not known and not db.reserved and not self.defaults.is_on:
                self.texts[db.index] = texts
                continue
            found = {}
            for rules_key in db.reserved or ():
                ruled = self.learn(db, rules_key, known, texts)
                if ruled is not None:
                    found[ruled.key] = ruled
            for key in self.defaults.streams_of(db):
                if key not in found:
                    ruled = self.take(db, key, stream_rule_in_force(ctx, db, key), known.get(key))
                    if ruled is not None:
                        found[key] = ruled
            self.streams[db.index] = found
            self.texts[db.index] = texts
            for key in known.keys() - found.keys():
                trimmed_of(ctx).by_stream.pop((db.index, key), None)
                all_progress(ctx).forget(db.index, key)
            has_any = has_any or len(found) > 0
        if not has_any:
            self.marked = []
        self.timed = [ruled for each in self.streams for ruled in (<dict>each).values() if has_delays(ruled)]
        dispatcher.key_changes.observe(self, has_any or self.defaults.is_on)
        return 0

    cdef int welcome(self, Context ctx) except -1:
        """Learn the rules of streams that have come, and have none by command."""
        cdef Database db
        cdef RuledStream ruled
        for db, key in self.arrived:
            known = self.streams[db.index]
            if key not in known and type(db.peek(key)) is Stream:
                ruled = self.take(db, key, stream_rule_in_force(ctx, db, key), None)
                if ruled is not None:
                    known[key] = ruled
                    if has_delays(ruled):
                        self.timed.append(ruled)
        self.arrived.clear()
        return 0

    cdef RuledStream learn(self, Database db, bytes rules_key, dict known, dict texts):
        """The stream that a string is about, if that gives it a rule of its own; `texts` gets the string."""
        cdef bytes key = stream_of_rules(rules_key)
        cdef RuledStream ruled = known.get(key)
        cdef object value = db.peek(rules_key)
        if key is None or type(value) is not bytes:
            texts[rules_key] = None
            return None
        text = (<dict>self.texts[db.index]).get(rules_key)
        if text == value:
            texts[rules_key] = text
            return ruled
        text = bytes(memoryview(value))       # a copy to keep: APPEND changes a string in place
        texts[rules_key] = text
        try:
            rule = parse_rules(text).stream
        except ValueError:
            return None                       # dead_letter_timer.pyx logs it
        return self.take(db, key, rule, ruled)

    cdef RuledStream take(self, Database db, bytes key, object rule, RuledStream ruled):
        """A stream with its rule: what is known of it, if that is still true; None: it has no rule."""
        if rule == NO_STREAM_RULE:
            return None
        if ruled is None or ruled.rule != rule:
            ruled = RuledStream.__new__(RuledStream)
            ruled.db = db
            ruled.key = key
            ruled.rule = rule
            ruled.retention = Retention(rule) if rule.retain else None
            ruled.delays = None
            if rule.expires or (rule.feeds and not feeds_itself(db, key, rule)):
                ruled.delays = Delays(key, rule)
            ruled.is_exact = True
            self.mark(ruled)
        return ruled

    # --- What has changed ---------------------------------------------------------------------------------------------

    cdef int mark(self, RuledStream ruled) except -1:
        if not ruled.is_marked:
            ruled.is_marked = True
            self.marked.append(ruled)
        return self.schedule()

    cdef int schedule(self) except -1:
        if not self.is_scheduled:
            self.is_scheduled = True
            self.host.loop.call_soon(self.work)
        return 0

    cdef int key_touched(self, object db, bytes key, bint by_server) except -1:
        cdef RuledStream ruled = (<dict>self.streams[(<Database>db).index]).get(key)
        if ruled is not None:
            if ruled is not self.current:
                self.mark(ruled)
        elif (
            PyBytes_GET_SIZE(key) > PyBytes_GET_SIZE(PREFIX)
            and memcmp(PyBytes_AS_STRING(key), PyBytes_AS_STRING(PREFIX), <size_t>PyBytes_GET_SIZE(PREFIX)) == 0
        ):
            self.is_stale = True
            self.schedule()
        elif self.defaults.is_on and self.defaults.defaults.stream_rule(key) != NO_STREAM_RULE:
            self.arrived[db, key] = None
            self.schedule()
        return 0

    cdef int flushing(self, object db) except -1:
        self.is_stale = True
        return 0

    cdef int swapping(self, object db, object other) except -1:
        self.is_stale = True
        return 0

    def cron(self, long long now_ms):
        """Notice strings that have come, which no observer saw, and go on with what was held back."""
        cdef Database db
        for db in self.host.databases:
            if len(db.reserved or ()) != len(<dict>self.texts[db.index]):
                self.is_stale = True
        if self.version != self.defaults.version:
            self.is_stale = True
        if self.is_stale or self.arrived or self.marked:
            self.schedule()

    def each_second(self, long long now_ms):
        cdef RuledStream ruled
        self.is_stale = True
        for streams in self.streams:
            for ruled in (<dict>streams).values():
                ruled.is_exact = True
                self.mark(ruled)

    # --- What is done -------------------------------------------------------------------------------------------------

    def work(self):
        """A slice of what is to be done; runs again soon while there is more."""
        cdef Dispatcher dispatcher = self.host.dispatcher
        cdef Context ctx = dispatcher.context
        cdef Database db
        cdef Frame frame
        cdef long long until_us
        cdef bint may_act = not is_held(self.host)
        self.is_scheduled = False
        if self.host.is_loading or dispatcher.is_busy:
            return                            # cron tries again
        if self.is_stale:
            self.refresh()
        if self.arrived:
            self.welcome(ctx)
        if not self.marked:
            return
        until_us = monotonic_us() + SLICE_US
        frame = ctx.frame()
        try:
            ctx.now_ms = dispatcher.unix_ms()
            for db in self.host.databases:
                db.now_ms = ctx.now_ms
            self.budget = MOST_CHANGES
            while self.marked and self.budget > 0 and monotonic_us() < until_us:
                self.follow(ctx, self.marked.pop(0), may_act, until_us)
            if may_act:
                self.set_timer(ctx.now_ms)
        finally:
            self.current = None
            ctx.go_back(frame)
        dispatcher.serve_ready()
        if self.marked:
            self.schedule()

    def catch_up(self):
        """Do all that is to be done now, in one piece."""
        while self.is_scheduled:
            self.work()

    cdef int follow(self, Context ctx, RuledStream ruled, bint may_act, long long until_us) except -1:
        """Do what the rule of a stream asks for, a slice of it.

        may_act  whether this server may change data by itself; if not, it only keeps its index up
        """
        cdef Dispatcher dispatcher = self.host.dispatcher
        cdef object value
        cdef bint has_more = False
        ruled.is_marked = False
        if (<dict>self.streams[ruled.db.index]).get(ruled.key) is not ruled:
            return 0                          # its rule has changed
        value = ruled.db.peek(ruled.key)
        if type(value) is not Stream:
            if ruled.delays is not None:
                ruled.delays.forget()
            return 0
        if dispatcher.router is not None and not dispatcher.router.is_settled(slot_of(ruled.key)):
            may_act = False
        self.current = ruled
        ctx.db = ruled.db
        ctx.effects = []
        if ruled.delays is not None:
            has_more = ruled.delays.follow(ctx, <Stream>value, until_us, may_act, &self.budget)
        if ruled.retention is not None and may_act:
            if ruled.retention.trim(ctx, ruled.key, <Stream>value, ruled.is_exact):
                has_more = True
            else:
                ruled.is_exact = False
        if has_more:
            self.mark(ruled)
        self.finish(ctx)
        return 0

    cdef int set_timer(self, int64_t now_ms) except -1:
        """Be called when the next entry is due, unless that is later than the next second."""
        cdef RuledStream ruled
        cdef int64_t next_ms, first_ms = now_ms + 1000
        for ruled in self.timed:
            next_ms = ruled.delays.next_ms()
            if now_ms < next_ms < first_ms:
                first_ms = next_ms
        if first_ms < now_ms + 1000 and not now_ms < self.timer_ms <= first_ms:
            self.close()
            self.timer_ms = first_ms
            self.timer = self.host.loop.call_later((first_ms - now_ms) / 1000.0, self.ring)
        return 0

    def ring(self):
        """Look at the streams that have an entry that is due."""
        cdef RuledStream ruled
        cdef int64_t now_ms = (<Dispatcher>self.host.dispatcher).unix_ms()
        self.timer = None
        self.timer_ms = 0
        for ruled in self.timed:
            if ruled.delays.next_ms() <= now_ms:
                self.mark(ruled)
        if not self.marked:
            self.set_timer(now_ms)            # the timer was early

    def close(self):
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    cdef int finish(self, Context ctx) except -1:
        """Pass the effects of one change on, as a unit."""
        cdef Dispatcher dispatcher = self.host.dispatcher
        for effect in ctx.effects:
            dispatcher.effects.add(ctx.db.index, effect, EVERYWHERE)
        dispatcher.effects.finish_unit()
        ctx.effects = []
        return 0
