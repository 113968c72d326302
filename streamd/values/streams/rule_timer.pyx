# cython: language_level=3, boundscheck=False, wraparound=False
"""StreamRules: what the rules of streams do, without being asked, in slices between the commands of clients.

    a key changes    ─▶ key_touched ─▶ marked ─▶ work, as soon as the loop is idle: a slice of each marked stream
    an entry is due  ─▶ ring        ─▶ marked
    each second      ─▶ a walk over all strings with rules ─▶ marked      so a clock that jumps is noticed
    XADD             ─▶ replace_waiting: with UNIQUE, what is replaced goes in the unit of the new entry

The strings that hold the rules (delivery/rules.py) decide. What was read of them is compared with them before each
slice of a stream; one that has changed without notice is found by the walk. While no stream has a rule of its own, this
class does not observe keys, and costs nothing.
Each change is a unit of its own, as if a client had requested it. While the server must not change data by itself
(acting.pyx), or its slot is being moved, it only keeps the index of times up, so that a promoted replica can go on.

A slice is short (LEAST_US), so that nobody notices it; where clients keep the server busy, it is a quarter of the time,
so that what is due does not pile up.
"""

cimport cython
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

from collections import deque
from heapq import heappop, heappush
from itertools import count

from streamd.core.info import Fields
from streamd.delivery.per_server import part_of
from streamd.delivery.progress import all_progress
from streamd.delivery.rule_commands import RulesStored
from streamd.delivery.rules import NO_STREAM_RULE, feeds_itself, key_of_rules, parse_rules, stream_of_rules
from streamd.delivery.trimmed import REASONS, trimmed_of
from streamd.keyspace.database import RESERVED

__all__ = ["StreamRules"]

cdef bytes PREFIX = RESERVED

cdef enum:
    LEAST_US = 100             # a slice, between two turns of clients
    MOST_US = 3000             # ... where these take long
    SHARE = 3                  # ... by what their turns took since the last one


@cython.final
cdef class RulesString:
    """A string with the rules of a stream and its groups."""


@cython.final
cdef class RuledStream:
    """A stream that has a rule of its own."""


