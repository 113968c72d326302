# cython: language_level=3, boundscheck=False, wraparound=False
"""ReplyWriter: replies as RESP2 or RESP3 bytes in one growing C buffer. No sockets; knows no command.

    block              data                 data + length            data + capacity
      |  sent already    |  not yet sent       |  free                   |
      +------------------+---------------------+-------------------------+

Every connection has a writer, so an empty one holds no memory: its first byte takes a block of 1 KiB from a free list
shared by all writers, and the block is returned when the last byte is taken. Output that does not fit moves to a block
of 16 KiB, then to one of 64 KiB, each from a separate list; beyond that, the block is doubled. The first block is small
because a message may go to a thousand connections at once: their blocks should stay in the processor's cache and in the
free list, instead of being requested from the system, page by page, for each message. The last list is for pipelines of
long replies: the C library returns a block of this size to the system whenever it is freed at the end of the heap. A
writer that needed one takes it at once when it next leaves its small block, so that less is moved.
Free blocks that have not been needed for a while are returned to the system (`give_back_idle_blocks`, to be called
several times a second). Invariant: data is NULL exactly when block is, and then length = capacity = 0; else
block <= data and length <= capacity.

Bytes that go to many connections are not copied into the block: they are linked (`links`) at the place where they
belong, and sent from where they are. The block holds only the writer's own bytes, and so do `data` and `length`:

    own bytes, items[0].before of them | items[0].bytes | items[1].before | items[1].bytes | the rest of the own bytes

A writer may have a limit: how much a peer may leave unread. The write that exceeds it drops everything and calls
`on_limit`; from then on the writer is cut: it accepts writes, because a command may have effects to finish, but
discards them. A cut writer overwrites one spare block again and again; it has nothing to send.

The writer never checks that the number of elements of an aggregate matches its header: that is up to the handler.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport SIZE_MAX, int64_t, uint64_t
from streamd.heap cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcpy, memmove

from posix.uio cimport iovec

from streamd.numbers cimport count_digits, put_digits, put_line, put_uint64
from streamd.protocol.doubles cimport DOUBLE_ROOM, put_double
from streamd.shared_bytes cimport SharedBytes, shared_drop, shared_hold, shared_holders

__all__ = ["ReplyWriter", "give_back_idle_blocks"]


# --- Blocks ---------------------------------------------------------------------------------------------------------

cdef enum:
    SMALL_BLOCK_SIZE = 1024
    MAX_SMALL_BLOCKS = 4096       # at most 4 MiB are kept for later writers
    BLOCK_SIZE = 16384
    MAX_BLOCKS = 1024             # and at most 16 MiB of these
    GREAT_BLOCK_SIZE = 65536
    MAX_GREAT_BLOCKS = 128        # and at most 8 MiB of these

cdef struct FreeList:
    # Free blocks of one size.
    char **blocks       # owned, the first `count` of them
    size_t size         # bytes of each
    size_t most         # how many are kept
    size_t count
    size_t unused       # the minimum of `count` since idle blocks were freed

# Shared by all writers; guarded by the GIL. The addresses are explicit: Cython would copy an array into the pointer.
cdef char *small_places[MAX_SMALL_BLOCKS]
cdef char *places[MAX_BLOCKS]
cdef char *great_places[MAX_GREAT_BLOCKS]
cdef FreeList small_blocks = FreeList(&small_places[0], SMALL_BLOCK_SIZE, MAX_SMALL_BLOCKS, 0, 0)
cdef FreeList large_blocks = FreeList(&places[0], BLOCK_SIZE, MAX_BLOCKS, 0, 0)
cdef FreeList great_blocks = FreeList(&great_places[0], GREAT_BLOCK_SIZE, MAX_GREAT_BLOCKS, 0, 0)


cdef inline char *take_block(FreeList *free_list) noexcept:
    """A block of the list's size, or NULL if out of memory."""
    if free_list.count == 0:
        return <char *>malloc(free_list.size)
    free_list.count -= 1
    if free_list.count < free_list.unused:
        free_list.unused = free_list.count
    return free_list.blocks[free_list.count]


