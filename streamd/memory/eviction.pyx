# cython: language_level=3, boundscheck=False, wraparound=False
"""Eviction: keys are removed when the data needs more memory than `maxmemory`, clients are closed when they need more
than `maxmemory-clients`.

The dispatcher asks `make_room` before each request as long as there is a limit for the data. While too much is used,
it removes the key with the lowest value by the policy:

    allkeys-lru, volatile-lru     the one not used for longest
    allkeys-lfu, volatile-lfu     the one used least often
    allkeys-lrm, volatile-lrm     the one not changed for longest
    volatile-ttl                  the one that expires first
    allkeys-random, volatile-random     any

`volatile` policies take only keys that have an expiry. The key that expires first is known (a heap); for the others a
few keys are drawn at random, and the best candidates of earlier draws are kept in a pool, so that with each draw the
pool approaches the keys of the lowest value. A candidate that has been used since it was drawn is dropped.

Eviction may take a while. A request waits no longer than maxmemory-eviction-tenacity allows; the rest is done between
turns of the loop, while requests are still accepted. Only when nothing more can be evicted `make_room` is False, and
requests that need memory are refused.

Another thread frees large streams. Before the next key is evicted, pending frees are awaited: otherwise one large
stream would cause many other keys to be evicted.

Reporting that keys have gone may take more memory than they did: each of many clients that track a key is sent its
name. What the reports take does not count until the next request, when most of it has been sent.

What must hold: an evicted key is propagated as DEL, a unit of its own, before the command that needed the room.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.math cimport pow
from libc.stdint cimport INT64_MAX, int64_t
from posix.unistd cimport usleep

import logging

from streamd.keyspace.database cimport Database
from streamd.keyspace.deadlines cimport expiry_of
from streamd.keyspace.key_record cimport (
    ACCESS_CHANGES, ACCESS_FREQUENCY, ACCESS_TIME, KeyRecord, accessed_of, key_of,
)
from streamd.errors import OUT_OF_MEMORY
from streamd.core.capability cimport Capability
from streamd.core.client cimport CLASS_REPLICA, Client
from streamd.core.clock cimport monotonic_us
from streamd.core.dispatch cimport BUSY, MEMORY_LIMITED, PAUSED
from streamd.heap cimport heap_bytes
from streamd.core.info cimport numbers
from streamd.core.info import Fields
from streamd.observe.latency import LatencyMonitor
from streamd.core.route cimport Route
from streamd.protocol.reply cimport idle_block_bytes

__all__ = ["CLIENT_BYTES", "Eviction"]

log = logging.getLogger("streamd")

cdef enum:
    POOL_SIZE = 16
    LOOK_AT_CLOCK = 16          # keys evicted between two readings of the clock
    FREE_SLICE = 200            # objects of a flushed database that are freed at a time while room is needed
    FREE_PAUSE_US = 50          # between two checks of what the other thread has freed

cdef long long FOREVER_US = 1 << 62

CLIENT_BYTES = 2048
"""Approximate size of a connection's Python objects, besides its buffers."""
MIN_CLIENTS_LIMIT = 128 * 1024
"""A smaller limit would leave no client to raise it."""

ORDERS = {"lru": BY_TIME, "lrm": BY_TIME, "lfu": BY_USES, "ttl": BY_DEADLINE, "random": BY_CHANCE}
MODES = {"lfu": ACCESS_FREQUENCY, "lrm": ACCESS_CHANGES}


cdef int read_counts(object capability, int64_t *to) except -1:
    cdef Eviction self = <Eviction>capability
    to[0] = self.evicted_clients
    to[2] = self.current_excess_ms()
    to[1] = self.exceeded_us // 1000 + to[2]
    return 0