cdef class StreamRules(Capability):
    """The streams with rules, and what is to be done for them."""

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

    def __init__(self, host):
        self.host = host
        self.defaults = host.get(DefaultStreams)
        self.present = [0 for _ in host.databases]
        self.strings = [{} for _ in host.databases]
        self.streams = [{} for _ in host.databases]
        self.all = []
        self.changed = {}
        self.marked = deque()
        part_of(host.dispatcher.context, RulesStored).follow = self.stored
        self.alarms = []
        self.numbers = count()

    def amounts(self):
        """What was trimmed since the server started, by the option that it was trimmed for."""
        by_reason = trimmed_of(self.host.dispatcher.context).by_reason
        return tuple([f"entries={by_reason[each].entries},bytes={by_reason[each].bytes}" for each in REASONS])

    def sums(self):
        """What was done with times since the server started, for all streams."""
        return all_progress(self.host.dispatcher.context).sums()

    def apply_settings(self):
        if self.version != self.defaults.version:
            self.is_stale = True
            self.follow_keys()
            self.schedule()

    # --- Which streams have rules -------------------------------------------------------------------------------------

    cdef int find_new(self) except -1:
        """Note the strings that have come, and the streams of the configuration; the walk reads their rules."""
        cdef Database db
        cdef dict strings
        self.is_stale = False
        for db in self.host.databases:
            strings = self.strings[db.index]
            if db.reserved is not None:
                for key in db.reserved - strings.keys():
                    self.learn(db, key)
            if self.version != self.defaults.version:
                for stream in self.defaults.streams_of(db):
                    key = key_of_rules(stream)
                    if key not in strings:
                        self.learn(db, key)
        if self.version != self.defaults.version:
            self.version = self.defaults.version
            self.walked = 0
            self.follow_keys()
        return 0

    cdef RulesString learn(self, Database db, bytes key):
        """A string that has come, or may come for a stream that the configuration is about."""
        cdef RulesString string = RulesString.__new__(RulesString)
        string.place = len(self.all)
        string.db = db
        string.key = key
        string.stream = stream_of_rules(key)
        string.version = -1                   # not read yet
        self.unread += 1
        self.all.append(string)
        (<dict>self.strings[db.index])[key] = string
        self.walked = min(self.walked, string.place)
        return string

    cdef int forget(self, RulesString string) except -1:
        """Nothing is to be done for the stream any more."""
        cdef RulesString last = self.all.pop()
        if last is not string:
            last.place = string.place
            self.all[last.place] = last
        del (<dict>self.strings[string.db.index])[string.key]
        return 0

    cdef int read(self, RulesString string) except -1:
        """Look whether a string is as it was read, and follow it if not."""
        cdef object value = string.db.peek(string.key)
        cdef bint exists = value is not None
        if string.version == self.defaults.version and type(value) is bytes and value == string.text:
            return 0
        self.unread -= string.version < 0
        self.present[string.db.index] += exists - string.exists
        string.version = self.defaults.version
        string.exists = exists
        # A copy to keep: APPEND changes a string in place.
        string.text = bytes(memoryview(value)) if type(value) is bytes else None
        self.set_rule(string, self.rule_of(string))
        return 0 if exists or string.ruled is not None else self.forget(string)

    cdef object rule_of(self, RulesString string):
        """The rule of a stream, by its string or by the configuration; None: it has none."""
        rule = NO_STREAM_RULE
        if string.stream is None or (string.exists and string.text is None):
            return None
        if string.exists:
            try:
                rule = parse_rules(string.text).stream
            except ValueError:
                return None                   # dead_letter_timer.pyx logs it
        if rule == NO_STREAM_RULE and self.defaults.is_on and type(string.db.peek(string.stream)) is Stream:
            rule = self.defaults.defaults.stream_rule(string.stream)
        return None if rule == NO_STREAM_RULE else rule

    cdef int set_rule(self, RulesString string, object rule) except -1:
        """Make this the rule of the stream that a string is about; None: it has none."""
        cdef Context ctx = self.host.dispatcher.context
        cdef dict streams = self.streams[string.db.index]
        cdef RuledStream ruled = string.ruled
        if rule is None:
            if ruled is not None:
                value = string.db.peek(ruled.key)
                if type(value) is Stream:
                    (<Stream>value).merges = False
                string.ruled = None
                del streams[ruled.key]
                trimmed_of(ctx).by_stream.pop((string.db.index, ruled.key), None)
                all_progress(ctx).forget(string.db.index, ruled.key)
        elif ruled is None or ruled.rule != rule:
            ruled = string.ruled = RuledStream.__new__(RuledStream)
            ruled.string = string
            ruled.key = string.stream
            ruled.rule = rule
            ruled.retention = Retention(rule) if rule.retain else None
            if rule.expires or (rule.feeds and not feeds_itself(string.db, ruled.key, rule)):
                ruled.delays = Delays(ruled.key, rule)
            ruled.is_exact = True
            streams[ruled.key] = ruled
            self.mark(ruled)
        return self.follow_keys()

    cdef int follow_keys(self) except -1:
        """Observe keys while it is needed."""
        (<Dispatcher>self.host.dispatcher).key_changes.observe(self, self.defaults.is_on or any(self.streams))
        return 0

    cdef bint may_have_rule(self, Database db, bytes key) except -1:
        """Whether the configuration has a rule for a key that has none by command."""
        return self.defaults.is_on and self.defaults.defaults.stream_rule(key) != NO_STREAM_RULE

    cdef int walk(self, long long until_us) except -1:
        """Look at all strings, and mark all streams, up to a monotonic time, but at one at least."""
        cdef RulesString string
        cdef bint is_first = True
        while self.walked < len(self.all) and (is_first or monotonic_us() < until_us):
            is_first = False
            string = self.all[self.walked]
            self.read(string)
            if string.ruled is not None:
                string.ruled.is_exact = True
                self.mark(string.ruled)
            if self.walked < len(self.all) and self.all[self.walked] is string:
                self.walked += 1              # else the last one has taken its place
        return 0

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
            self.changed[(<Database>db).index, key] = None
            self.schedule()
        elif self.may_have_rule(db, key):
            self.changed[(<Database>db).index, key_of_rules(key)] = None
            self.schedule()
        return 0

    cdef int flushing(self, object db) except -1:
        self.walked = 0
        return self.schedule()

    cdef int swapping(self, object db, object other) except -1:
        self.walked = 0
        self.is_stale = True
        return self.schedule()

    def cron(self, long long now_ms):
        """Notice strings that have come, which no observer saw, and go on with what was held back."""
        cdef Database db
        for db in self.host.databases:
            if (0 if db.reserved is None else len(db.reserved)) != self.present[db.index]:
                self.is_stale = True
        if self.version != self.defaults.version:
            self.is_stale = True
        if self.is_stale or self.changed or self.marked or self.walked < len(self.all):
            self.schedule()

    def each_second(self, long long now_ms):
        if self.all and self.walked >= len(self.all):
            self.walked = 0
            self.schedule()

    def stored(self, Database db, bytes key):
        """A command has stored or removed a string."""
        self.changed[db.index, key] = None
        self.read_changed()

    cdef int replace(self, Context ctx, bytes key, list request) except -1:
        """See replace_waiting."""
        cdef RuledStream ruled = self.find(ctx.db, key)
        if (
            ruled is not None and ruled.delays is not None and ruled.delays.replaces and self.is_free(ruled)
            and self.is_current(ruled)
        ):
            ruled.delays.replace(ctx, <Stream>ctx.db.peek(key), request, monotonic_us() + LEAST_US)
        return 0

    cdef RuledStream find(self, Database db, bytes key):
        """The stream with this key, if it has a rule of its own, which may have been set a moment ago."""
        cdef RulesString string
        cdef bint has_come = len(db.reserved or ()) != self.present[db.index]
        if has_come:
            self.find_new()
        while self.changed:
            self.read_changed()
        if has_come or self.unread:
            string = (<dict>self.strings[db.index]).get(key_of_rules(key))
            if string is not None:
                self.read(string)
        return (<dict>self.streams[db.index]).get(key)

    # --- What is done -------------------------------------------------------------------------------------------------

    def work(self):
        """A slice of what is to be done; runs again soon while there is more."""
        cdef Dispatcher dispatcher = self.host.dispatcher
        cdef Context ctx = dispatcher.context
        cdef Database db
        cdef Frame frame
        cdef long long until_us
        self.is_scheduled = False
        if self.host.is_loading or dispatcher.is_busy:
            return                            # cron tries again
        until_us = monotonic_us() + min(max((dispatcher.turns_us - self.turns_us) // SHARE, LEAST_US), MOST_US)
        self.turns_us = dispatcher.turns_us
        if self.is_stale:
            self.find_new()
        while self.changed:
            self.read_changed()
        frame = ctx.frame()
        try:
            ctx.now_ms = dispatcher.unix_ms()
            for db in self.host.databases:
                db.now_ms = ctx.now_ms
            while self.marked:
                self.follow(ctx, self.marked.popleft(), until_us)
                if monotonic_us() >= until_us:
                    break
            self.walk(until_us)
        finally:
            self.current = None
            ctx.go_back(frame)
        dispatcher.serve_ready()
        if self.marked or self.walked < len(self.all):
            self.schedule()

    def catch_up(self):
        """Do all that is to be done now, in one piece."""
        while self.is_scheduled:
            self.work()

    cdef int read_changed(self) except -1:
        """Read one of the strings that have changed, or come."""
        cdef Database db
        cdef RulesString string
        (index, key), _ = self.changed.popitem()
        db = self.host.databases[index]
        string = (<dict>self.strings[index]).get(key)
        return self.read(self.learn(db, key) if string is None else string)

    cdef bint is_current(self, RuledStream ruled) except -1:
        """Whether its string still has this rule of a stream."""
        if ruled.string.ruled is ruled:
            self.read(ruled.string)
        return ruled.string.ruled is ruled

    cdef bint is_free(self, RuledStream ruled) except -1:
        """Whether this server may change a stream by itself; if not, it only keeps its index up."""
        cdef Dispatcher dispatcher = self.host.dispatcher
        return not is_held(self.host) and (
            dispatcher.router is None or dispatcher.router.is_settled(slot_of(ruled.key))
        )

    cdef int follow(self, Context ctx, RuledStream ruled, long long until_us) except -1:
        """Do what the rule of a stream asks for, a slice of it."""
        cdef object value
        cdef bint has_more = False, may_act
        ruled.is_marked = False
        if not self.is_current(ruled):
            return 0
        value = ruled.string.db.peek(ruled.key)
        if type(value) is not Stream:
            if ruled.delays is not None:
                ruled.delays.forget()
            return 0
        (<Stream>value).merges = False        # unless there are delays
        may_act = self.is_free(ruled)
        self.current = ruled
        ctx.db = ruled.string.db
        ctx.effects = []
        if ruled.delays is not None:
            has_more = ruled.delays.follow(ctx, <Stream>value, until_us, may_act)
            if ruled.delays.target:
                self.replace(ctx, ruled.delays.target, None)
        if ruled.retention is not None and may_act:
            if ruled.retention.trim(ctx, ruled.key, <Stream>value, ruled.is_exact):
                has_more = True
            else:
                ruled.is_exact = False
        self.finish(ctx)
        if has_more:
            return self.mark(ruled)
        return self.set_alarm(ruled, ctx.now_ms) if ruled.delays is not None and may_act else 0

    cdef int set_alarm(self, RuledStream ruled, int64_t now_ms) except -1:
        """Look at a stream when its next entry is due, unless that is later than the next second."""
        cdef int64_t next_ms = ruled.delays.next_ms()
        if now_ms < next_ms < now_ms + 1000 and not now_ms < ruled.alarm_ms <= next_ms:
            ruled.alarm_ms = next_ms
            heappush(self.alarms, (next_ms, next(self.numbers), ruled))
            self.set_timer(now_ms)
        return 0

    cdef int set_timer(self, int64_t now_ms) except -1:
        """Be called at the first alarm."""
        cdef int64_t first_ms = self.alarms[0][0]
        if self.timer is None or first_ms < self.timer_ms:
            self.close()
            self.timer_ms = first_ms
            self.timer = self.host.loop.call_later(max(0, first_ms - now_ms) / 1000.0, self.ring)
        return 0

    def ring(self):
        """Look at the streams that have an entry that is due."""
        cdef RuledStream ruled
        cdef int64_t now_ms = (<Dispatcher>self.host.dispatcher).unix_ms()
        self.timer = None
        while self.alarms and self.alarms[0][0] <= now_ms:
            ruled = heappop(self.alarms)[2]
            self.mark(ruled)
        if self.alarms:
            self.set_timer(now_ms)

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


cdef int replace_waiting(Context ctx, bytes key, list request) except -1:
    """A request has added an entry to a stream: delete the waiting one that it replaces, in the same unit.

    Callers have looked whether the database has any rules. What cannot be found at once, since the index has still to
    be read, is deleted later, before anything moves.
    """
    cdef StreamRules rules = ctx.parts.get(StreamRules)
    return 0 if rules is None or ctx.is_replaying else rules.replace(ctx, key, request)
