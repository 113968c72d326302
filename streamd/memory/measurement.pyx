# cython: language_level=3, boundscheck=False, wraparound=False
"""Measurement: what the memory of a server is used for, for INFO, MEMORY STATS and MEMORY DOCTOR. See accounting.py.

INFO is requested all the time: its numbers are read without a report of Python's.
"""

cimport cython
from libc.stdint cimport int64_t

from streamd.core.capability cimport Capability
from streamd.core.client cimport CLASS_REPLICA, Client
from streamd.core.clock cimport monotonic_us
from streamd.core.info cimport ReadNumbers, hundredths, numbers
from streamd.keyspace.database cimport Database
from streamd.memory.eviction cimport Eviction

from streamd.memory.eviction import Eviction as eviction_type
from streamd.memory.resident import resident_memory

__all__ = ["Measurement", "MemoryReport"]

cdef enum:
    RESIDENT_AGE_US = 100_000   # how old the resident memory that is reported may be; Redis measures it as often


@cython.final
cdef class MemoryReport:
    """What a server's memory is used for, in bytes."""

    cdef long long find_overhead(self) noexcept:
        cdef long long code = self.scripts + self.functions + self.interpreters
        return self.startup + self.clients + self.replicas + self.lookups + code

    cdef long long find_dataset(self) noexcept:
        return max(0, self.used - self.find_overhead())

    cdef double find_dataset_percent(self) noexcept:
        return 100.0 * self.find_dataset() / (self.used - self.startup) if self.used > self.startup else 0.0

    cdef double find_fragmentation(self) noexcept:
        return <double>self.resident / self.used if self.used else 0.0

    @property
    def overhead(self):
        """What is used for anything but keys and values."""
        return self.find_overhead()

    @property
    def dataset(self):
        return self.find_dataset()

    @property
    def dataset_percent(self):
        """The data's share of what is used beyond the initial use."""
        return self.find_dataset_percent()

    @property
    def bytes_per_key(self):
        return max(0, self.used - self.startup) // self.keys if self.keys else 0

    @property
    def fragmentation(self):
        """Ratio of what the process holds to what is used."""
        return self.find_fragmentation()


MEASURED = (
    "used_memory used_memory_human:size used_memory_rss used_memory_rss_human:size used_memory_peak"
    " used_memory_peak_human:size used_memory_peak_time used_memory_peak_perc:percent used_memory_overhead"
    " used_memory_startup used_memory_dataset used_memory_dataset_perc:percent allocator_allocated allocator_active"
    " allocator_resident allocator_rss_ratio:hundredths allocator_rss_bytes mem_fragmentation_ratio:hundredths"
    " mem_fragmentation_bytes mem_not_counted_for_evict mem_clients_slaves mem_clients_normal"
)


cdef int read_figures(object capability, int64_t *to) except -1:
    cdef MemoryReport report = (<Measurement>capability).measure()
    to[0] = to[1] = to[12] = to[13] = report.used
    to[2] = to[3] = to[14] = report.resident
    to[4] = to[5] = report.peak
    to[6] = report.peak_ms // 1000
    to[7] = hundredths(100.0 * report.used / report.peak if report.peak else 0.0)
    to[8] = report.find_overhead()
    to[9] = report.startup
    to[10] = report.find_dataset()
    to[11] = hundredths(report.find_dataset_percent())
    to[15] = to[17] = hundredths(report.find_fragmentation())
    to[16] = to[18] = report.resident - report.used
    to[19] = report.uncounted
    to[20] = report.replicas
    to[21] = report.clients
    return 0


cdef class Measurement(Capability):
    """Measures the memory of a server."""

    info = {"memory": (numbers(MEASURED, read_figures),)}

    def __init__(self, host not None):
        self.eviction = host.get(eviction_type)
        self.dispatcher = host.dispatcher
        self.databases = list(host.databases)

    cdef int count_code(self, object owner, ReadNumbers read) except -1:
        """`read`, called with `owner`, counts bytes: of scripts, of functions, of the interpreters that run them."""
        self.code_owner, self.read_code = owner, read
        return 0

    cpdef MemoryReport measure(self):
        """Look at the server. O(clients + databases)."""
        cdef MemoryReport report = MemoryReport.__new__(MemoryReport)
        cdef Eviction eviction = self.eviction
        cdef Database db
        cdef Client client
        cdef long long size
        cdef int64_t[3] code
        report.used, report.uncounted = eviction.used(), eviction.uncounted()
        report.peak, report.peak_ms, report.startup = eviction.peak, eviction.peak_ms, eviction.startup
        report.resident = self.resident()
        report.replicas = report.uncounted
        for client in self.dispatcher.clients.values():
            size = client.memory_usage() - <long long>client.reply.borrowed()
            if client.outflow is not None:
                size -= client.outflow.unsent()     # memory that many may share
            if client.output_class == CLASS_REPLICA:
                report.replicas += size
            else:
                report.clients += size
        for db in self.databases:
            if db.count:
                report.lookups += db.lookup_bytes() + db.deadline_bytes()
                report.keys += db.count
        if self.read_code is not NULL:
            self.read_code(self.code_owner, code)
            report.scripts, report.functions, report.interpreters = code[0], code[1], code[2]
        return report

    cpdef long long resident(self) except -1:
        """What the process holds, measured at most RESIDENT_AGE_US ago: reading it takes microseconds."""
        cdef long long now_us = monotonic_us()
        if now_us - self.looked_us > RESIDENT_AGE_US or not self.held:
            self.looked_us, self.held = now_us, resident_memory()
        return self.held