cdef inline void give_block(char *block, size_t size) noexcept:
    cdef FreeList *free_list = &small_blocks if size == SMALL_BLOCK_SIZE else \
        &large_blocks if size == BLOCK_SIZE else &great_blocks
    if size == free_list.size and free_list.count < free_list.most:
        free_list.blocks[free_list.count] = block
        free_list.count += 1
    else:
        free(block)


cdef size_t give_back_idle(FreeList *free_list) noexcept:
    """Free a quarter of the blocks that have not been taken since the last call; returns how many were freed."""
    cdef size_t idle = free_list.unused // 4
    for _ in range(idle):
        free_list.count -= 1
        free(free_list.blocks[free_list.count])
    free_list.unused = free_list.count
    return idle


cpdef int give_back_idle_blocks() except -1:
    """Free a quarter of the blocks that no writer has taken since the last call; returns how many were freed."""
    return <int>(give_back_idle(&small_blocks) + give_back_idle(&large_blocks) + give_back_idle(&great_blocks))


cdef long long idle_block_bytes() noexcept:
    """Bytes of the blocks that are kept for later writers."""
    return <long long>(
        small_blocks.count * small_blocks.size + large_blocks.count * large_blocks.size
        + great_blocks.count * great_blocks.size
    )


# --- Numbers -------------------------------------------------------------------------------------------------------


cdef bytes format_double(double value):
    """The text of a double as Redis writes it."""
    cdef char text[DOUBLE_ROOM]
    return text[:put_double(text, value)]


cdef inline char *room(ReplyWriter writer, size_t n) except NULL:
    """As `grow`, but without a call in the usual case; n must not be zero."""
    if n <= writer.capacity - writer.length:
        return writer.data + writer.length
    return writer.grow(n)


cdef inline bint passes_limit(ReplyWriter writer, size_t n) noexcept:
    """Whether n more bytes exceed the limit; bytes that fit into the block never do."""
    return n > writer.capacity - writer.length and unsent_bytes(writer) + n > writer.limit


# The first half of the most recently written ID: entries are in time order, with many in a millisecond.
cdef struct MsText:
    uint64_t ms
    size_t size         # bytes of the text
    char text[24]       # the digits, and `-`

cdef MsText latest_ms = MsText(0, 2, b"0-")     # shared by all writers, guarded by the GIL


cdef char *change_block(ReplyWriter writer, FreeList *free_list) except NULL:
    """Continue in a block of a list, in which everything has room. Returns the position of the next byte."""
    cdef char *block = take_block(free_list)
    if block is NULL:
        raise MemoryError("no memory for a reply")
    if writer.block is not NULL:
        memcpy(block, writer.data, writer.length)
        give_block(writer.block, writer.memory())
    writer.block = writer.data = block
    writer.capacity = free_list.size
    return block + writer.length


cdef inline void return_block(ReplyWriter writer) noexcept:
    """Forget what was written, and give the buffer back: without a call for `consume`, which ends each reply."""
    cdef size_t size
    if writer.block is not NULL:
        size = writer.memory()
        if size > BLOCK_SIZE:
            writer.is_long = <size_t>(writer.data - writer.block) + writer.length > BLOCK_SIZE
        give_block(writer.block, size)
        writer.block = NULL
        writer.data = NULL
    writer.length = 0
    writer.capacity = 0


# --- The writer -----------------------------------------------------------------------------------------------------

