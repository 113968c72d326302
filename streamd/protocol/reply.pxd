# cython: language_level=3
"""Replies, written as RESP2 or RESP3 bytes into one growing C buffer. See reply.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint64_t
from posix.uio cimport iovec

from streamd.shared_bytes cimport SharedBytes

# Maximum size of a header, integer or entry ID: marker, sign, 41 characters, two line ends, and a margin.
cdef enum:
    SMALL_REPLY = 64


cdef struct Link:
    SharedBytes *bytes          # held
    size_t at                   # of which these are sent
    size_t before               # bytes of the writer between the link before this one and this one


cdef struct Links:
    # Shared bytes between those of the writer, in their order.
    Link *items                 # owned
    size_t first                # those before it have been sent
    size_t count                # from `first` on; never 0
    size_t room
    size_t before               # the sum of their `before`: bytes of the writer up to the last one
    size_t size                 # bytes of the links, not yet sent


@cython.final
@cython.no_gc
cdef class ReplyWriter:
    cdef char *data               # first byte not yet taken; inside `block`; NULL while empty (idle: no buffer)
    cdef readonly size_t length   # bytes written and not yet taken
    cdef size_t capacity          # bytes of the block from `data` on
    cdef char *block              # the malloc'ed block; owned, or NULL
    cdef public int resp          # 2 or 3
    cdef readonly bint is_cut     # output is discarded: the unsent bytes exceeded `limit`
    cdef bint is_long             # its last output did not fit into a block of BLOCK_SIZE
    cdef size_t limit             # bytes; SIZE_MAX: no limit; 0 once the writer is cut
    cdef object on_limit          # called when the limit is exceeded; may be None
    cdef Links *links             # owned; NULL: no shared bytes

    # For compiled callers. `raw_c` and all methods below may move `data`.
    cdef char *grow(self, size_t n) except NULL           # room for n more bytes; returns data + length
    cdef int raw_c(self, const char *p, size_t n) except -1
    cdef int raw_parts(self, const char *head, size_t head_size, const char *tail, size_t tail_size) except -1
    cdef int bulk_c(self, const char *p, size_t n) except -1
    cpdef int bulk_int64(self, int64_t value) except -1             # a bulk string of the decimal digits
    cpdef int bulk_id(self, uint64_t ms, uint64_t seq) except -1    # a bulk string `ms-seq`
    cdef int array_header(self, int64_t n) except -1
    # An aggregate whose size is known only at the end: open, write the elements, close with their number. `expected`
    # is an estimate of that number: if it has the right number of digits, the elements need not be moved.
    cpdef size_t open_array(self, int64_t expected) except? 0
    cpdef int close_array(self, size_t opened, int64_t n) except -1
    # The limit of unsent bytes.
    cpdef int set_limit(self, size_t limit, object on_limit) except -1
    cpdef int cut(self) except -1               # drop everything, including later writes
    cdef bint pass_limit(self) except -1        # the limit is exceeded; returns True
    cdef char *spare(self, size_t n) except NULL
    # Shared bytes go out between what has been written so far and what is written next.
    cdef int link(self, SharedBytes *bytes) except -1
    # Bytes for a direct send(2): data[0:length] without links, else `parts`; then `consume` the number of bytes sent.
    cpdef int consume(self, size_t n) except -1
    cdef int parts(self, iovec *to, int most, size_t most_bytes) noexcept
    cdef int consume_linked(self, size_t n) except -1
    cdef void drop_links(self) noexcept
    cdef size_t borrowed(self) noexcept
    cdef void give_back(self) noexcept          # drop what was written, not the links
    cdef size_t memory(self) noexcept           # bytes malloc'ed
    cdef void release(self) noexcept            # drop everything, return the buffer

    # For Python and compiled callers
    cpdef int integer(self, int64_t value) except -1
    cpdef int bulk(self, bytes value) except -1
    cpdef int null(self) except -1              # $-1 or _
    cpdef int null_array(self) except -1        # *-1 or _
    cpdef int array(self, int64_t n) except -1
    cpdef int map(self, int64_t n) except -1    # n pairs; a flat array of 2n in RESP2
    cpdef int set(self, int64_t n) except -1    # an array in RESP2
    cpdef int push(self, int64_t n) except -1   # an array in RESP2
    cpdef int ok(self) except -1
    cpdef int simple(self, object text) except -1           # str or bytes
    cpdef int error(self, str text) except -1               # the line after the `-`, code included
    cpdef int double(self, double value) except -1          # a bulk string in RESP2
    cpdef int bulk_double(self, double value) except -1
    cpdef int verbatim(self, str fmt, bytes text) except -1
    cpdef int boolean(self, bint value) except -1
    cpdef int big_number(self, object value) except -1
    cpdef int bulk_str(self, str text) except -1
    cpdef int bulk_array(self, list values) except -1
    cpdef int value(self, object value) except -1
    cpdef int raw(self, bytes data) except -1   # bytes that are already encoded
    cpdef size_t mark(self)
    cpdef void truncate(self, size_t mark)      # drop everything written since mark
    cpdef bytes take(self)                      # returns all bytes; the writer is empty again


cdef inline size_t unsent_bytes(ReplyWriter writer) noexcept:
    """Bytes not yet taken, shared ones included."""
    return writer.length if writer.links is NULL else writer.length + writer.links.size


cdef bytes format_double(double value)      # see doubles.pyx

cdef long long idle_block_bytes() noexcept
cpdef int give_back_idle_blocks() except -1
