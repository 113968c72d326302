"""Memory figures: the process's, the server's own count, MEMORY STATS and MEMORY DOCTOR.

Two figures must be distinguished:

    resident   what the system has given to the process, with the interpreter, the library's free blocks and its overhead
    used       what data, clients and buffers need, counted at allocation; maxmemory limits this one

The interpreter with all its modules is not part of `used`: it exists before any data, and cannot be reduced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field, human_size, ratio
from streamd.heap import describe
from streamd.keyspace.database import with_keys
from streamd.memory.eviction import Eviction
from streamd.memory.measurement import Measurement, MemoryReport

__all__ = [
    "DatabaseMemory", "Memory", "diagnose", "statistics", "system_memory",
]  # fmt: skip

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
WORTH_RETURNING = 16 << 20
"""Bytes that are free before the system gets them back, which takes about 0.1 ms per MB, in another thread."""


# --- The process -----------------------------------------------------------------------------------------------------


@cache
def system_memory() -> int:
    """Bytes of memory of this machine; 0 when unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * PAGE_SIZE
    except (ValueError, OSError):
        return 0


# --- The server ------------------------------------------------------------------------------------------------------


class DatabaseMemory(NamedTuple):
    """Memory of a database besides its keys and values.

    number     of the database
    lookup     bytes of the structures that find keys
    deadlines  bytes of the structures that find expiring keys
    """

    number: int
    lookup: int
    deadlines: int


# --- MEMORY STATS ----------------------------------------------------------------------------------------------------

Value = int | float | dict[str, int]


def statistics(report: MemoryReport, databases: Sequence[DatabaseMemory]) -> Iterator[tuple[str, Value]]:
    """The fields of MEMORY STATS in Redis's order: names, and numbers or a map of numbers.

    `databases`: those that have keys.
    """
    yield "peak.allocated", report.peak
    yield "total.allocated", report.used
    yield "startup.allocated", report.startup
    yield "replication.backlog", 0
    yield "replica.fullsync.buffer", 0
    yield "clients.slaves", report.replicas
    yield "clients.normal", report.clients
    yield "cluster.links", 0
    yield "aof.buffer", 0
    yield "lua.caches", report.scripts
    yield "functions.caches", report.functions
    yield "script.VMs", report.interpreters
    for db in databases:
        yield f"db.{db.number}", {"overhead.hashtable.main": db.lookup, "overhead.hashtable.expires": db.deadlines}
    yield "overhead.db.hashtable.lut", sum(db.lookup for db in databases)
    yield "overhead.db.hashtable.rehashing", 0
    yield "overhead.total", report.overhead
    yield "db.dict.rehashing.count", 0
    yield "keys.count", report.keys
    yield "keys.bytes-per-key", report.bytes_per_key
    yield "dataset.bytes", report.dataset
    yield "dataset.percentage", report.dataset_percent
    yield "peak.percentage", 100 * ratio(report.used, report.peak)
    yield "allocator.allocated", report.used
    yield "allocator.active", report.used
    yield "allocator.resident", report.resident
    yield "allocator.muzzy", 0
    yield "allocator-fragmentation.ratio", 1.0
    yield "allocator-fragmentation.bytes", 0
    yield "allocator-rss.ratio", report.fragmentation
    yield "allocator-rss.bytes", report.resident - report.used
    yield "rss-overhead.ratio", 1.0
    yield "rss-overhead.bytes", 0
    yield "fragmentation", report.fragmentation
    yield "fragmentation.bytes", report.resident - report.used


# --- MEMORY DOCTOR ---------------------------------------------------------------------------------------------------

LITTLE = 5 << 20
"""Below this no diagnosis is possible: the process itself needs more than the data."""
FAR_PEAK = 1.5
BAD_FRAGMENTATION = 1.4
SLACK = 64 << 20
"""Bytes that the process may hold beyond what is used before it is reported: the interpreter needs some of them."""
BIG_CLIENT = 200 << 10


