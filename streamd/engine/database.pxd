# cython: language_level=3
"""A database: keys, their values and expiries. Contract in database.pyx."""


cdef class Database:
    cdef readonly int index               # as SELECT numbers it
    cdef public long long now_ms          # the time expiry goes by; set by the caller before each command
    cdef public dict waiters              # key -> whatever the server keeps for clients that wait for it
    cdef public dict ready                # (database, key) -> None in order: keys of `waiters` that changed; shared by all databases

    # Values are Stream (streams) or bytes (strings). An expired key counts as missing, and is removed when it is met.
    cpdef object find(self, bytes key)              # for reading: the value or None; counts hits and misses
    cpdef object find_for_write(self, bytes key)    # for changing: the value or None; counts nothing
    cpdef int add(self, bytes key, object value) except -1           # the key must be missing
    cpdef int set(self, bytes key, object value, bint keep_expiry=*) except -1   # add or overwrite
    cpdef bint delete(self, bytes key) except -1    # True when there was something; large values are freed elsewhere
    cdef inline int signal_ready(self, bytes key) except -1:
        """Tell that `key` changed in a way that may serve a waiting client. Costs a test when nobody waits."""
        if self.waiters and key in self.waiters:
            self.ready[(self, key)] = None
        return 0
