# cython: language_level=3
"""What the rules of streams do. See rule_timer.pyx."""

cimport cython
from libc.stdint cimport int64_t

from streamd.core.capability cimport Capability
from streamd.core.context cimport Context
from streamd.keyspace.database cimport Database
from streamd.values.streams.default_streams cimport DefaultStreams
from streamd.values.streams.delays cimport Delays
from streamd.values.streams.retention cimport Retention


@cython.final
cdef class RulesString:
    cdef Py_ssize_t place                  # in the list of all
    cdef Database db
    cdef bytes key                         # of the string
    cdef bytes stream                      # the key of the stream that it is about; None: of none
    cdef bytes text                        # the string, as it was read; None: it holds no rules
    cdef bint exists                       # ... or did not exist: the stream has its rule from the configuration
    cdef int version                       # of the configuration, as it was read; -1: it was not
    cdef RuledStream ruled                 # the stream; None: it has no rule of its own


@cython.final
cdef class RuledStream:
    cdef RulesString string                # that has the rule
    cdef bytes key                         # of the stream
    cdef object rule                       # the StreamRule
    cdef Delays delays                     # None: no entry has a time
    cdef Retention retention               # None: its entries are kept
    cdef bint is_marked                    # it is in the list of those to be looked at
    cdef bint is_exact                     # ... to the last entry, not only for whole nodes
    cdef int64_t alarm_ms                  # when it is to be looked at since an entry is due then; Unix time


cdef class StreamRules(Capability):
    cdef object host
    cdef DefaultStreams defaults           # finds streams that a rule of the configuration is about
    cdef int version                       # of them, as they were read
    cdef list strings                      # by database: RulesString by its key
    cdef list present                      # by database: how many of them exist
    cdef list streams                      # by database: RuledStream by its key
    cdef list all                          # RulesString, in no order
    cdef Py_ssize_t unread                 # those that have come, and were not read yet
    cdef Py_ssize_t walked                 # how far the walk over them has come
    cdef dict changed                      # (index of the database, key) of strings to be read again
    cdef object marked                     # RuledStream: those to be looked at, first come, first served
    cdef list alarms                       # a heap of (alarm_ms, number, RuledStream), within the next second
    cdef object numbers
    cdef object timer                      # rings at the first of them
    cdef int64_t timer_ms                  # Unix time
    cdef long long turns_us                # what the turns of clients had taken before the last slice
    cdef RuledStream current               # that is being changed: its own changes do not mark it
    cdef bint is_stale                     # strings may have come
    cdef bint is_scheduled                 # `work` will be called

    cdef int find_new(self) except -1
    cdef RulesString learn(self, Database db, bytes key)
    cdef int forget(self, RulesString string) except -1
    cdef int read(self, RulesString string) except -1
    cdef object rule_of(self, RulesString string)
    cdef bint may_have_rule(self, Database db, bytes key) except -1
    cdef int set_rule(self, RulesString string, object rule) except -1
    cdef int follow_keys(self) except -1
    cdef int walk(self, long long until_us) except -1
    cdef int mark(self, RuledStream ruled) except -1
    cdef int schedule(self) except -1
    cdef int replace(self, Context ctx, bytes key, list request) except -1
    cdef RuledStream find(self, Database db, bytes key)
    cdef int read_changed(self) except -1
    cdef bint is_current(self, RuledStream ruled) except -1
    cdef bint is_free(self, RuledStream ruled) except -1
    cdef int follow(self, Context ctx, RuledStream ruled, long long until_us) except -1
    cdef int set_alarm(self, RuledStream ruled, int64_t now_ms) except -1
    cdef int set_timer(self, int64_t now_ms) except -1
    cdef int finish(self, Context ctx) except -1


cdef int replace_waiting(Context ctx, bytes key, list request) except -1
