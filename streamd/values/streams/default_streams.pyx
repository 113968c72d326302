# cython: language_level=3, boundscheck=False, wraparound=False
"""DefaultStreams: which streams the rules in the configuration are about, for what follows rules without being asked.

A command looks up the rule of its stream or group (delivery/defaults.py), and needs nothing from here. What acts by
itself (rule_timer.pyx, dead_letter_timer.pyx) needs the names: those of streams that change are noted at once, and a
walk over all keys, in slices between the commands of clients, finds those that were there before or came with a file.
Names of streams that are gone stay until the walk after. Without rules in the configuration, this costs nothing.
"""

from streamd.core.capability cimport Capability
from streamd.core.dispatch cimport Dispatcher
from streamd.keyspace.database cimport Database
from streamd.values.streams.acting cimport is_held
from streamd.values.streams.stream cimport Stream

from streamd.delivery.defaults import Defaults

__all__ = ["DefaultStreams"]

cdef enum:
    KEYS = 500                 # that are looked at between two turns of clients


cdef class DefaultStreams(Capability):
    """Created before those who ask it."""

    observer_rank = 19

    def __init__(self, host):
        self.host = host
        self.rests = True
        self.defaults = Defaults()
        self.lines = ((), ())
        self.begin()

    def apply_settings(self):
        cdef Dispatcher dispatcher = self.host.dispatcher
        lines = (self.host.config.stream_rule, self.host.config.group_rule)
        if lines == self.lines:
            return
        self.lines = lines
        self.defaults = dispatcher.context.parts[Defaults] = Defaults(*lines)
        self.is_on = dispatcher.context.has_default_rules = bool(self.defaults)
        self.version += 1
        if self.is_on:
            self.host.wake(self)
        dispatcher.key_changes.observe(self, self.is_on)
        self.begin()

    cdef set streams_of(self, Database db):
        """Keys of streams that match a line; some may hold no stream any more."""
        return self.found[db.index]

    # --- Streams that change ------------------------------------------------------------------------------------------

    cdef int key_touched(self, object db, bytes key, bint by_server) except -1:
        if self.defaults.concerns(key) and type((<Database>db).peek(key)) is Stream:
            (<set>self.found[(<Database>db).index]).add(key)
            (<set>self.fresh[(<Database>db).index]).add(key)
        return 0

    cdef int flushing(self, object db) except -1:
        self.found[(<Database>db).index] = set()
        self.fresh[(<Database>db).index] = set()
        return 0

    cdef int swapping(self, object db, object other) except -1:
        self.begin()
        return 0

    # --- Streams that exist -------------------------------------------------------------------------------------------

    def begin(self):
        """Look for all streams, as soon as possible."""
        self.found = [set() for _ in self.host.databases]
        self.restart_walk()

    def restart_walk(self):
        self.fresh = [set() for _ in self.host.databases]
        self.db_index = 0
        self.cursor = 0
        self.is_urgent = True
        if self.is_on:
            self.host.loop.call_soon(self.hurry)

    def cron(self, long long now_ms):
        cdef bint held
        if not self.is_on:
            return
        held = is_held(self.host)
        if self.was_held and not held:
            self.restart_walk()               # data was loaded, or came from a primary, and nobody noted the keys
        elif not held:
            self.walk()
        self.was_held = held

    def hurry(self):
        """A slice of the first walk; runs again soon while there is more."""
        if not self.is_on or not self.is_urgent:
            return
        if self.host.is_loading or (<Dispatcher>self.host.dispatcher).is_busy:
            self.was_held = True              # cron tries again
            return
        self.walk()
        self.host.loop.call_soon(self.hurry)

    cdef int walk(self) except -1:
        """Look at some keys."""
        cdef Database db = self.host.databases[self.db_index]
        cdef set found = self.found[self.db_index]
        cdef set fresh = self.fresh[self.db_index]
        self.cursor, records = db.records(self.cursor, KEYS)
        for record in records:
            if record.type.value_class is Stream and self.defaults.concerns(record.key):
                if record.key not in found:
                    found.add(record.key)
                    self.version += 1
                fresh.add(record.key)
        if self.cursor == 0:
            self.found[self.db_index] = fresh
            self.fresh[self.db_index] = set()
            self.db_index += 1
            if self.db_index == len(self.host.databases):
                self.db_index = 0
                self.is_urgent = False
        return 0