cdef class Eviction(Capability):
    """The limits of memory of a server."""

    refusal_rank = 20

    info = {
        "memory": (
            Fields("maxmemory maxmemory_human:size maxmemory_policy", lambda self: (<Eviction?>self).shown_limits),
        ),
        "stats": (
            numbers("evicted_clients total_eviction_exceeded_time current_eviction_exceeded_time", read_counts),
        ),
    }

    def __init__(self, host not None):
        self.config = host.config
        self.dispatcher = host.dispatcher
        self.latency = host.get(LatencyMonitor)
        self.memory_users = host.memory_users
        self.trash = host.trash
        self.databases = list(host.databases)
        self.server_bits = MEMORY_LIMITED
        self.pool = []
        self.weights = {}
        self.samples = 5
        self.startup = self.used()

    def apply_settings(self):
        """Apply the settings; evict, between turns, what exceeds them."""
        cdef Database db
        cdef object config = self.config
        cdef str scope, kind
        scope, _, kind = config.maxmemory_policy.partition("-")
        self.is_volatile = scope == "volatile"
        self.order = ORDERS.get(kind, BY_NOTHING)
        self.samples = config.maxmemory_samples
        self.patience_us = patience_of(config.maxmemory_eviction_tenacity)
        self.pool.clear()
        for db in self.databases:
            db.access_mode = MODES.get(kind, ACCESS_TIME)
            db.log_factor = config.lfu_log_factor
            db.decay_minutes = config.lfu_decay_time
        limit = min(config.maxmemory, INT64_MAX)    # it may have 64 bits, more than any memory
        if limit != self.limit:
            self.limit = limit
            if self.limit and self.used() > self.limit:
                log.warning(
                    "WARNING: the new maxmemory value set via CONFIG SET (%d) is smaller than the current memory usage"
                    " (%d). This will result in key eviction and/or the inability to accept new write commands"
                    " depending on the maxmemory-policy.", self.limit, self.used(),
                )
        self.dispatcher.change_state(MEMORY_LIMITED, self.limit != 0)
        if self.limit:
            self.go_on_later()
        else:
            self.note_excess(False)
        self.shown_limits = (config.maxmemory, config.maxmemory, config.maxmemory_policy)
        self.limit_clients(config)

    # --- How much is used ------------------------------------------------------------------------------------------

    cpdef long long used(self) except -1:
        """Bytes of memory for data, clients, their names and buffers. O(1)."""
        cdef Database db
        cdef long long total = heap_bytes() + len(self.dispatcher.clients) * <long long>CLIENT_BYTES
        cdef Capability user
        total += self.dispatcher.names_size + self.dispatcher.held_size - idle_block_bytes()
        for user in self.memory_users:
            total += user.memory()
        for db in self.databases:
            total += db.memory()
        if total > self.peak:
            self.peak = total
            self.peak_ms = self.dispatcher.unix_ms()
        return total

    cdef long long uncounted(self) except -1:
        """Bytes that are used, but not counted against the limit."""
        cdef Capability user
        cdef long long total = 0
        for user in self.memory_users:
            total += user.unlimited_memory()
        return total

    cpdef bint has_room(self) except -1:
        """Whether the data is within the limit."""
        cdef long long excess
        if self.limit == 0:
            return True
        excess = self.used() + self.request_bytes - self.report_bytes - self.limit
        return excess <= 0 or excess <= self.uncounted()

    cdef int note_excess(self, bint is_exceeded) except -1:
        """Measure how long the limit is exceeded."""
        if is_exceeded:
            if self.exceeded_since_us == 0:
                self.exceeded_since_us = monotonic_us()
        elif self.exceeded_since_us:
            self.exceeded_us += monotonic_us() - self.exceeded_since_us
            self.exceeded_since_us = 0
        return 0

    cdef long long current_excess_ms(self) noexcept:
        """For how long the limit has been exceeded."""
        return (monotonic_us() - self.exceeded_since_us) // 1000 if self.exceeded_since_us else 0

    def reset_statistics(self):
        """CONFIG RESETSTAT."""
        cdef Database db
        for db in self.databases:
            db.evicted_keys = 0
        self.evicted_clients = self.exceeded_us = 0
        self.peak = 0
        self.used()

    def each_second(self, long long now_ms):
        if self.clients_limit:
            self.weigh_all()
            self.evict_clients()

    def cron(self, long long now_ms):
        self.used()     # for the peak

    # --- Make room -------------------------------------------------------------------------------------------------

    cpdef str find_refusal(self, Client client, Route route, list args):
        cdef bytes arg
        for arg in args:
            self.request_bytes += PyBytes_GET_SIZE(arg)
        try:
            self.is_full = not self.make_room()
        finally:
            self.request_bytes = 0
        if self.is_full and self.dispatcher.needs_memory(client, route):
            return OUT_OF_MEMORY
        return None

    cpdef bint make_room(self) except -1:
        """Evict as much as needed and as time allows; False when there is no room and nothing more can be evicted."""
        cdef long long until_us
        cdef int evicted = 0
        self.report_bytes = 0
        cdef bint is_done
        if self.is_off or self.dispatcher.state & (PAUSED | BUSY) or self.has_room():
            self.note_excess(False)
            return True
        until_us = monotonic_us() + self.patience_us
        while True:
            if self.trash.pending_objects():
                if self.wait_for_frees(until_us):
                    break
                if self.trash.pending_objects() and self.order != BY_NOTHING:
                    self.go_on_later()
                    break
            if not self.evict_one():
                self.wait_for_frees(until_us)
                is_done = self.has_room()
                self.note_excess(not is_done)
                self.note_time(until_us - self.patience_us)
                return is_done
            if self.has_room():
                break
            evicted += 1
            if evicted % LOOK_AT_CLOCK == 0 and monotonic_us() > until_us:
                self.go_on_later()
                break
        self.note_excess(not self.has_room())
        self.note_time(until_us - self.patience_us)
        return True

    cdef int note_time(self, long long started_us) except -1:
        """Report to the latency monitor how long a request had to wait for room."""
        self.latency.add("eviction-cycle", (monotonic_us() - started_us) // 1000)
        return 0

    cdef bint wait_for_frees(self, long long until_us) except -1:
        """Wait for what is being freed; True if there is room, False when everything is freed or it takes too long."""
        while self.trash.pending_objects():
            if self.trash.has_slices:
                self.trash.step(FREE_SLICE)
            else:
                with nogil:
                    usleep(FREE_PAUSE_US)
            if self.has_room():
                return True
            if monotonic_us() > until_us:
                break
        return self.has_room()

    cdef int go_on_later(self) except -1:
        """Evict more between turns of the loop."""
        if self.timer is None:
            self.timer = self.dispatcher.loop.call_soon(self.go_on)
        return 0

    def pause_ended(self):
        """After a pause of writes, during which nothing is evicted."""
        if self.limit:
            self.go_on_later()

    def go_on(self):
        """Continue an eviction that ran out of time."""
        self.timer = None
        if self.order != BY_NOTHING:
            self.make_room()

    # --- Which key is evicted -----------------------------------------------------------------------------------------

    cdef bint evict_one(self) except -1:
        """Evict the key with the lowest value; False when none may be evicted."""
        cdef Database db
        cdef bytes key
        cdef long long used
        found = self.find_victim()
        if found is None:
            return False
        db, key = found
        db.now_ms = self.dispatcher.unix_ms()
        db.evict(key)
        used = self.used()
        db.report_evicted(key)
        self.dispatcher.effects.finish_unit()
        used = self.used() - used
        if used > 0:
            self.report_bytes += used
        return True

    cdef object find_victim(self):
        """(database, key) to evict next, or None."""
        if self.order == BY_TIME or self.order == BY_USES:
            return self.take_from_pool()
        if self.order == BY_CHANCE:
            return self.draw_any()
        return self.find_first_to_expire() if self.order == BY_DEADLINE else None

    cdef Py_ssize_t eligible(self, Database db) noexcept:
        """How many keys of a database may be evicted."""
        return db.deadline_count if self.is_volatile else db.count

    cdef object draw_any(self):
        """Any evictable key, from one database after the other."""
        cdef Database db
        cdef KeyRecord *record
        for _ in range(<int>len(self.databases)):
            db = self.databases[self.next_db]
            self.next_db = (self.next_db + 1) % <int>len(self.databases)
            if self.eligible(db):
                record = db.evictable_record(self.is_volatile)
                if record is not NULL:
                    return db, key_of(record)
        return None

    cdef object find_first_to_expire(self):
        cdef Database db
        cdef Database first = None
        cdef KeyRecord *record
        cdef KeyRecord *earliest = NULL
        for db in self.databases:
            record = db.first_to_expire()
            if record is not NULL and (earliest is NULL or expiry_of(db, record) < expiry_of(first, earliest)):
                first, earliest = db, record
        return None if earliest is NULL else (first, key_of(earliest))

    cdef long long score(self, Database db, KeyRecord *record) except -1:
        """The score of a key: the higher, the sooner it is evicted."""
        if self.order == BY_USES:
            return 255 - db.decayed_uses(record)
        return max(0, db.now_ms - accessed_of(record))

    cdef object take_from_pool(self):
        """The best candidate, or None when no key may be evicted."""
        cdef Database db
        cdef KeyRecord *record
        cdef long long score
        cdef object key
        while self.draw():
            while self.pool:
                score, db, key = self.pool.pop()
                record = db.lookup(key)
                if record is not NULL and (record.deadline_at >= 0 or not self.is_volatile) and db.is_shown(record) \
                        and (self.score(db, record) >= score or not self.pool):
                    return db, key
        return None

    cdef bint draw(self) except -1:
        """Draw some keys of each database into the pool; False when there are none."""
        cdef Database db
        cdef KeyRecord *record
        cdef Py_ssize_t count
        cdef bint has_any = False
        cdef long long now_ms = self.dispatcher.unix_ms()
        for db in self.databases:
            count = self.eligible(db)
            if count:
                db.now_ms = now_ms
                for _ in range(<int>min(count, self.samples)):
                    record = db.evictable_record(self.is_volatile)
                    if record is NULL:
                        break
                    has_any = True
                    self.offer(self.score(db, record), db, key_of(record))
        return has_any

    cdef int offer(self, long long score, Database db, bytes key) except -1:
        """Insert a candidate into the pool, unless the pool is full of better ones or has it already."""
        cdef Py_ssize_t at = len(self.pool)
        cdef tuple other
        for other in self.pool:
            if other[1] is db and other[2] == key:
                return 0
        while at > 0 and <long long>(<tuple>self.pool[at - 1])[0] > score:
            at -= 1
        if len(self.pool) == POOL_SIZE:
            if at == 0:
                return 0
            del self.pool[0]
            at -= 1
        self.pool.insert(at, (score, db, key))
        return 0

    # --- Clients ---------------------------------------------------------------------------------------------------

    cdef int limit_clients(self, config) except -1:
        """Apply the limit for clients: bytes, or a share of maxmemory."""
        cdef long long limit = config.maxmemory_clients
        if limit < 0:
            limit = <object>self.limit * -limit // 100
        if limit:
            limit = max(limit, <long long>MIN_CLIENTS_LIMIT)
        self.clients_limit = limit
        self.dispatcher.limits_clients = limit != 0
        self.weights.clear()
        self.clients_bytes = 0
        if limit:
            self.weigh_all()
        return 0

    def weigh_all(self):
        """Weigh every client. O(clients)."""
        cdef Client client
        for client in self.dispatcher.clients.values():
            self.weigh(client)

    cpdef int weigh(self, Client client) except -1:
        """Record how much memory a client uses now."""
        cdef long long size
        if client.id not in self.dispatcher.clients or client.output_class == CLASS_REPLICA or client.is_primary:
            return 0
        size = client.memory_usage()
        self.clients_bytes += size - <long long>self.weights.get(client, 0)
        self.weights[client] = size
        return 0

    def client_gone(self, Client client not None):
        if self.weights:
            self.clients_bytes -= <long long>self.weights.pop(client, 0)

    cpdef int after_replies(self, list clients) except -1:
        cdef Client client
        for client in clients:
            self.weigh(client)
        return self.evict_clients()

    cpdef int evict_clients(self) except -1:
        """Close the largest clients until they are within the limit."""
        cdef Client client
        if self.clients_bytes <= self.clients_limit:
            return 0
        heaviest = sorted(
            [(size, client.id, client) for client, size in self.weights.items() if not client.no_evict], reverse=True
        )
        for _, _, client in heaviest:
            if self.clients_bytes <= self.clients_limit:
                return 0
            log.info("Evicting client: id=%d addr=%s tot-mem=%d", client.id, client.address, client.memory_usage())
            self.evicted_clients += 1
            client.close()
            self.client_gone(client)
        return 0


cdef long long patience_of(int tenacity):
    """maxmemory-eviction-tenacity as microseconds: linear up to 10, then growing by 15 % with each; 100: no limit."""
    if tenacity <= 10:
        return 50 * tenacity
    return FOREVER_US if tenacity >= 100 else <long long>(500.0 * pow(1.15, tenacity - 10.0))
