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


cdef class DatabaseLines:
    """Lines about a database, and the numbers that they show."""

    cdef list lines

    cdef bint update(self, Database db) except -1:
        """Returns whether the lines have changed."""
        raise NotImplementedError


@cython.final
cdef class KeySizes(DatabaseLines):
    """Numbers of values by size, rounded up to a power of two, for the types that count them."""

    cdef bytes counts

    cdef bint update(self, Database db) except -1:
        cdef Py_ssize_t size = db.size_rows * SIZE_CLASSES * <Py_ssize_t>sizeof(Py_ssize_t)
        cdef ValueType each
        if (
            self.counts is not None
            and PyBytes_GET_SIZE(self.counts) == size
            and not memcmp(PyBytes_AS_STRING(self.counts), db.sizes, <size_t>size)
        ):
            return False
        self.lines = []
        for each in registered_types():
            if each.sizes_name and (sizes := db.sizes_by_power(each)):
                counts = ",".join([f"{short(power)}={count}" for power, count in sizes])
                self.lines.append(f"db{db.index}_distrib_{each.sizes_name}:{counts}")
        size = db.size_rows * SIZE_CLASSES * <Py_ssize_t>sizeof(Py_ssize_t)
        self.counts = PyBytes_FromStringAndSize(<char *>db.sizes, size)
        return True


@cython.final
cdef class KeyCounts(DatabaseLines):
    """The line about the keys."""

    cdef long long keys
    cdef long long deadlines
    cdef long long avg_ttl
    cdef long long timed

    cdef bint update(self, Database db) except -1:
        cdef long long deadlines = db.deadline_count
        cdef long long avg_ttl = db.avg_ttl if deadlines else 0
        cdef long long timed = db.timed_values if db.timed is not None else 0
        if self.keys == db.count and self.deadlines == deadlines and self.avg_ttl == avg_ttl and self.timed == timed:
            return False
        self.keys, self.deadlines, self.avg_ttl, self.timed = db.count, deadlines, avg_ttl, timed
        self.lines = [f"db{db.index}:keys={db.count},expires={deadlines},avg_ttl={avg_ttl},subexpiry={timed}"]
        return True


@cython.final
cdef class AllLines:
    """The lines of all databases that have keys; the same object while nothing changes."""

    cdef type kind              # of DatabaseLines
    cdef list databases
    cdef list found             # for each database its DatabaseLines; None until it has had keys
    cdef tuple shown

    def __init__(self, type kind not None, list databases not None):
        self.kind, self.databases, self.found, self.shown = kind, databases, [None] * len(databases), ()

    cdef tuple lines(self):
        cdef Database db
        cdef DatabaseLines known
        cdef bint has_changed = False
        cdef Py_ssize_t at = 0
        for db in self.databases:
            known = self.found[at]
            if db.count:
                if known is None:
                    known = self.found[at] = self.kind.__new__(self.kind)
                has_changed |= known.update(db)
            elif known is not None:
                self.found[at] = None
                has_changed = True
            at += 1
        if has_changed:
            self.shown = tuple([line for known in self.found if known is not None for line in known.lines])
        return self.shown


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
    cdef AllLines keys
    cdef AllLines sizes

    info = {
        "stats": (
            numbers(
                "keyspace_hits keyspace_misses expired_keys evicted_keys slave_expires_tracked_keys expired_subkeys",
                read_totals,
            ),
        ),
        "keyspace": (Lines("databases", lambda self: (<KeyStatistics?>self).keys.lines()),),
        "keysizes": (Lines("sizes", lambda self: (<KeyStatistics?>self).sizes.lines()),),
    }

    def __init__(self, host not None):
        self.databases = host.databases
        self.keys, self.sizes = AllLines(KeyCounts, self.databases), AllLines(KeySizes, self.databases)

    def reset_statistics(self):
        cdef Database db
        for db in self.databases:
            db.hits = db.misses = 0


cdef str short(long long power):
    """A power of two in human-readable form, without decimals: `512`, `1K`, `2G`; also 0."""
    cdef int thousands = 0
    while power >> 10:
        power >>= 10
        thousands += 1
    return f"{power}{('', 'K', 'M', 'G', 'T', 'P')[thousands]}"