def diagnose(report: MemoryReport, clients: int, maxmemory: int) -> str:
    """What a person may want to know about the memory of a server that has so many clients, as sentences."""
    if report.used < LITTLE:
        return "There is too little data for a diagnosis. Ask again when there is more.\n"
    findings = [*_findings(report, clients, maxmemory)]
    if not findings:
        return "Nothing is wrong with the memory of this server.\n"
    return "".join(f" * {text}\n\n" for text in ("Findings about the memory of this server:", *findings))


def _findings(report: MemoryReport, clients: int, maxmemory: int) -> Iterator[str]:
    if report.peak > FAR_PEAK * report.used:
        yield (
            f"Peak: {report.peak} bytes were used at most, now {report.used}. The process may still hold memory that it"
            " needed then; MEMORY PURGE returns what can be returned."
        )
    if report.fragmentation > BAD_FRAGMENTATION and report.resident - report.used > SLACK:
        yield (
            f"Resident memory: the process holds {report.resident} bytes, {report.fragmentation:.2f} times what is used."
            " Freed memory is fragmented between memory still in use; MEMORY PURGE returns whole pages."
        )
    if clients and report.clients / clients > BIG_CLIENT:
        yield (
            f"Clients: they use {report.clients // clients} bytes each on average. Some do not read their replies, or"
            " send long requests slowly: CLIENT LIST shows them (omem, qbuf); see client-output-buffer-limit and"
            " maxmemory-clients."
        )
    if maxmemory and report.used - report.uncounted > maxmemory:
        yield f"Limit: more is used than maxmemory, {maxmemory} bytes, allows, and nothing more can be evicted."
    if report.used > 0.9 * system_memory() > 0:
        yield "System: the data take more than nine tenths of the memory of this machine."


# --- The capability --------------------------------------------------------------------------------------------------


class Memory(Capability):
    """What the memory of a server is used for."""

    info = {
        "memory": (
            Field("allocator_muzzy", 0),
            Field("allocator_frag_ratio", "1.00"),
            Field("allocator_frag_bytes", 0),
            Field("rss_overhead_ratio", "1.00"),
            Field("rss_overhead_bytes", 0),
            Field("total_system_memory", system_memory()),
            Field("total_system_memory_human", human_size(system_memory())),
            Field("mem_allocator", "libc"),
            Field("mem_overhead_db_hashtable_rehashing", 0),
        ),
    }

    def __init__(self, host: Host) -> None:
        self._host = host
        self._eviction = host.get(Eviction)
        self._measurement = host.get(Measurement)
        self._free = self._kept = 0
        """What the process holds and does not use; and the least of that since it was returned: so much cannot be."""

    def start(self) -> None:
        self._kept = self._unused()

    def measure(self) -> MemoryReport:
        """Look at the server. O(clients + databases)."""
        return self._measurement.measure()

    def each_second(self, now_ms: int) -> None:
        """Return memory to the system when the process has held much more of it than it uses, for a second."""
        before, self._free = self._free, self._unused()
        self._kept = min(self._kept, self._free)
        if min(before, self._free) > self._kept + WORTH_RETURNING:
            self._kept = self._free  # less as soon as the system has it
            self._host.trash.trim_later()

    def _unused(self) -> int:
        return self._measurement.resident() - self._eviction.used()

    def statistics(self) -> list[tuple[str, Value]]:
        """Names and numbers, or maps of numbers, in Redis's order."""
        databases = [
            DatabaseMemory(db.index, db.lookup_bytes(), db.deadline_bytes()) for db in with_keys(self._host.databases)
        ]
        return list(statistics(self.measure(), databases))

    def diagnosis(self) -> str:
        """The diagnosis, as sentences."""
        return diagnose(self.measure(), len(self._host.clients), self._host.config.maxmemory)

    def purge(self) -> None:
        """Return free memory to the system, on another thread, since that takes a while for large heaps."""
        self._host.trash.trim_later()

    def allocator(self) -> str:
        """What the C library and the interpreter report about their memory, as text."""
        return describe()
