# cython: language_level=3, boundscheck=False, wraparound=False
"""AofBuffer: encodes commands for the append-only file, and holds them until they are written.

    append(3, [b"XADD", b"s", b"1-1", b"f", b"v"])   ->   *2 $6 SELECT $1 3     when the last command was for
                                                                               another database
                                                          *5 $4 XADD $1 s ...   each word followed by CR LF

This runs once for every change, so it makes one pass over the arguments, into memory that is kept from turn to turn.
What is appended is an effect, that is, already in the form to be replayed (an ID instead of `*`); nothing is
interpreted.

Effects that belong together are enclosed in MULTI and EXEC, with any SELECT inside: when a group is dropped because its
end is missing, no part of it is left behind. Behaviour: as seen in Redis's files.

The buffer exposes its bytes as a memoryview; while one is alive, nothing can be appended (BufferError).
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.list cimport PyList_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memmove

from streamd.core.effects cimport Effect, EffectSink
from streamd.protocol.request_bytes cimport buffer_put, buffer_put_command

__all__ = ["AofBuffer"]

cdef enum:
    KEPT_CAPACITY = 1024 * 1024     # an empty buffer larger than this frees its memory


# --- The buffer -----------------------------------------------------------------------------------------------------

@cython.final
cdef class AofBuffer(EffectSink):
    """Commands that have not been written yet.

    is_open         False: there is no file to write to; what is appended is dropped
    offset          advances by one for each command, counting MULTI and EXEC but not SELECT: Redis's replication
                    offset while there is no backlog
    has_timestamps  put `#TS:<Unix seconds>` before the first command of each second (aof-timestamp-enabled)
    """

    def __cinit__(self):
        self.selected = -1
        self.stamp_s = -1

    def __dealloc__(self):
        free(self.held.data)

    def __len__(self):
        """Bytes that have not been written."""
        return self.held.size

    def __repr__(self):
        return f"<AofBuffer, {'open' if self.is_open else 'closed'}, {self.held.size} bytes>"

    cpdef int append(self, int db_index, list args, long long now_ms) except -1:
        """Append one command.

        db_index  the database it is for; -1: none (MULTI and EXEC)
        args      bytes objects, not changed and not kept
        now_ms    Unix time
        O(bytes). Raises MemoryError, TypeError, in which case nothing has been added.
        """
        cdef Py_ssize_t mark = self.held.size
        if not self.is_open:
            return 0
        self.check_unexported()
        try:
            if self.has_timestamps:
                self.stamp(now_ms)
            self.put(db_index, args)
            self.offset += 1
        except BaseException:
            self.held.size = mark
            self.selected = -1      # the SELECT may have been rolled back too
            raise
        return 0

    cpdef int take_effects(self, list effects, long long now_ms) except -1:
        """Append the effects of one unit: two or more are enclosed in MULTI and EXEC.

        Otherwise like `append`; either all of them are added or none.
        """
        cdef Py_ssize_t mark = self.held.size
        cdef bint is_group = len(effects) > 1
        cdef Effect effect
        if not self.is_open or not effects:
            return 0
        self.check_unexported()
        try:
            if self.has_timestamps:
                self.stamp(now_ms)
            if is_group:
                buffer_put(&self.held, b"*1\r\n$5\r\nMULTI\r\n", 15)
            for effect in effects:
                self.put(effect.db_index, effect.args)
            if is_group:
                buffer_put(&self.held, b"*1\r\n$4\r\nEXEC\r\n", 14)
            self.offset += PyList_GET_SIZE(effects) + 2 * is_group
        except BaseException:
            self.held.size = mark
            self.selected = -1
            raise
        return 0

    cdef int stamp(self, long long now_ms) except -1:
        """Note the time, unless that has been done in this second."""
        cdef long long now_s = now_ms // 1000
        cdef bytes line
        if now_s > self.stamp_s:
            line = b"#TS:%d\r\n" % now_s
            buffer_put(&self.held, line, len(line))
            self.stamp_s = now_s
        return 0

    cdef int put(self, int db_index, list args) except -1:
        """Append a command, preceded by SELECT when it is for another database than the last one."""
        if db_index >= 0 and db_index != self.selected:
            buffer_put_command(&self.held, [b"SELECT", b"%d" % db_index])
            self.selected = db_index
        return buffer_put_command(&self.held, args)

    cdef int check_unexported(self) except -1:
        if self.exports:
            raise BufferError("the bytes of the append-only file are being written")
        return 0

    def annotate(self, bytes line not None):
        """Append a line that is no command: what no command can express, see reader.STATE_PREFIX."""
        if self.is_open:
            self.check_unexported()
            buffer_put(&self.held, line, len(line))

    # --- For the writer ----------------------------------------------------------------------------------------------

    def begin_file(self):
        """A new file starts: the next command selects its database again."""
        self.selected = -1

    def view(self):
        """The unwritten bytes; the view must be released before anything is appended."""
        return memoryview(self)

    def drop(self, Py_ssize_t n):
        """Forget the first n bytes: they have been written."""
        if not 0 <= n <= self.held.size:
            raise ValueError("there are not so many bytes")
        self.check_unexported()
        self.held.size -= n
        if self.held.size:
            memmove(self.held.data, self.held.data + n, <size_t>self.held.size)
        elif self.held.capacity > KEPT_CAPACITY:
            free(self.held.data)
            self.held.data = NULL
            self.held.capacity = 0

    def clear(self):
        """Forget everything."""
        self.drop(self.held.size)
        self.selected = -1

    def __getbuffer__(self, Py_buffer *view, int flags):
        cdef char *data = self.held.data
        if data is NULL:
            data = &self.nothing
        PyBuffer_FillInfo(view, self, data, self.held.size, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1

    @property
    def allocated(self):
        """Bytes of memory held (mem_aof_buffer)."""
        return self.held.capacity

    def check_invariants(self):
        """Assert the invariants of the fields."""
        assert 0 <= self.held.size <= self.held.capacity
        assert (self.held.data is NULL) == (self.held.capacity == 0)
        assert self.exports >= 0
