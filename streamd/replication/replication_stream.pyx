# cython: language_level=3, boundscheck=False, wraparound=False
"""ReplicationStream: what replicas are sent, formatted once, in memory that all of them share.

The stream is a sequence of bytes, numbered from the start of its history: the number of a byte is its offset, starting
at 1, and `offset` is that of the last byte. The bytes are in blocks:

    first ─▶ block ─▶ block ─▶ block ◀─ last
                        ▲        ▲
                      feed     feed                    each replica is at its own place

A block is kept while a feed has not sent all of it, or while the backlog needs it: a replica that reconnects continues
where it was, if the bytes from there are still here. The backlog has `backlog_size` bytes, and up to a block more: a
transaction, or a command, that is larger than a block is spread over several.
So a replica that is slow, or is still loading the snapshot that it got, costs no more than the bytes that it has not
been sent, however many such replicas there are.

A primary's stream grows by the effects of its commands, a replica's by what its primary sends, byte for byte: offsets
mean the same everywhere in a tree of replicas. Effects that belong together are enclosed in MULTI and EXEC, with any
SELECT inside. Behaviour: as seen in Redis's own stream.

Invariants: blocks are without gaps, from `first_offset` to `offset`; only the last one is empty, if any; a feed's block
contains its next byte, or ends before it and is the last. Between two units, `offset` is the end of the last block.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdlib cimport free

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.effects cimport Effect, Effects
from streamd.protocol.request_bytes cimport buffer_fit, buffer_put, buffer_put_command, buffer_put_count

__all__ = ["Feed", "ReplicationStream", "StreamMemory"]

cdef enum:
    LEAST_BLOCK = 16 * 1024
    MOST_BLOCK = 256 * 1024
    BLOCKS_PER_BACKLOG = 16
    TURN_MOST = 1024 * 1024     # bytes sent to one replica per turn, however fast it reads


@cython.final
@cython.no_gc
cdef class Block:
    """A piece of the stream."""

    def __dealloc__(self):
        free(self.held.data)


@cython.final
cdef class ReplicationStream(EffectSink):
    """The replication stream of a server; closed until the first replica comes. `len()` is what the backlog holds.

    effects  where the server's effects come from
    """

    def __init__(self, Effects effects not None):
        self.effects = effects
        self.feeds = set()
        self.limit_backlog(1 << 20)
        self.selected = -1
        self.first_offset = 1

    def __len__(self):
        return self.offset - self.first_offset + 1 if self.is_open else 0

    def limit_backlog(self, Py_ssize_t size):
        """Keep so many bytes from now on."""
        self.backlog_size = size
        self.full = min(max(size // BLOCKS_PER_BACKLOG, LEAST_BLOCK), MOST_BLOCK)
        if self.is_open:
            self.trim()

    # --- Open or not --------------------------------------------------------------------------------------------------

    def open(self, long long offset):
        """Start to keep what follows byte `offset`; feeds must have been closed."""
        self.close()
        self.offset = offset
        self.first_offset = offset + 1
        self.selected = -1
        self.is_open = True
        self.begin_block()

    def close(self):
        """Keep nothing any more; feeds must have been closed."""
        assert not self.feeds, "a feed would lose its place"
        self.is_open = False
        while self.first is not None:
            self.drop_first()
        self.last = None

    # --- What it is made of -------------------------------------------------------------------------------------------

    cpdef int take_effects(self, list effects, long long now_ms) except -1:
        """Append the effects of one unit: two or more are enclosed in MULTI and EXEC. All of them or none."""
        cdef bint is_group = PyList_GET_SIZE(effects) > 1
        cdef Effect effect
        cdef Block last = self.last
        cdef Py_ssize_t mark
        if not self.is_open:
            return 0
        mark = last.held.size
        try:
            if is_group:
                buffer_put(&last.held, b"*1\r\n$5\r\nMULTI\r\n", 15)
            for effect in effects:
                if effect.db_index != self.selected:
                    self.put([b"SELECT", b"%d" % effect.db_index])
                    self.selected = effect.db_index
                self.put(effect.args)
            if is_group:
                buffer_put(&self.last.held, b"*1\r\n$4\r\nEXEC\r\n", 14)
        except BaseException:
            self.cut_back(last, mark)
            self.selected = -1      # the SELECT may have been taken back too
            raise
        return self.unit_ended(last)

    def append(self, list args not None):
        """Append a command that is for no database: PING, REPLCONF GETACK."""
        cdef Block last = self.last
        if self.is_open:
            self.put(args)
            self.unit_ended(last)

    def append_raw(self, bytes data not None):
        """Append what a primary has sent: complete commands."""
        cdef Block last = self.last
        if self.is_open:
            self.put_bytes(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            self.unit_ended(last)
        else:
            self.offset += PyBytes_GET_SIZE(data)

    cdef int put(self, list args) except -1:
        """Append a command."""
        cdef Py_ssize_t size = 0
        cdef bytes arg
        for arg in args:
            size += PyBytes_GET_SIZE(arg)
        self.settle()
        if size <= self.full:
            return buffer_put_command(&self.last.held, args)
        buffer_put_count(&self.last.held, c'*', <unsigned long long>PyList_GET_SIZE(args))
        for arg in args:
            buffer_put_count(&self.last.held, c'$', <unsigned long long>PyBytes_GET_SIZE(arg))
            self.put_bytes(PyBytes_AS_STRING(arg), PyBytes_GET_SIZE(arg))
            buffer_put(&self.last.held, b"\r\n", 2)
        return 0

    cdef int put_bytes(self, const char *p, Py_ssize_t n) except -1:
        """Append bytes, in as many blocks as they need."""
        cdef Py_ssize_t size
        while n:
            self.settle()
            size = min(n, self.full - self.last.held.size)
            buffer_put(&self.last.held, p, size)
            p += size
            n -= size
        return 0

    def select_again(self):
        """Start the next command with a SELECT: a replica will begin there."""
        self.selected = -1

    # --- Blocks -------------------------------------------------------------------------------------------------------

    cdef int settle(self) except -1:
        """Make sure that the last block may grow."""
        if self.last.held.size >= self.full:
            self.begin_block()
        return 0

    cdef int begin_block(self) except -1:
        cdef Block block = Block.__new__(Block)
        if self.last is None:
            block.start = self.offset
            self.first = block
        else:
            block.start = self.last.start + self.last.held.size
            self.last.next = block
            buffer_fit(&self.last.held)
            self.allocated += self.last.held.capacity
        self.last = block
        return 0

    cdef int unit_ended(self, Block last) except -1:
        """Everything is appended of a unit that began in the block `last`."""
        self.offset = self.last.start + self.last.held.size
        if self.last is not last:
            self.trim()
        return 0

    cdef int cut_back(self, Block last, Py_ssize_t size) except -1:
        """Take back all that follows so many bytes of a block."""
        cdef Block block
        while self.last is not last:
            block = last.next
            last.next = block.next
            block.next = None
            if block is self.last:
                self.last = last
                self.allocated -= last.held.capacity
            else:
                self.allocated -= block.held.capacity
        last.held.size = size
        return 0

    cdef int trim(self) except -1:
        """Drop the blocks at the front that neither the backlog nor a feed needs."""
        cdef long long needed = max(0, self.offset - self.backlog_size)
        cdef Feed feed
        for feed in self.feeds:
            needed = min(needed, feed.block.start)      # also when all of that is sent: it leads to the next one
        while self.first is not self.last and self.first.next.start <= needed:
            self.drop_first()
        self.first_offset = self.first.start + 1
        return 0

    cdef int drop_first(self) except -1:
        """Drop one block, cut off from the next one: freeing a long chain at once would recurse."""
        cdef Block block = self.first
        self.first = block.next
        block.next = None
        if block is not self.last:
            self.allocated -= block.held.capacity
        return 0

    cpdef Py_ssize_t memory(self) noexcept:
        """Bytes of memory of all blocks."""
        return self.allocated + (0 if self.last is None else self.last.held.capacity)

    cpdef Py_ssize_t replica_memory(self) noexcept:
        """Bytes of memory beyond what the backlog needs: for replicas that have not been sent everything."""
        cdef Py_ssize_t backlog = self.backlog_size + self.full
        if self.first is None or self.last.start + self.last.held.size - self.first.start <= backlog:
            return 0
        return max(0, self.memory() - backlog)

    # --- Feeds --------------------------------------------------------------------------------------------------------

    def holds(self, long long offset):
        """Whether a replica can continue with the byte at `offset`: it is kept, or is the next one."""
        return self.is_open and self.first_offset <= offset <= self.offset + 1

    def feed_from(self, long long offset):
        """A feed whose next byte is the one at `offset`, which must be held."""
        cdef Feed feed = Feed.__new__(Feed)
        cdef Block block = self.first
        assert self.holds(offset), "these bytes are gone"
        while block is not self.last and block.next.start < offset:
            block = block.next
        feed.stream = self
        feed.block = block
        feed.offset = offset
        self.feeds.add(feed)
        return feed

    def recent(self, long long offset):
        """A copy of the bytes from `offset` to the end."""
        cdef Block block = self.first
        cdef list pieces = []
        cdef long long skipped
        while block is not None:
            skipped = min(max(0, offset - 1 - block.start), block.held.size)
            pieces.append(PyBytes_FromStringAndSize(block.held.data + skipped, block.held.size - skipped))
            block = block.next
        return b"".join(pieces)

    # --- Self-check ---------------------------------------------------------------------------------------------------

    def check_invariants(self):
        """Walk all blocks and assert what the head of this file says."""
        cdef Block block = self.first
        cdef Feed feed
        cdef long long at = self.first_offset - 1
        cdef Py_ssize_t memory = 0
        cdef set blocks = set()
        if not self.is_open:
            assert block is None and self.last is None and not self.feeds and self.allocated == 0
            return
        while block is not None:
            assert block.start == at, "blocks are without gaps"
            assert block.held.size or block.next is None, "only the last block may be empty"
            at += block.held.size
            memory += block.held.capacity
            blocks.add(block)
            assert block.next is not None or block is self.last
            block = block.next
        assert at == self.offset
        assert memory == self.memory()
        for feed in self.feeds:
            assert feed.block in blocks and feed.block.start < feed.offset
            assert feed.offset <= feed.block.start + feed.block.held.size + (feed.block is self.last) \
                or feed.offset == feed.block.start + feed.block.held.size + 1


@cython.final
cdef class StreamMemory(Capability):
    """The memory of a stream, for `Host.memory_users`."""

    cdef ReplicationStream stream

    def __init__(self, ReplicationStream stream not None):
        self.stream = stream

    cpdef long long memory(self) except -1:
        return self.stream.memory()

    cpdef long long unlimited_memory(self) except -1:
        # What is kept for replicas alone: to free it is not up to this server.
        return self.stream.replica_memory()


@cython.final
cdef class Feed(Outflow):
    """What one replica has yet to be sent."""

    cpdef int send(self, Client client) except -1:
        """Send what there is, as far as the connection takes it."""
        cdef Py_ssize_t at, left, done
        cdef Py_ssize_t most = TURN_MOST
        cdef Block begun = self.block
        while not client.is_congested:
            at = self.offset - 1 - self.block.start
            left = self.block.held.size - at
            if left == 0:
                if self.block.next is None:
                    break
                self.block = self.block.next
                continue
            done = client.send_some(self.block.held.data + at, <size_t>min(left, most))
            if done < 0:
                break
            self.offset += done
            self.stream.sent_bytes += done
            most -= done
            if most == 0:
                client.send_later()
                break
        if begun is not self.block and begun is self.stream.first:
            self.stream.trim()
        return 0

    cpdef long long unsent(self) except -1:
        return self.stream.offset + 1 - self.offset

    def skip_to(self, long long offset):
        """Go on with another byte further on; the ones before it are not sent."""
        while self.block is not self.stream.last and self.block.next.start < offset:
            self.block = self.block.next
        self.offset = offset

    def close(self):
        """The replica is gone."""
        self.stream.feeds.discard(self)
        if self.stream.is_open:
            self.stream.trim()
