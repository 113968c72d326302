# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""EntryDecoder: bytes of XRANGE replies in, Arrow record batches out, with no Python object per entry or value.

    *2\\r\\n                                                          a reply: the number of entries
      *2\\r\\n  $3\\r\\n5-1\\r\\n  *2\\r\\n  $1\\r\\na\\r\\n  $2\\r\\n20\\r\\n    an entry: ID, then fields and values
      *2\\r\\n ...

The contract: receive into `space()`, and report with `advance(n)` how many bytes came, until it returns True: the reply
is complete. `take()` returns the rows so far as a batch, between two replies or in the middle of one. Entries are
decoded as they become complete, however the bytes are cut; state is kept only for the entry that is not complete:

    input         pos                 pos + cursor          size                     room
      | entries done |  parts known     |  not looked at yet  |  what space() gives  |
      +--------------+------------------+---------------------+----------------------+
                       spans: where the entry's strings are, counted from pos

so time is linear in the bytes, and memory is bounded by the longest entry, a receive buffer, and the rows not taken.
rows.pyx decides how an entry becomes a row.

Always: pos <= pos + cursor <= size <= room.

Trust: the bytes come from a server that the user named, but are checked as if they did not. Lengths are compared with
what is there; counts need no check, since nothing is reserved by them.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, int64_t, uint64_t
from libc.string cimport memchr, memmove
from streamd.heap cimport free, realloc
from streamd.arrow.casts cimport is_digit, read_unsigned
from streamd.arrow.columns cimport BAD_BYTES, DONE, MORE, NO_MEMORY
from streamd.arrow.memory cimport Bytes, add_bytes
from streamd.arrow.rows cimport Entry, RowBuilder, Span

from streamd.errors import ProtocolError
from streamd.client.client_errors import ServerError

__all__ = ["EntryDecoder"]

cdef enum:
    RECEIVE_BYTES = 256 * 1024      # least room that space() returns
    MAX_ERROR_LINE = 64 * 1024


# --- Headers of replies ----------------------------------------------------------------------------------------------

cdef inline int read_header(
    const char *p, const char *end, char marker, int64_t *out, const char **after
) noexcept nogil:
    """Read `<marker><number>\\r\\n`; DONE with a pointer behind it, MORE, or BAD_BYTES."""
    cdef const char *q = p + 1
    cdef int64_t value = 0
    cdef bint is_negative = False
    if p >= end:
        return MORE
    if p[0] != marker:
        return BAD_BYTES
    if q < end and q[0] == c'-':
        is_negative = True
        q += 1
    while q < end and is_digit(q[0]):
        value = value * 10 + (q[0] - c'0')
        q += 1
        if q - p > 20:
            return BAD_BYTES
    if end - q < 2:
        return MORE if q == end or q[0] == c'\r' else BAD_BYTES
    if q[0] != c'\r' or q[1] != c'\n' or q - p < 2 + is_negative:
        return BAD_BYTES
    out[0] = -value if is_negative else value
    after[0] = q + 2
    return DONE


# --- The decoder -----------------------------------------------------------------------------------------------------

