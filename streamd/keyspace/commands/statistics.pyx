# cython: language_level=3, boundscheck=False, wraparound=False
"""KeyStatistics: numbers of keys, of key lookups with and without a hit, and the lengths of strings, for INFO."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memcmp, memset

from streamd.core.capability cimport Capability
from streamd.core.info cimport numbers
from streamd.core.info import Lines
from streamd.keyspace.database cimport SIZE_CLASSES, Database
from streamd.keyspace.value_type cimport ValueType
from streamd.keyspace.value_type import registered_types

__all__ = ["KeyStatistics"]


@cython.final
cdef class KeySizes:
    """Lines about the sizes of values of a database, and the counts that they show."""

    cdef bytes counts
    cdef list lines


@cython.final
cdef class KeyCounts:
    """The line about the keys of a database, and the numbers that it shows."""

    cdef long long keys
    cdef long long deadlines
    cdef long long avg_ttl
    cdef long long timed
    cdef str line

    cdef bint update(self, Database db) except -1:
        """Returns whether the line has changed."""
        cdef long long deadlines = db.deadline_count
        cdef long long avg_ttl = db.avg_ttl if deadlines else 0
        cdef long long timed = db.timed_values if db.timed is not None else 0
        if self.keys == db.count and self.deadlines == deadlines and self.avg_ttl == avg_ttl and self.timed == timed:
            return False
        self.keys, self.deadlines, self.avg_ttl, self.timed = db.count, deadlines, avg_ttl, timed
        self.line = f"db{db.index}:keys={db.count},expires={deadlines},avg_ttl={avg_ttl},subexpiry={timed}"
        return True


cdef int read_totals(object capability, int64_t *to) except -1:
    """Sums over databases: lookups that hit, missed; keys expired, evicted, with a replica's own expiry; parts."""
    cdef Database db
    memset(to, 0, 6 * sizeof(int64_t))
    for db in (<KeyStatistics>capability).databases:
        to[0] += db.hits
        to[1] += db.misses
        to[2] += db.expired_keys
        to[3] += db.evicted_keys
        if db.own_expiries is not None:
            to[4] += len(db.own_expiries)
        to[5] += db.expired_parts
    return 0


cdef class KeyStatistics(Capability):
    """The counters of a server's databases."""

    cdef list databases
    cdef list key_texts         # for each database its KeyCounts; None until it has had keys
    cdef list size_texts        # ... and its KeySizes
    cdef tuple shown_keys       # the last lines of all databases

    info = {
        "stats": (
            numbers(
                "keyspace_hits keyspace_misses expired_keys evicted_keys slave_expires_tracked_keys expired_subkeys",
                read_totals,
            ),
        ),
        "keyspace": (Lines("databases", lambda self: (<KeyStatistics?>self).database_lines()),),
        "keysizes": (Lines("sizes", lambda self: (<KeyStatistics?>self).size_lines()),),
    }

    def __init__(self, host not None):
        self.databases = host.databases
        self.key_texts = [None] * len(self.databases)
        self.size_texts = [None] * len(self.databases)
        self.shown_keys = ()

    def reset_statistics(self):
        cdef Database db
        for db in self.databases:
            db.hits = db.misses = 0

    cdef tuple database_lines(self):
        """The databases that have keys; the same object when nothing has changed."""
        cdef Database db
        cdef KeyCounts counts
        cdef bint has_changed = False
        cdef Py_ssize_t at = 0
        for db in self.databases:
            counts = self.key_texts[at]
            if db.count:
                if counts is None:
                    counts = self.key_texts[at] = KeyCounts.__new__(KeyCounts)
                has_changed |= counts.update(db)
            elif counts is not None:
                self.key_texts[at] = None
                has_changed = True
            at += 1
        if has_changed:
            self.shown_keys = tuple([counts.line for counts in self.key_texts if counts is not None])
        return self.shown_keys

    cdef list size_lines(self):
        """Numbers of values by size, rounded up to a power of two, for the types that count them."""
        cdef Database db
        cdef list lines = []
        for at, db in enumerate(self.databases):
            if db.count:
                lines += self.lines_of(at, db)
        return lines

    cdef list lines_of(self, Py_ssize_t at, Database db):
        """Those of a database; made again when a count has changed."""
        cdef KeySizes known = self.size_texts[at]
        cdef Py_ssize_t size = db.size_rows * SIZE_CLASSES * <Py_ssize_t>sizeof(Py_ssize_t)
        cdef ValueType each
        if (
            known is None
            or PyBytes_GET_SIZE(known.counts) != size
            or memcmp(PyBytes_AS_STRING(known.counts), db.sizes, <size_t>size)
        ):
            known = self.size_texts[at] = KeySizes.__new__(KeySizes)
            known.lines = []
            for each in registered_types():
                if each.sizes_name and (sizes := db.sizes_by_power(each)):
                    counts = ",".join([f"{short(power)}={count}" for power, count in sizes])
                    known.lines.append(f"db{db.index}_distrib_{each.sizes_name}:{counts}")
            size = db.size_rows * SIZE_CLASSES * <Py_ssize_t>sizeof(Py_ssize_t)
            known.counts = PyBytes_FromStringAndSize(<char *>db.sizes, size)
        return known.lines


cdef str short(long long power):
    """A power of two in human-readable form, without decimals: `512`, `1K`, `2G`; also 0."""
    cdef int thousands = 0
    while power >> 10:
        power >>= 10
        thousands += 1
    return f"{power}{('', 'K', 'M', 'G', 'T', 'P')[thousands]}"