@cython.final
@cython.no_gc
cdef class ReplyWriter:
    """Replies in the order they are written, in RESP2 or RESP3 according to the current `resp`."""

    def __cinit__(self, int resp=2):
        self.data = NULL
        self.block = NULL
        self.length = 0
        self.capacity = 0
        self.limit = SIZE_MAX
        self.resp = resp

    def __dealloc__(self):
        self.release()

    def __len__(self):
        return self.length

    def __repr__(self):
        return f"<ReplyWriter RESP{self.resp}, {self.length} bytes>"

    # The buffer

    cdef char *grow(self, size_t n) except NULL:
        """Make room for n more bytes and return their position. May move `data`."""
        cdef size_t need = self.length + n
        cdef size_t spent, size
        cdef char *block
        if need <= self.capacity and self.block is not NULL:
            return self.data + self.length
        if need < n:
            raise MemoryError("reply too large")
        if unsent_bytes(self) + n > self.limit:
            self.pass_limit()
            return self.spare(n)
        if self.block is NULL and n <= SMALL_BLOCK_SIZE:
            size = SMALL_BLOCK_SIZE
            block = take_block(&small_blocks)
            if block is NULL:
                raise MemoryError("no memory for a reply")
        else:
            spent = self.data - self.block
            size = spent + self.capacity
            if spent and need <= size // 2:
                # Bytes already sent leave room. Reusing it is worth a move if at least half of the block is free
                # afterwards: so a byte moves a bounded number of times, however slowly the peer reads, and a gigabyte
                # of backlog is not moved for a few more bytes.
                memmove(self.block, self.data, self.length)
                self.data = self.block
                self.capacity = size
                return self.data + self.length
            if size < BLOCK_SIZE and need <= BLOCK_SIZE and not self.is_long:
                return change_block(self, &large_blocks)
            if size <= BLOCK_SIZE and need <= GREAT_BLOCK_SIZE <= self.limit:
                self.is_long = True
                return change_block(self, &great_blocks)
            if size < BLOCK_SIZE:
                size = BLOCK_SIZE // 2
            while True:
                if size > (<size_t>-1) // 2:
                    raise MemoryError("reply too large")
                size *= 2
                if size - spent >= need:
                    break
            if spent == 0 and size > self.limit:
                size = self.limit           # not less than `need`; with sent bytes in front, doubling saves a move
            block = <char *>realloc(self.block, size)
            if block is NULL:
                raise MemoryError("no memory for a reply")
            self.block = block
            self.data = block + spent
            self.capacity = size - spent
            return self.data + self.length
        self.block = block
        self.data = block
        self.capacity = size
        return self.data + self.length

    # The limit

    cpdef int set_limit(self, size_t limit, object on_limit) except -1:
        """Keep at most `limit` bytes; `on_limit` is called when more is written. No effect on a cut writer.

        `on_limit` may be None. If it references the owner of this writer, that is a cycle the collector cannot see.
        """
        self.on_limit = on_limit
        if not self.is_cut:
            self.limit = limit
        return 0

    cpdef int cut(self) except -1:
        """Drop everything, including later writes: none of it will be sent."""
        self.is_cut = True
        self.limit = 0
        self.release()
        return 0

    cdef bint pass_limit(self) except -1:
        """The limit is exceeded: cut the writer. Returns True."""
        if not self.is_cut:
            self.cut()
            if self.on_limit is not None:
                self.on_limit()
        return True

    cdef char *spare(self, size_t n) except NULL:
        """Room for n bytes that will be discarded."""
        self.length = 0
        if self.block is NULL or self.capacity < n:
            self.release()
            self.capacity = n if n > BLOCK_SIZE else BLOCK_SIZE
            self.block = <char *>malloc(n) if n > BLOCK_SIZE else take_block(&large_blocks)
            if self.block is NULL:
                self.capacity = 0
                raise MemoryError("no memory for a reply")
        self.data = self.block
        return self.data

    cpdef int consume(self, size_t n) except -1:
        """Drop the first n bytes, which have been sent. Marks and opened arrays are invalid afterwards."""
        if self.links is not NULL:
            return self.consume_linked(n)
        if n >= self.length:
            if n > self.length:
                raise ValueError("more bytes consumed than there are")
            return_block(self)
            return 0
        self.data += n
        self.length -= n
        self.capacity -= n
        return 0

    cdef size_t memory(self) noexcept:
        """Bytes malloc'ed for this writer."""
        return <size_t>(self.data - self.block) + self.capacity if self.block is not NULL else 0

    cdef void release(self) noexcept:
        """Forget everything and give the buffer back."""
        if self.links is not NULL:
            self.drop_links()
        self.give_back()

    cdef void give_back(self) noexcept:
        return_block(self)

    cpdef size_t mark(self):
        """A position to return to with `truncate`; invalid once bytes have been taken or consumed."""
        return self.length

    cpdef void truncate(self, size_t mark):
        """Drop everything written since `mark`."""
        if mark == 0:
            self.give_back()
        elif mark < self.length:
            self.length = mark

    cpdef bytes take(self):
        """All bytes written so far; the writer is empty again."""
        cdef list pieces = []
        cdef bytes taken
        cdef iovec part
        while self.links is not NULL:
            self.parts(&part, 1, SIZE_MAX)
            pieces.append(PyBytes_FromStringAndSize(<char *>part.iov_base, <Py_ssize_t>part.iov_len))
            self.consume(part.iov_len)
        taken = self.peek()
        self.release()
        return b"".join([*pieces, taken]) if pieces else taken

    def peek(self):
        """All bytes written so far, but the shared ones; they stay."""
        return PyBytes_FromStringAndSize(self.data, <Py_ssize_t>self.length) if self.length else b""

    def clear(self):
        """Forget everything and give the buffer back."""
        self.release()

    # Shared bytes

    cdef int link(self, SharedBytes *bytes) except -1:
        """Append shared bytes. What is written next follows them; marks of before are invalid afterwards."""
        cdef Links *links = self.links
        cdef Link *items
        cdef Link *last
        if unsent_bytes(self) + bytes.size > self.limit and self.pass_limit():
            return 0
        if links is NULL:
            links = self.links = <Links *>calloc(1, sizeof(Links))
            if links is NULL:
                raise MemoryError("no memory for a reply")
        if links.first + links.count == links.room:
            if links.first > links.count:       # at least half of them have been sent
                memmove(links.items, links.items + links.first, links.count * sizeof(Link))
                links.first = 0
            else:
                items = <Link *>realloc(links.items, (2 * links.room + 4) * sizeof(Link))
                if items is NULL:
                    if links.count == 0:
                        self.drop_links()
                    raise MemoryError("no memory for a reply")
                links.items = items
                links.room = 2 * links.room + 4
        last = &links.items[links.first + links.count]
        last.bytes = bytes
        last.at = 0
        last.before = self.length - links.before
        links.before = self.length
        links.count += 1
        links.size += bytes.size
        shared_hold(bytes)
        return 0

    cdef int parts(self, iovec *to, int most, size_t most_bytes) noexcept:
        """The pieces to be sent first: at most `most` of them, of at most `most_bytes` bytes; returns how many.

        There is a link. Bytes of the writer behind the last one are left for a later call.
        """
        cdef Links *links = self.links
        cdef Link *item = &links.items[links.first]
        cdef Link *end = item + links.count
        cdef char *own = self.data
        cdef int count = 0
        while item is not end:
            if item.before:
                if count == most:
                    break
                to[count].iov_base = own
                to[count].iov_len = item.before
                own += item.before
                count += 1
            if count == most:
                break
            to[count].iov_base = item.bytes.data + item.at
            to[count].iov_len = item.bytes.size - item.at
            count += 1
            item += 1
        for i in range(count):
            if to[i].iov_len >= most_bytes:
                to[i].iov_len = most_bytes
                return i + 1
            most_bytes -= to[i].iov_len
        return count

    cdef int consume_linked(self, size_t n) except -1:
        """As `consume`, while there are links."""
        cdef Links *links = self.links
        cdef Link *item
        cdef size_t own, size
        while n and links.count:
            item = &links.items[links.first]
            own = min(n, item.before)
            if own:
                item.before -= own
                links.before -= own
                n -= own
                self.data += own
                self.length -= own
                self.capacity -= own
            size = min(n, item.bytes.size - item.at)
            item.at += size
            links.size -= size
            n -= size
            if item.before == 0 and item.at == item.bytes.size:
                shared_drop(item.bytes)
                links.first += 1
                links.count -= 1
        if links.count == 0:
            self.drop_links()
        if self.length == 0:
            self.give_back()
        return self.consume(n) if n else 0

    cdef void drop_links(self) noexcept:
        cdef Links *links = self.links
        self.links = NULL
        for i in range(links.first, links.first + links.count):
            shared_drop(links.items[i].bytes)
        free(links.items)
        free(links)

    cdef size_t borrowed(self) noexcept:
        """Bytes of the links that are others' share: they count as unsent for each holder, but are there once."""
        cdef SharedBytes *bytes
        cdef size_t total = 0, i
        if self.links is not NULL:
            for i in range(self.links.first, self.links.first + self.links.count):
                bytes = self.links.items[i].bytes
                total += bytes.size - bytes.size // <size_t>shared_holders(bytes)
        return total

    @property
    def allocated(self):
        """Bytes of memory held."""
        return self.memory()

    def check_invariants(self):
        """Assert the invariants of the fields stated at the top of this file."""
        cdef size_t before = 0, size = 0, i
        if self.block is NULL:
            assert self.data is NULL and self.length == 0 and self.capacity == 0
        else:
            assert self.data >= self.block and self.length <= self.capacity
            assert self.memory() == SMALL_BLOCK_SIZE or self.memory() >= BLOCK_SIZE
        if self.links is not NULL:
            assert self.links.count and self.links.first + self.links.count <= self.links.room
            for i in range(self.links.first, self.links.first + self.links.count):
                before += self.links.items[i].before
                size += self.links.items[i].bytes.size - self.links.items[i].at
            assert self.links.before == before <= self.length and self.links.size == size
        assert small_blocks.unused <= small_blocks.count <= small_blocks.most
        assert large_blocks.unused <= large_blocks.count <= large_blocks.most
        assert self.resp == 2 or self.resp == 3

    # Bytes and headers, for compiled callers

    cdef int raw_c(self, const char *p, size_t n) except -1:
        """Append n bytes unchanged."""
        if n == 0 or passes_limit(self, n) and self.pass_limit():
            return 0
        cdef char *to = room(self, n)
        memcpy(to, p, n)
        self.length += n
        return 0

    cdef int raw_parts(self, const char *head, size_t head_size, const char *tail, size_t tail_size) except -1:
        """Append bytes from two places; the first must not be empty."""
        cdef size_t n = head_size + tail_size
        if passes_limit(self, n) and self.pass_limit():
            return 0
        cdef char *to = room(self, n)
        memcpy(to, head, head_size)
        if tail_size:
            memcpy(to + head_size, tail, tail_size)
        self.length += n
        return 0

    cdef int bulk_c(self, const char *p, size_t n) except -1:
        """Append n bytes as one bulk string."""
        if n > <size_t>-1 - SMALL_REPLY:
            raise MemoryError("reply too large")
        if passes_limit(self, n + SMALL_REPLY) and self.pass_limit():
            return 0
        cdef char *to = room(self, n + SMALL_REPLY)
        cdef size_t header = put_line(to, c'$', <int64_t>n)
        to += header
        memcpy(to, p, n)
        to[n] = c'\r'
        to[n + 1] = c'\n'
        self.length += header + n + 2
        return 0

    cpdef int bulk_int64(self, int64_t value) except -1:
        cdef char *to = room(self, SMALL_REPLY)
        cdef uint64_t magnitude = <uint64_t>value if value >= 0 else 0 - <uint64_t>value
        cdef size_t digits = count_digits(magnitude)
        cdef size_t sign = value < 0
        cdef size_t at = put_line(to, c'$', <int64_t>(sign + digits))
        to[at] = c'-'                                     # overwritten by the first digit when there is no sign
        put_digits(to + at + sign, magnitude, digits)
        at += sign + digits
        to[at] = c'\r'
        to[at + 1] = c'\n'
        self.length += at + 2
        return 0

    cpdef int bulk_id(self, uint64_t ms, uint64_t seq) except -1:
        cdef char *to = room(self, SMALL_REPLY)
        cdef size_t seq_digits = count_digits(seq)
        cdef size_t at
        if ms != latest_ms.ms:
            latest_ms.size = put_uint64(latest_ms.text, ms) + 1
            latest_ms.text[latest_ms.size - 1] = c'-'
            latest_ms.ms = ms
        at = put_line(to, c'$', <int64_t>(latest_ms.size + seq_digits))
        memcpy(to + at, latest_ms.text, sizeof(latest_ms.text))  # a constant size is copied by three instructions
        at += latest_ms.size
        put_digits(to + at, seq, seq_digits)
        at += seq_digits
        to[at] = c'\r'
        to[at + 1] = c'\n'
        self.length += at + 2
        return 0

    cdef int array_header(self, int64_t n) except -1:
        cdef char *to = room(self, SMALL_REPLY)
        self.length += put_line(to, c'*', n)
        return 0

    cpdef size_t open_array(self, int64_t expected) except? 0:
        """Start an array of about `expected` elements; returns what `close_array` needs."""
        cdef size_t opened = self.length
        self.array_header(expected)
        return opened

    cpdef int close_array(self, size_t opened, int64_t n) except -1:
        """Set the length of the array started at `opened` to n; its elements have been written."""
        if self.is_cut:
            return 0
        cdef char header[SMALL_REPLY]
        cdef size_t size = put_line(header, c'*', n)
        cdef char *at = self.data + opened
        cdef const char *line_end = <const char *>memchr(at, c'\n', self.length - opened)
        cdef size_t guessed = <size_t>(line_end - at) + 1
        if size > guessed:
            self.grow(size - guessed)
            at = self.data + opened
        if size != guessed:
            memmove(at + size, at + guessed, self.length - opened - guessed)
            self.length += size
            self.length -= guessed
        memcpy(at, header, size)
        return 0

    # Replies

    cpdef int integer(self, int64_t value) except -1:
        cdef char *to = room(self, SMALL_REPLY)
        self.length += put_line(to, c':', value)
        return 0

    cpdef int bulk(self, bytes value) except -1:
        """A bulk string; None is the null bulk string."""
        if value is None:
            return self.null()
        return self.bulk_c(PyBytes_AS_STRING(value), <size_t>PyBytes_GET_SIZE(value))

    cpdef int null(self) except -1:
        return self.raw_c("_\r\n", 3) if self.resp == 3 else self.raw_c("$-1\r\n", 5)

    cpdef int null_array(self) except -1:
        return self.raw_c("_\r\n", 3) if self.resp == 3 else self.raw_c("*-1\r\n", 5)

    cpdef int array(self, int64_t n) except -1:
        return self.array_header(n)

    cpdef int map(self, int64_t n) except -1:
        """The header of a map of n pairs; in RESP2, of an array of 2n elements."""
        if self.resp == 2:
            return self.array_header(2 * n)
        cdef char *to = room(self, SMALL_REPLY)
        self.length += put_line(to, c'%', n)
        return 0

    cpdef int set(self, int64_t n) except -1:
        cdef char *to = room(self, SMALL_REPLY)
        self.length += put_line(to, c'~' if self.resp == 3 else c'*', n)
        return 0

    cpdef int push(self, int64_t n) except -1:
        cdef char *to = room(self, SMALL_REPLY)
        self.length += put_line(to, c'>' if self.resp == 3 else c'*', n)
        return 0

    cpdef int ok(self) except -1:
        return self.raw_c("+OK\r\n", 5)

    cpdef int simple(self, object text) except -1:
        """A simple string; CR and LF become spaces."""
        return write_line(self, c'+', text.encode("latin-1", "replace") if isinstance(text, str) else <bytes?>text)

    cpdef int error(self, str text) except -1:
        """An error reply; `text` is the line after the `-`, including the code. CR and LF become spaces.

        Characters are bytes (Latin-1), as produced by `errors.printable` from user input.
        """
        return write_line(self, c'-', text.encode("latin-1", "replace"))

    cpdef int double(self, double value) except -1:
        """A double; a bulk string in RESP2."""
        cdef size_t size
        cdef char *to
        if self.resp == 2:
            return self.bulk_double(value)
        to = room(self, SMALL_REPLY)
        to[0] = c','
        size = 1 + put_double(to + 1, value)
        to[size] = c'\r'
        to[size + 1] = c'\n'
        self.length += size + 2
        return 0

    cpdef int bulk_double(self, double value) except -1:
        """A bulk string of the text of a double."""
        cdef char text[DOUBLE_ROOM]
        return self.bulk_c(text, put_double(text, value))

    cpdef int verbatim(self, str fmt, bytes text) except -1:
        """A verbatim string with its three-letter format, `txt` or `mkd`; a bulk string in RESP2."""
        if self.resp == 2:
            return self.bulk(text)
        cdef bytes tag = fmt.encode("ascii")
        if len(tag) != 3:
            raise ValueError("a verbatim string's format has three letters")
        cdef size_t n = <size_t>PyBytes_GET_SIZE(text)
        cdef char *to = room(self, SMALL_REPLY)
        self.length += put_line(to, c'=', <int64_t>n + 4)
        self.raw(tag)
        self.raw_c(":", 1)
        self.raw(text)
        return self.raw_c("\r\n", 2)

    cpdef int boolean(self, bint value) except -1:
        """True or false; 1 or 0 in RESP2."""
        if self.resp == 2:
            return self.integer(value)
        return self.raw_c("#t\r\n", 4) if value else self.raw_c("#f\r\n", 4)

    cpdef int big_number(self, object value) except -1:
        """An integer of any size; a bulk string in RESP2."""
        cdef bytes text = b"%d" % value
        return write_line(self, c'(', text) if self.resp == 3 else self.bulk(text)

    cpdef int bulk_str(self, str text) except -1:
        """A bulk string of text, in UTF-8; bytes that Python decoded as surrogates (file names) are restored."""
        return self.bulk(text.encode("utf-8", "surrogateescape"))

    cpdef int bulk_array(self, list values) except -1:
        """An array of bulk strings; None among them is a null."""
        cdef bytes value
        self.array_header(len(values))
        for value in values:
            self.bulk(value)
        return 0

    cpdef int value(self, object value) except -1:
        """A complete reply from Python values, which may be nested.

        int       integer                 list, tuple      array
        bytes     bulk string             dict             map (flat array in RESP2)
        str       simple string           set, frozenset   set (array in RESP2)
        None      null                    float            double (bulk string in RESP2)
        bool      boolean (1 or 0 in RESP2)
        Raises TypeError for anything else; what was written before that stays, so take a `mark` first.
        """
        if value is None:
            return self.null()
        if isinstance(value, bytes):
            return self.bulk(value)
        if isinstance(value, bool):
            return self.boolean(value)
        if isinstance(value, int):
            return self.integer(value)
        if isinstance(value, str):
            return self.simple(value)
        if isinstance(value, float):
            return self.double(value)
        if isinstance(value, (list, tuple)):
            self.array_header(len(value))
        elif isinstance(value, dict):
            self.map(len(value))
            for key, held in value.items():
                self.value(key)
                self.value(held)
            return 0
        elif isinstance(value, (set, frozenset)):
            self.set(len(value))
        else:
            raise TypeError(f"no reply for a {type(value).__name__}")
        for held in value:
            self.value(held)
        return 0

    cpdef int raw(self, bytes data) except -1:
        """Bytes that are already encoded."""
        return self.raw_c(PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


cdef int write_line(ReplyWriter writer, char marker, bytes text) except -1:
    """Marker, text and line end. CR and LF in the text become spaces: they would end the reply early."""
    cdef Py_ssize_t n = PyBytes_GET_SIZE(text)
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef char *to = writer.grow(<size_t>n + 3)
    cdef Py_ssize_t i
    to[0] = marker
    to += 1
    for i in range(n):
        to[i] = c' ' if p[i] == c'\r' or p[i] == c'\n' else p[i]
    to[n] = c'\r'
    to[n + 1] = c'\n'
    writer.length += <size_t>n + 3
    return 0
