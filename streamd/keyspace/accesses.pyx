# cython: language_level=3, boundscheck=False, wraparound=False
"""Accesses: what is noted when a key is used, from which eviction derives which key has the lowest value.

What counts as an access follows from maxmemory-policy (AccessMode). Frequency is counted on a logarithmic scale, so
that one byte is enough: a count is raised with a probability that falls as it grows, and it falls by itself with time.
"""

from os import urandom

from streamd.keyspace.key_record cimport ACCESS_FREQUENCY, ACCESS_TIME, NEW_USES, KeyRecord, minute_of, set_accessed


cdef class Accesses(Deadlines):
    """The part of a database that records how its keys are used."""

    def __cinit__(self):
        self.log_factor = 10
        self.decay_minutes = 1
        self.seed(int.from_bytes(urandom(8), "little"))

    def seed(self, unsigned long long number):
        """Make what is drawn from now on repeatable. A database is seeded by the system when it is made."""
        self.dice = number | 1

    cdef unsigned long long roll(self) noexcept:
        """A random number, good enough for sampling."""
        self.dice ^= self.dice << 13
        self.dice ^= self.dice >> 7
        self.dice ^= self.dice << 17
        return self.dice

    cdef int decayed_uses(self, KeyRecord *record) noexcept:
        """`uses` as it is now, after the minutes in which nothing raised it."""
        cdef int periods
        if self.decay_minutes <= 0:
            return record.uses
        periods = <unsigned short>(minute_of(self.now_ms) - record.used_minute) // self.decay_minutes
        return record.uses - periods if periods < record.uses else 0

    cdef void note_use(self, KeyRecord *record) noexcept:
        """Note an access."""
        cdef int uses
        cdef double chance
        if self.access_mode == ACCESS_TIME:
            set_accessed(record, self.now_ms)
        elif self.access_mode == ACCESS_FREQUENCY:
            uses = self.decayed_uses(record)
            if uses < 255:
                chance = 1.0 / (<double>self.log_factor * (uses - NEW_USES if uses > NEW_USES else 0) + 1.0)
                if <double>(self.roll() >> 11) < chance * 9007199254740992.0:  # 53 random bits
                    uses += 1
            record.uses = <unsigned char>uses
            record.used_minute = minute_of(self.now_ms)
