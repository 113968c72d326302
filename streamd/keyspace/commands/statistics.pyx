# cython: language_level=3, boundscheck=False, wraparound=False
"""KeyStatistics: numbers of keys, of key lookups with and without a hit, and the lengths of strings, for INFO."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp

from streamd.core.capability cimport Capability
from streamd.core.info import Fields, Lines
from streamd.keyspace.database cimport SIZE_CLASSES, Database
from streamd.keyspace.database import total_counts, with_keys
from streamd.keyspace.value_type cimport ValueType
from streamd.keyspace.value_type import registered_types

__all__ = ["KeyStatistics"]


@cython.final
cdef class KeySizes:
    """Lines about the sizes of values of a database, and the counts that they show."""

    cdef bytes counts
    cdef list lines


cdef class KeyStatistics(Capability):
    """The counters of a server's databases."""

    cdef list databases
    cdef list size_texts        # for each database its KeySizes; None until it has had keys

    info = {
        "stats": (
            Fields(
                "keyspace_hits keyspace_misses expired_keys evicted_keys slave_expires_tracked_keys expired_subkeys",
                lambda self: total_counts((<KeyStatistics?>self).databases),
            ),
        ),
        "keyspace": (Lines("databases", lambda self: (<KeyStatistics?>self).database_lines()),),
        "keysizes": (Lines("sizes", lambda self: (<KeyStatistics?>self).size_lines()),),
    }

    def __init__(self, host not None):
        self.databases = host.databases
        self.size_texts = [None] * len(self.databases)

    def reset_statistics(self):
        cdef Database db
        for db in self.databases:
            db.hits = db.misses = 0

    cdef list database_lines(self):
        """The databases that have keys."""
        cdef Database db
        return [
            f"db{db.index}:keys={db.count},expires={db.deadline_count},avg_ttl={db.avg_ttl},subexpiry={db.timed_values}"
            for db in with_keys(self.databases)
        ]

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