@cython.final
cdef class EntryDecoder:

    cdef RowBuilder builder         # None: entries are only counted ...
    cdef bint has_rows               # ... which this says without the GIL
    # The buffer, as drawn above; owned.
    cdef char *input
    cdef size_t pos
    cdef size_t size
    cdef size_t room
    # The entry that is not complete.
    cdef size_t cursor              # how far it is known, from pos
    cdef int stage                  # 0: before it, 1: before its ID, 2: before its count, 3: among its strings
    cdef size_t wanted              # strings it has, fields and values together
    cdef Span id                    # from pos, as are the next
    cdef Span *spans                # owned: its strings so far
    cdef Entry entry                # the same, when it is complete
    cdef size_t span_count
    cdef size_t span_room
    # The reply: entries it has, -1 before it is known; those that have come.
    cdef int64_t reply_length
    cdef readonly int64_t reply_entries
    cdef readonly size_t row_bytes  # of replies that the rows not taken come from
    # Totals.
    cdef readonly uint64_t total_entries
    cdef readonly uint64_t total_bytes     # of their entries, as replies on the wire
    cdef uint64_t first_ms
    cdef uint64_t first_seq
    cdef uint64_t last_ms
    cdef uint64_t last_seq
    cdef uint64_t every
    cdef Bytes noted                # marks: ms, seq and bytes before, three uint64 each

    def __cinit__(self, table, bytes stream not None, *, every=0):
        self.builder = None if table is None else RowBuilder(table, stream)
        self.has_rows = table is not None
        self.every = every
        self.reply_length = -1

    def __dealloc__(self):
        free(self.input)
        free(self.spans)
        free(self.noted.data)

    # --- Receiving --------------------------------------------------------------------------------------------------

    def space(self):
        cdef char *moved
        cdef size_t needed
        if self.pos > 0:
            # What is left is less than an entry; it moves to the front.
            memmove(self.input, self.input + self.pos, self.size - self.pos)
            self.size -= self.pos
            self.pos = 0
        if self.room - self.size < RECEIVE_BYTES:
            needed = self.size * 2 + RECEIVE_BYTES
            moved = <char *>realloc(self.input, needed)
            if moved is NULL:
                raise MemoryError
            self.input = moved
            self.room = needed
        return PyMemoryView_FromMemory(self.input + self.size, <Py_ssize_t>(self.room - self.size), PyBUF_WRITE)

    def advance(self, Py_ssize_t received):
        cdef int outcome
        if received < 0 or <size_t>received > self.room - self.size:
            raise ValueError("more bytes than there was room for")
        self.size += received
        if self.reply_length < 0 or self.reply_entries == self.reply_length:
            outcome = self.start_reply()
            if outcome != DONE:
                return self.judge(outcome)
        with nogil:
            outcome = self.read_entries()
        return self.judge(outcome)

    def reset(self):
        self.pos = self.size = self.cursor = 0
        self.stage = 0
        self.span_count = 0
        self.reply_length = -1
        self.reply_entries = 0

    cdef judge(self, int outcome):
        if outcome >= 0:
            return outcome == DONE
        if outcome == BAD_BYTES:
            raise ProtocolError("the server's answer is not a reply to XRANGE")
        if self.builder is None or outcome == NO_MEMORY:
            raise MemoryError
        raise self.builder.failure(outcome, &self.entry)

    cdef int start_reply(self) except -100:
        """Read the header of a reply. DONE, MORE or BAD_BYTES; raises ServerError when it is an error."""
        cdef const char *p = self.input + self.pos
        cdef const char *end = self.input + self.size
        cdef const char *line_end
        cdef int64_t count = 0
        cdef int outcome
        if p == end:
            return MORE
        if p[0] == c'-':
            line_end = <const char *>memchr(p, c'\n', end - p)
            if line_end is NULL:
                return MORE if end - p < MAX_ERROR_LINE else BAD_BYTES
            text = p[1:line_end - p].rstrip(b"\r").decode(errors="replace")
            self.pos += line_end + 1 - p
            self.reply_length = -1
            raise ServerError(text)
        outcome = read_header(p, end, c'*', &count, &p)
        if outcome != DONE:
            return outcome
        self.pos = p - self.input
        self.reply_length = count if count > 0 else 0
        self.reply_entries = 0
        return DONE

    cdef int read_entries(self) noexcept nogil:
        """Decode all entries that are complete. DONE when the reply is."""
        cdef int outcome
        while self.reply_entries < self.reply_length:
            outcome = self.skim()
            if outcome != DONE:
                return outcome
            outcome = self.accept()
            if outcome != DONE:
                return outcome
            self.pos += self.cursor
            self.cursor = 0
            self.stage = 0
            self.span_count = 0
            self.reply_entries += 1
        return DONE

    cdef int skim(self) noexcept nogil:
        """Find the strings of the entry at pos, continuing where it stopped. DONE, MORE, BAD_BYTES or NO_MEMORY."""
        cdef const char *start = self.input + self.pos
        cdef const char *end = self.input + self.size
        cdef const char *p = start + self.cursor
        cdef const char *q = p
        cdef int64_t n = 0
        cdef int outcome
        if self.stage == 0:
            outcome = read_header(p, end, c'*', &n, &p)
            if outcome != DONE or n != 2:
                return BAD_BYTES if outcome == DONE else outcome
            self.stage = 1
            self.cursor = p - start
        if self.stage == 1:
            outcome = read_string(p, end, &n, &q)
            if outcome != DONE:
                return outcome
            self.id.at = q - start
            self.id.length = n
            p = q + n + 2
            self.stage = 2
            self.cursor = p - start
        if self.stage == 2:
            outcome = read_header(p, end, c'*', &n, &p)
            if outcome != DONE:
                return outcome
            if n > 0 and n % 2 != 0:
                return BAD_BYTES
            self.wanted = n if n > 0 else 0
            self.stage = 3
            self.cursor = p - start
        while self.span_count < self.wanted:
            outcome = read_string(p, end, &n, &q)
            if outcome != DONE:
                return outcome
            if self.span_count == self.span_room and not self.grow_spans():
                return NO_MEMORY
            self.spans[self.span_count].at = q - start
            self.spans[self.span_count].length = n
            self.span_count += 1
            p = q + n + 2
            self.cursor = p - start
        return DONE

    cdef bint grow_spans(self) noexcept nogil:
        cdef size_t room = self.span_room * 2 if self.span_room else 64
        cdef Span *moved = <Span *>realloc(self.spans, room * sizeof(Span))
        if moved is NULL:
            return False
        self.spans = moved
        self.span_room = room
        return True

    # --- Entries ----------------------------------------------------------------------------------------------------

    cdef int accept(self) noexcept nogil:
        """Count the entry that is complete, and add its row."""
        cdef const char *start = self.input + self.pos
        cdef Entry *entry = &self.entry
        cdef int outcome
        if not self.read_id(&entry.ms, &entry.seq):
            return BAD_BYTES
        if self.every and self.total_entries % self.every == 0 and not self.note(entry.ms, entry.seq):
            return NO_MEMORY
        if self.has_rows:
            entry.id = start + self.id.at
            entry.id_length = self.id.length
            entry.names = entry.values = start
            entry.spans = self.spans
            entry.pairs = self.span_count // 2
            entry.size = self.cursor
            outcome = self.builder.add(entry)
            if outcome != DONE:
                return outcome
            self.row_bytes += self.cursor
        if self.total_entries == 0:
            self.first_ms = entry.ms
            self.first_seq = entry.seq
        self.last_ms = entry.ms
        self.last_seq = entry.seq
        self.total_entries += 1
        self.total_bytes += self.cursor
        return DONE

    cdef int read_id(self, uint64_t *ms, uint64_t *seq) noexcept nogil:
        cdef const char *p = self.input + self.pos + self.id.at
        cdef const char *dash = <const char *>memchr(p, c'-', self.id.length)
        if dash is NULL:
            return False
        return read_unsigned(p, dash - p, ms) and read_unsigned(dash + 1, self.id.length - (dash + 1 - p), seq)

    cdef int note(self, uint64_t ms, uint64_t seq) noexcept nogil:
        return (
            add_bytes(&self.noted, <const char *>&ms, 8)
            and add_bytes(&self.noted, <const char *>&seq, 8)
            and add_bytes(&self.noted, <const char *>&self.total_bytes, 8)
        )

    # --- Results ---------------------------------------------------------------------------------------------------

    def take(self):
        self.row_bytes = 0
        return self.builder.take()

    @property
    def rows(self):
        return self.builder.rows if self.has_rows else 0

    @property
    def first_id(self):
        return (int(self.first_ms) << 64 | int(self.first_seq)) if self.total_entries else -1

    @property
    def last_id(self):
        return (int(self.last_ms) << 64 | int(self.last_seq)) if self.total_entries else -1

    @property
    def marks(self):
        cdef uint64_t *noted = <uint64_t *>self.noted.data
        cdef size_t i
        return [int(noted[3 * i]) << 64 | int(noted[3 * i + 1]) for i in range(self.noted.length // 24)]

    @property
    def mark_bytes(self):
        cdef uint64_t *noted = <uint64_t *>self.noted.data
        cdef size_t i
        return [int(noted[3 * i + 2]) for i in range(self.noted.length // 24)]

    def check_invariants(self):
        """Assert what must hold between calls."""
        assert self.pos + self.cursor <= self.size <= self.room
        assert self.span_count <= self.span_room
        if self.has_rows:
            self.builder.check_invariants()


cdef inline int read_string(const char *p, const char *end, int64_t *length, const char **text) noexcept nogil:
    """Read `$<n>\\r\\n<n bytes>\\r\\n`: DONE with where the bytes are, MORE, or BAD_BYTES."""
    cdef int outcome = read_header(p, end, c'$', length, text)
    if outcome != DONE:
        return outcome
    if length[0] < 0 or length[0] > INT32_MAX:
        return BAD_BYTES
    return DONE if end - text[0] >= length[0] + 2 else MORE
