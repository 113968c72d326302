# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A window that slides along an RDB stream: its bytes, and the lengths and strings that they encode.

    source ── readinto ──> window, 256 KiB ──> get_length, get_bytes, get_block ...

It grows only when one string does not fit into it, and then no faster than bytes arrive. The checksum is updated when
it slides. Pointers into it are invalid after `need`. No allocation relies on a length that the bytes at hand do not
confirm; what cannot be read raises CorruptFileError. Lengths and strings are drawn in format.py.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport UINT32_MAX, UINT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memmove

from streamd.engine.rax cimport load_be64
from streamd.heap cimport free, malloc, realloc
from streamd.persistence.rdb.codes cimport STRING_INT8, STRING_INT16, STRING_INT32, STRING_LZF
from streamd.persistence.rdb.lzf cimport LZF_GROWTH, lzf_expand

from streamd.errors import CorruptFileError
from streamd.persistence.rdb.crc64 import crc64

__all__ = []

cdef enum:
    WINDOW = 1 << 18


@cython.final
cdef class Window:
    """
    source  an object with `readinto(buffer) -> int`, such as a file opened without buffering, or bytes
    name    of the file, for errors
    size    upper bound of the source's bytes, if known: a length beyond it is detected at once
    """

    def __cinit__(self):
        self.pause_at = UINT64_MAX

    def __init__(self, source, str name, size):
        self.name = name
        self.size = -1 if size is None else size
        if isinstance(source, bytes):
            self.show(source, len(source))
        else:
            self.source = source
            self.memory = <uint8_t *>malloc(WINDOW)
            if self.memory is NULL:
                raise MemoryError
            self.room = WINDOW
            self.base = self.end = self.memory
            self.at = self.summed = self.base

    cdef void show(self, bytes source, Py_ssize_t size) noexcept:
        """Read the first bytes of an object, from the beginning. For a window on bytes."""
        self.fixed = source
        self.size = size
        self.base = self.at = self.summed = <const uint8_t *>PyBytes_AS_STRING(source)
        self.end = self.base + size

    def __dealloc__(self):
        free(self.memory)

    # --- Bytes ----------------------------------------------------------------------------------------------------

    cdef int corrupt(self, str expected, str found, int64_t offset=-1) except -1:
        raise CorruptFileError(self.name, self.position() if offset < 0 else offset, expected, found)

    cdef int fill(self, uint64_t count) except -1:
        cdef size_t kept = self.end - self.at
        cdef size_t room
        cdef uint8_t *moved
        cdef uint64_t have
        cdef object got
        if self.source is None or (self.size >= 0 and count > <uint64_t>self.size - self.position()):
            have = kept if self.size < 0 else <uint64_t>self.size - self.position()
            self.corrupt(f"{count} more bytes", f"{have}: it is cut off")
        self.sum_up()
        self.base_offset = self.position()
        memmove(self.memory, self.at, kept)
        if self.room > WINDOW and count <= WINDOW:
            moved = <uint8_t *>realloc(self.memory, WINDOW)
            if moved is not NULL:
                self.memory = moved
                self.room = WINDOW
        self.settle(kept)
        while kept < count:
            if kept == self.room:
                room = self.room * 2
                moved = <uint8_t *>realloc(self.memory, room)
                if moved is NULL:
                    raise MemoryError
                self.memory = moved
                self.room = room
                self.settle(kept)
            got = self.source.readinto(
                PyMemoryView_FromMemory(<char *>self.memory + kept, <Py_ssize_t>(self.room - kept), PyBUF_WRITE))
            if not got:
                self.corrupt(f"{count} more bytes", f"{kept}: it is cut off")
            kept += <size_t>got
            self.settle(kept)
        return 0

    cdef void settle(self, size_t kept) noexcept:
        """The window holds `kept` bytes, none of them read or added to the checksum."""
        self.base = self.at = self.summed = self.memory
        self.end = self.memory + kept

    cdef int sum_up(self) except -1:
        """Update the checksum to cover all that has been read."""
        if self.sums and self.at > self.summed:
            self.crc = crc64(
                PyMemoryView_FromMemory(<char *>self.summed, self.at - self.summed, PyBUF_READ), self.crc)
        self.summed = self.at
        return 0

    cdef bint get_length(self, uint64_t *out) except -1:
        """Read a length, or the kind of string that follows, in which case return True."""
        cdef uint8_t first = self.get_byte()
        if first < 0x40:
            out[0] = first
            return False
        if first < 0x80:
            out[0] = <uint64_t>(first & 0x3F) << 8 | self.get_byte()
            return False
        if first == 0x80:
            self.need(4)
            out[0] = <uint64_t>self.at[0] << 24 | <uint64_t>self.at[1] << 16 | <uint64_t>self.at[2] << 8 | self.at[3]
            self.at += 4
            return False
        if first == 0x81:
            self.need(8)
            out[0] = load_be64(self.at)
            self.at += 8
            return False
        if first >= 0xC0:
            out[0] = first & 0x3F
            return True
        self.corrupt("a length", f"byte {first:#x}", <int64_t>self.position() - 1)

    cpdef uint64_t get_count(self) except? 0:
        """Read a length that is a count."""
        cdef uint64_t value
        if self.get_length(&value):
            self.corrupt("a length", "an encoded string", <int64_t>self.position() - 1)
        return value

    cdef uint64_t get_small(self, uint64_t most, str what) except? 0:
        """Read a number with an upper limit."""
        cdef int64_t offset = <int64_t>self.position()
        cdef uint64_t value = self.get_count()
        if value > most:
            self.corrupt(f"{what} of at most {most}", str(value), offset)
        return value

    # --- Strings ----------------------------------------------------------------------------------------------------

    cdef int get_lzf_head(self, uint64_t *packed, uint64_t *unpacked) except -1:
        """Read the two sizes of a compressed string, whose bytes are then at hand. Both can be relied on."""
        cdef int64_t offset = <int64_t>self.position()
        packed[0] = self.get_count()
        unpacked[0] = self.get_count()
        self.need(packed[0])
        if unpacked[0] == 0 or unpacked[0] > packed[0] * LZF_GROWTH:
            self.corrupt(f"what {packed[0]} compressed bytes may hold", f"a size of {unpacked[0]}", offset)
        return 0

    cpdef bytes get_bytes(self):
        """Read a string in any encoding."""
        cdef uint64_t size, unpacked
        cdef int64_t offset = <int64_t>self.position()
        cdef bytes text
        if not self.get_length(&size):
            self.need(size)
            self.at += size
            return PyBytes_FromStringAndSize(<const char *>self.at - size, <Py_ssize_t>size)
        if size == STRING_INT8:
            return b"%d" % <int8_t>self.get_le(1)
        if size == STRING_INT16:
            return b"%d" % <int16_t>self.get_le(2)
        if size == STRING_INT32:
            return b"%d" % <int32_t>self.get_le(4)
        if size != STRING_LZF:
            self.corrupt("a string", f"an unknown encoding, {size}", offset)
        self.get_lzf_head(&size, &unpacked)
        text = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>unpacked)
        if not lzf_expand(self.at, size, <uint8_t *>PyBytes_AS_STRING(text), unpacked):
            self.corrupt(f"compressed data of {unpacked} bytes", "other data", offset)
        self.at += size
        return text

    cdef uint8_t *get_block(self, uint64_t *size) except NULL:
        """Read a string into a malloc'ed block, which the caller owns. It has at least LEAST_LISTPACK bytes."""
        cdef uint64_t packed
        cdef int64_t offset = <int64_t>self.position()
        cdef uint8_t *block
        cdef bint is_packed = self.get_length(size)
        if not is_packed:
            packed = size[0]
            self.need(packed)
        elif size[0] == STRING_LZF:
            self.get_lzf_head(&packed, size)
        else:
            self.corrupt("a listpack", "an integer, or an unknown encoding", offset)
        if size[0] < LEAST_LISTPACK or size[0] > UINT32_MAX:
            self.corrupt("a listpack", f"{size[0]} bytes", offset)
        block = <uint8_t *>malloc(size[0])
        if block is NULL:
            raise MemoryError
        if not is_packed:
            memcpy(block, self.at, packed)
        elif not lzf_expand(self.at, packed, block, size[0]):
            free(block)
            self.corrupt(f"compressed data of {size[0]} bytes", "other data", offset)
        self.at += packed
        return block

    cdef int skip(self, uint64_t count) except -1:
        """Skip `count` bytes."""
        cdef uint64_t piece
        if self.size >= 0 and count > <uint64_t>self.size - self.position():
            self.need(count)
        while count:
            piece = count if count < WINDOW else WINDOW
            self.need(piece)
            self.at += piece
            count -= piece
        return 0

    cdef int skip_string(self) except -1:
        cdef uint64_t size
        cdef int64_t offset = <int64_t>self.position()
        if self.get_length(&size):
            if size <= STRING_INT32:
                size = <uint64_t>1 << size
            elif size == STRING_LZF:
                size = self.get_count()
                self.get_count()
            else:
                self.corrupt("a string", f"an unknown encoding, {size}", offset)
        return self.skip(size)
