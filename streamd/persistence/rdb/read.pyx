# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reading RDB: a stream of bytes into databases, a RESTORE payload into a value.

What is read was written by Redis 5 to 8.10, or by streamd, or by somebody who means harm: every byte is looked at
before it is relied on, nothing is allocated by a length that the bytes at hand do not bear out, and the first thing
that is wrong ends it with a CorruptFileError. How values are laid out is drawn in rdb_write.

    reader = RdbReader(file, databases, options=LoadOptions(...), name="dump.rdb", size=...)
    for done in reader.steps():       # bytes read so far; between two steps there is time for clients
        ...
    reader.aux, reader.keys_loaded, reader.end_offset ...

    source ── readinto ──> window ──> lengths, strings ──> Stream.adopt_node: a node's bytes go from the window, by
                           256 KiB    the decoder if they are compressed, straight into the block that the stream keeps

The window slides along the source; it grows only when one string does not fit into it, and then no faster than bytes
come. The checksum follows when it slides. Pointers into it are dead after `need`.

What becomes of what streamd does not have: values of other types refuse the load (UnsupportedValueError) or, with
`skip_unsupported` and a layout that is known, are skipped and logged by name; an expired key is dropped whatever it
holds; functions, module data and cluster hints are always skipped. The databases may be half filled after an error: the
caller throws them away.

Who calls this: snapshot.load_file, the loading of an AOF's base, a replica that gets a full resynchronisation, RESTORE.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport (
    INT64_MAX, UINT32_MAX, UINT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t,
)
from streamd.heap cimport free, malloc, realloc
from libc.stdlib cimport qsort
from libc.string cimport memcpy, memmove

from streamd.engine.database cimport Database, Slot
from streamd.engine.delivery cimport distance_from_first
from streamd.engine.group cimport Consumer, Group, new_group
from streamd.engine.ids cimport StreamID, id_cmp, make_id
from streamd.engine.listpack cimport LP_SHORTEST_CONVERTED, lp_convert
from streamd.engine.pel cimport NO_OWNER, pel_insert, pel_insert_unowned
from streamd.engine.rax cimport load_be64
from streamd.engine.stream cimport Stream
from streamd.persistence.rdb.lzf cimport LZF_GROWTH, lzf_expand

from streamd.engine.idempotency import Idempotency, IdempotencyRegistry
from streamd.errors import CorruptFileError, UnsupportedValueError, one_line
from streamd.persistence.rdb.crc64 import crc64
from streamd.persistence.rdb.format import NEWEST_VERSION, STREAM_TYPES, TYPE_NAMES, UNKNOWN_LAYOUTS, LoadOptions

__all__ = ["PayloadError", "RdbReader", "restore_value"]

cdef enum:
    OP_HASH_TEMPLATE = 242
    OP_KEY_METADATA = 243
    OP_SLOT_INFO = 244
    OP_FUNCTION = 245
    OP_OLD_FUNCTION = 246
    OP_MODULE_AUX = 247
    OP_IDLE = 248
    OP_FREQUENCY = 249
    OP_AUX = 250
    OP_RESIZE = 251
    OP_EXPIRE_MS = 252
    OP_EXPIRE = 253
    OP_SELECT = 254
    OP_END = 255

    TYPE_STRING = 0
    TYPE_STREAM = 15           # Redis 5.0
    TYPE_STREAM_2 = 19         # Redis 7.0
    TYPE_STREAM_3 = 21         # Redis 7.2
    TYPE_STREAM_4 = 26         # Redis 8.6
    TYPE_STREAM_5 = 27         # Redis 8.8

    STRING_INT8 = 0
    STRING_INT16 = 1
    STRING_INT32 = 2
    STRING_LZF = 3

    FOOTER = 10                # bytes behind the value in a payload: version and checksum
    WINDOW = 1 << 18
    DEFAULT_BUDGET = 1 << 20
    LEAST_LISTPACK = 7
    PENDING_BETWEEN_STEPS = 8192
    MAX_IDMP_DURATION = 86400
    MAX_IDMP_MAXSIZE = 10000


cdef struct Pending:
    # A pending entry as it stands in the file.
    StreamID id
    int64_t delivery_ms
    uint64_t delivery_count
    int64_t owner              # number of the consumer in the group; -1: not known yet; NO_OWNER: nobody

cdef struct Unowned:
    # A pending entry that nobody owns.
    int64_t place              # in the order in which such entries are handed out again
    size_t at                  # in the array of pending entries


class PayloadError(Exception):
    """A payload whose version or checksum is wrong."""


cdef inline uint64_t load_le(const uint8_t *p, unsigned int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef unsigned int i
    for i in range(size):
        value |= <uint64_t>p[i] << (8 * i)
    return value


@cython.final
cdef class RdbReader:
    """Reads one RDB stream.

    source     an object with `readinto(buffer) -> int`, such as a file opened without buffering, or bytes
    databases  Database objects, by index, that get the keys; None: everything is looked at and nothing is kept
    options    LoadOptions
    name       of the file, for errors
    size       bytes that the source has at most, when that is known: a length beyond it is seen at once
    """

    # --- Where it is
    cdef object source                        # None: all bytes are there already
    cdef bytes fixed                          # the bytes then
    cdef uint8_t *window                      # owned
    cdef size_t room                          # bytes malloc'ed for it
    cdef const uint8_t *base                  # the first byte at hand
    cdef const uint8_t *at                    # the next byte to be read
    cdef const uint8_t *end                   # behind the last byte at hand
    cdef uint64_t base_offset                 # of `base` in the stream
    cdef readonly int64_t size                # of the stream, or more; -1: not known
    cdef const uint8_t *summed                # the checksum is of what comes before
    cdef uint64_t crc
    cdef bint sums                            # whether a checksum is to be computed
    cdef uint64_t pause_at                    # offset at which the next step ends
    # --- What is being read
    cdef object options
    cdef readonly str name
    cdef readonly list databases
    cdef Database db
    cdef int db_index
    cdef object value                         # read last
    cdef Pending *pending                     # owned; of the group being read
    cdef size_t pending_count
    cdef size_t pending_room
    cdef Unowned *unowned                     # owned; of the same group
    cdef size_t unowned_count
    cdef size_t unowned_room
    cdef bint is_strict                       # refuse what Redis 8.8 refuses of payloads, and loads from files
    cdef object registry
    # --- What was read
    cdef readonly int version                 # of the format
    cdef readonly dict aux                    # auxiliary fields: name -> value, both text
    cdef readonly uint64_t keys_loaded
    cdef readonly uint64_t keys_expired       # left out because their time had come
    cdef readonly uint64_t keys_skipped       # left out because of their type
    cdef readonly uint64_t keys_with_expiry   # all of them, the expired too
    cdef readonly dict types                  # type name -> keys of it
    cdef readonly int64_t end_offset          # where the RDB stream ended; -1: not yet
    cdef readonly object checksum             # "ok", "none" (not written, or not verified); None: not yet
    cdef readonly bytes key                   # the key being read, or read last

    def __cinit__(self):
        self.end_offset = -1
        self.pause_at = UINT64_MAX

    def __init__(self, source, databases=None, *, options=None, str name="", size=None):
        self.options = LoadOptions() if options is None else options
        self.databases = None if databases is None else list(databases)
        if self.databases is not None and not self.databases:
            raise ValueError("at least one database")
        self.name = name
        self.size = -1 if size is None else size
        self.aux = {}
        self.types = {}
        self.registry = self.options.registry
        if self.registry is None:
            self.registry = IdempotencyRegistry()
        if isinstance(source, bytes):
            self.fixed = source
            self.size = len(source)
            self.base = <const uint8_t *>PyBytes_AS_STRING(self.fixed)
            self.end = self.base + self.size
        else:
            self.source = source
            self.window = <uint8_t *>malloc(WINDOW)
            if self.window is NULL:
                raise MemoryError
            self.room = WINDOW
            self.base = self.end = self.window
        self.at = self.summed = self.base

    def __dealloc__(self):
        free(self.window)
        free(self.pending)
        free(self.unowned)

    @property
    def offset(self):
        """Bytes read so far."""
        return self.position()

    @property
    def rest(self):
        """What has been taken from the source and not been read: at the end, some of what stands behind it."""
        return PyBytes_FromStringAndSize(<const char *>self.at, self.end - self.at)

    # --- Bytes ----------------------------------------------------------------------------------------------------

    cdef inline uint64_t position(self) noexcept:
        return self.base_offset + <uint64_t>(self.at - self.base)

    cdef int corrupt(self, str expected, str found, int64_t offset=-1) except -1:
        raise CorruptFileError(self.name, self.position() if offset < 0 else offset, expected, found)

    cdef inline int need(self, uint64_t count) except -1:
        """See that `count` bytes are at hand from `at` on. Pointers into the window are dead then."""
        if <uint64_t>(self.end - self.at) >= count:
            return 0
        return self.fill(count)

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
        memmove(self.window, self.at, kept)
        if self.room > WINDOW and count <= WINDOW:
            moved = <uint8_t *>realloc(self.window, WINDOW)
            if moved is not NULL:
                self.window = moved
                self.room = WINDOW
        self.settle(kept)
        while kept < count:
            if kept == self.room:
                room = self.room * 2
                moved = <uint8_t *>realloc(self.window, room)
                if moved is NULL:
                    raise MemoryError
                self.window = moved
                self.room = room
                self.settle(kept)
            got = self.source.readinto(
                PyMemoryView_FromMemory(<char *>self.window + kept, <Py_ssize_t>(self.room - kept), PyBUF_WRITE))
            if not got:
                self.corrupt(f"{count} more bytes", f"{kept}: it is cut off")
            kept += <size_t>got
            self.settle(kept)
        return 0

    cdef void settle(self, size_t kept) noexcept:
        """The window has `kept` bytes, none of them read or summed up."""
        self.base = self.at = self.summed = self.window
        self.end = self.window + kept

    cdef int sum_up(self) except -1:
        """Let the checksum be that of all that has been read."""
        if self.sums and self.at > self.summed:
            self.crc = crc64(
                PyMemoryView_FromMemory(<char *>self.summed, self.at - self.summed, PyBUF_READ), self.crc)
        self.summed = self.at
        return 0

    cdef inline uint8_t get_byte(self) except? 255:
        if self.at == self.end:
            self.fill(1)
        self.at += 1
        return (self.at - 1)[0]

    cdef inline uint64_t get_le(self, unsigned int size) except? 0:
        self.need(size)
        self.at += size
        return load_le(self.at - size, size)

    cdef bint get_length(self, uint64_t *out) except -1:
        """Read a length, or, and then True, what kind of string follows."""
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

    cdef uint64_t get_count(self) except? 0:
        """A length that stands for a number of things."""
        cdef uint64_t value
        if self.get_length(&value):
            self.corrupt("a length", "an encoded string", <int64_t>self.position() - 1)
        return value

    cdef uint64_t get_small(self, uint64_t most, str what) except? 0:
        """A number with a limit."""
        cdef int64_t offset = <int64_t>self.position()
        cdef uint64_t value = self.get_count()
        if value > most:
            self.corrupt(f"{what} of at most {most}", str(value), offset)
        return value

    cdef StreamID get_id(self) except *:
        cdef StreamID id
        id.ms = self.get_count()
        id.seq = self.get_count()
        return id

    cdef StreamID get_raw_id(self) except *:
        self.need(16)
        self.at += 16
        return make_id(load_be64(self.at - 16), load_be64(self.at - 8))

    # --- Strings ----------------------------------------------------------------------------------------------------

    cdef int get_lzf_head(self, uint64_t *packed, uint64_t *unpacked) except -1:
        """Read the two sizes of a compressed string, whose bytes are at hand then. Both can be relied on."""
        cdef int64_t offset = <int64_t>self.position()
        packed[0] = self.get_count()
        unpacked[0] = self.get_count()
        self.need(packed[0])
        if unpacked[0] == 0 or unpacked[0] > packed[0] * LZF_GROWTH:
            self.corrupt(f"what {packed[0]} compressed bytes may hold", f"a size of {unpacked[0]}", offset)
        return 0

    cdef bytes get_bytes(self):
        """Read a string, whichever way it is written."""
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
        """Read a string into a malloc'ed block, which is the caller's. It has LEAST_LISTPACK bytes or more."""
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
        """Pass over so many bytes."""
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

    cdef int skip_strings(self, uint64_t count) except -1:
        while count:
            self.skip_string()
            count -= 1
        return 0

    # --- Streams ----------------------------------------------------------------------------------------------------

    def _stream(self, int type):
        """Read a stream into self.value; a generator that stops wherever a step may end."""
        cdef Stream stream
        cdef uint64_t left, length, added, consumers
        cdef StreamID last, deleted = make_id(0, 0)
        cdef Group group
        cdef Consumer consumer
        cdef size_t at
        cdef int64_t offset
        options = self.options
        stream = Stream(options.node_max_bytes, options.node_max_entries, options.idmp_duration, options.idmp_maxsize)
        left = self.get_count()
        while left:
            length = stream.length
            offset = <int64_t>self.position()
            self.load_node(stream)
            if stream.length == length and type >= TYPE_STREAM_5 and self.is_strict:
                self.corrupt("a node with live entries", "one without", offset)
            left -= 1
            if self.position() >= self.pause_at:
                yield
        offset = <int64_t>self.position()
        length = self.get_count()
        if length != stream.length:
            self.corrupt(f"the number of live entries, {stream.length}", str(length), offset)
        offset = <int64_t>self.position()
        last = self.get_id()
        if id_cmp(last, stream.last_id) < 0:
            self.corrupt(f"an ID not below the last entry's, {show(stream.last_id)}", show(last), offset)
        added = length
        if type >= TYPE_STREAM_2:
            self.get_id()      # the first entry's: the entries tell
            offset = <int64_t>self.position()
            deleted = self.get_id()
            if id_cmp(deleted, last) > 0:
                self.corrupt(f"a deleted ID not above the last one, {show(last)}", show(deleted), offset)
            offset = <int64_t>self.position()
            added = self.get_small(INT64_MAX, "a number of entries added")
            if added < length:
                self.corrupt(f"at least {length} entries added", str(added), offset)
        stream.last_id = last
        stream.max_deleted_id = deleted
        stream.entries_added = added
        left = self.get_count()
        while left:
            group = self.get_group(stream, type)
            self.pending_count = self.unowned_count = 0
            length = self.get_count()
            while length:
                self.get_pending()
                length -= 1
                if self.position() >= self.pause_at:
                    yield
            consumers = self.get_count()
            while consumers:
                consumer = self.get_consumer(group, type)
                length = self.get_count()
                at = 0
                while length:
                    at = self.get_owned(NO_OWNER if consumer is None else consumer.number, at)
                    length -= 1
                    if self.position() >= self.pause_at:
                        yield
                consumers -= 1
                if self.position() >= self.pause_at:
                    yield
            if type >= TYPE_STREAM_5:
                length = self.get_count()
                while length:
                    self.get_unowned()
                    length -= 1
                    if self.position() >= self.pause_at:
                        yield
            elif self.unowned_count:
                qsort(self.unowned, self.unowned_count, sizeof(Unowned), compare_places)
            length = 0
            while length < self.pending_count:
                length = self.keep_pending(group, length)
                if length < self.pending_count:
                    yield
            length = 0
            while length < self.unowned_count:
                length = self.keep_unowned(group, length)
                if length < self.unowned_count:
                    yield
            left -= 1
        if type >= TYPE_STREAM_4:
            self.get_idempotency(stream)
        self.value = stream

    cdef int load_node(self, Stream stream) except -1:
        cdef int64_t offset = <int64_t>self.position()
        cdef StreamID master
        cdef uint64_t size
        cdef uint8_t *block
        cdef uint8_t *wide
        cdef size_t wide_size
        cdef bytes text
        cdef const char *reason = NULL
        cdef size_t where = 0
        cdef int done
        self.need(17)
        if self.at[0] == 16:
            self.at += 1
            master = self.get_raw_id()
        else:
            text = self.get_bytes()
            if PyBytes_GET_SIZE(text) != 16:
                self.corrupt("a node's ID, 16 bytes", f"{PyBytes_GET_SIZE(text)} bytes", offset)
            master = make_id(
                load_be64(<const uint8_t *>PyBytes_AS_STRING(text)),
                load_be64(<const uint8_t *>PyBytes_AS_STRING(text) + 8))
        block = self.get_block(&size)
        done = stream.adopt_node(master, block, size, &reason, &where)
        if done == 0 and size >= LP_SHORTEST_CONVERTED:
            done = lp_convert(block, size, False, &wide, &wide_size)
            if done == 1:
                free(block)
                block = wide
                size = wide_size
                done = stream.adopt_node(master, block, size, &reason, &where)
        if done == 1:
            return 0
        free(block)
        if done < 0:
            raise MemoryError
        self.corrupt(
            "a sound node of a stream",
            f"{(<bytes>reason).decode()}, at byte {where} of {size} of node {show(master)}", offset)

    cdef Group get_group(self, Stream stream, int type):
        """Read name and counters of a group, which is the stream's then."""
        cdef int64_t offset = <int64_t>self.position()
        cdef bytes name = self.get_bytes()
        cdef StreamID last
        cdef uint64_t read
        cdef bint is_beyond
        cdef Group group
        if name in stream.groups:
            self.corrupt("another group", f"'{one_line(name)}' a second time", offset)
        last = self.get_id()
        offset = <int64_t>self.position()
        if type >= TYPE_STREAM_2:
            read = self.get_count()
            is_beyond = self.is_strict and type >= TYPE_STREAM_5 and read > stream.entries_added
            if (read > INT64_MAX or is_beyond) and read != UINT64_MAX:
                self.corrupt("how many entries a group has read", str(read), offset)
        else:
            read = <uint64_t>distance_from_first(stream, last)
        group = new_group(name, last, <int64_t>read)
        stream.groups[name] = group
        return group

    cdef int get_pending(self) except -1:
        """Read one pending entry of a group into the array."""
        cdef int64_t offset = <int64_t>self.position()
        cdef Pending *pending
        cdef size_t room
        if self.pending_count == self.pending_room:
            room = 64 if self.pending_room == 0 else self.pending_room * 2
            pending = <Pending *>realloc(self.pending, room * sizeof(Pending))
            if pending is NULL:
                raise MemoryError
            self.pending = pending
            self.pending_room = room
        pending = self.pending + self.pending_count
        pending.id = self.get_raw_id()
        if self.pending_count and id_cmp(pending.id, (pending - 1).id) <= 0:
            self.corrupt(f"a pending entry above {show((pending - 1).id)}", show(pending.id), offset)
        pending.delivery_ms = self.get_time("a delivery time", 0)
        pending.delivery_count = min(self.get_count(), <uint64_t>INT64_MAX)     # Redis 8.6 counts beyond
        pending.owner = -1
        self.pending_count += 1
        return 0

    cdef int64_t get_time(self, str what, int64_t least) except? -2:
        cdef int64_t value = <int64_t>self.get_le(8)
        if value < least:
            self.corrupt(what, str(value), <int64_t>self.position() - 8)
        return value

    cdef Consumer get_consumer(self, Group group, int type):
        """Read name and times of a consumer, who is the group's then; None for the one who stands for nobody."""
        cdef int64_t offset = <int64_t>self.position()
        cdef bytes name = self.get_bytes()
        cdef Consumer consumer
        cdef int64_t seen_ms, active_ms
        if name in group.consumers:
            self.corrupt("another consumer", f"'{one_line(name)}' a second time", offset)
        seen_ms = active_ms = self.get_time("the time when a consumer was seen", 0)
        if type >= TYPE_STREAM_3:
            active_ms = self.get_time("the time when a consumer was active", -1)
        if seen_ms == 0 and active_ms <= 0 and type < TYPE_STREAM_5 and not name.strip(b"\0"):
            return None        # see rdb_write
        consumer = group.add_consumer(name, seen_ms)
        consumer.active_ms = active_ms
        return consumer

    cdef size_t get_owned(self, uint32_t owner, size_t first) except? 0:
        """Read the ID of a pending entry of a consumer, at `first` in the array or behind it; the place behind it."""
        cdef int64_t offset = <int64_t>self.position()
        cdef StreamID id = self.get_raw_id()
        cdef size_t at = self.find_pending(id, first)
        if at == self.pending_count:
            self.corrupt("an entry pending in the group, in order of the IDs", show(id), offset)
        if self.pending[at].owner >= 0:
            self.corrupt("an entry of no other consumer", show(id), offset)
        self.pending[at].owner = owner
        if owner == NO_OWNER:
            self.note_unowned(self.pending[at].delivery_ms, at)
        return at + 1

    cdef int get_unowned(self) except -1:
        """Read the ID of a pending entry that nobody owns."""
        cdef int64_t offset = <int64_t>self.position()
        cdef StreamID id = self.get_raw_id()
        cdef size_t at = self.find_pending(id, 0)
        if at == self.pending_count:
            self.corrupt("an entry pending in the group", show(id), offset)
        if self.pending[at].owner >= 0:
            self.corrupt("an entry that no consumer has", show(id), offset)
        self.pending[at].owner = NO_OWNER
        return self.note_unowned(<int64_t>self.unowned_count, at)

    cdef int note_unowned(self, int64_t place, size_t at) except -1:
        cdef Unowned *unowned
        cdef size_t room
        if self.unowned_count == self.unowned_room:
            room = 64 if self.unowned_room == 0 else self.unowned_room * 2
            unowned = <Unowned *>realloc(self.unowned, room * sizeof(Unowned))
            if unowned is NULL:
                raise MemoryError
            self.unowned = unowned
            self.unowned_room = room
        self.unowned[self.unowned_count].place = place
        self.unowned[self.unowned_count].at = at
        self.unowned_count += 1
        return 0

    cdef size_t find_pending(self, StreamID id, size_t first) noexcept nogil:
        """The place of a pending entry at `first` or behind it; pending_count when it is not there."""
        cdef size_t lo = first, hi = self.pending_count, mid, step = 1
        # What a consumer has comes in order, and mostly close together.
        while lo + step < hi and id_cmp(self.pending[lo + step].id, id) <= 0:
            lo += step
            step *= 2
        if lo + step < hi:
            hi = lo + step
        while lo < hi:
            mid = (lo + hi) // 2
            if id_cmp(self.pending[mid].id, id) < 0:
                lo = mid + 1
            else:
                hi = mid
        if lo < self.pending_count and id_cmp(self.pending[lo].id, id) == 0:
            return lo
        return self.pending_count

    cdef size_t keep_pending(self, Group group, size_t first) except? 0:
        """Give the group the next of its pending entries; where to go on."""
        cdef size_t stop = first + PENDING_BETWEEN_STEPS
        cdef Pending *pending
        if stop > self.pending_count:
            stop = self.pending_count
        while first < stop:
            pending = self.pending + first
            if pending.owner < 0:
                self.corrupt(f"a consumer that has the pending entry {show(pending.id)}", "none")
            if pending.owner != NO_OWNER:
                pel_insert(
                    &group.pel, pending.id, <uint32_t>pending.owner, pending.delivery_ms, pending.delivery_count)
            first += 1
        return first

    cdef size_t keep_unowned(self, Group group, size_t first) except? 0:
        """Give the group the next of the entries that nobody owns; where to go on."""
        cdef size_t stop = min(first + PENDING_BETWEEN_STEPS, self.unowned_count)
        cdef Pending *pending
        while first < stop:
            pending = self.pending + self.unowned[first].at
            pel_insert_unowned(&group.pel, pending.id, pending.delivery_count)
            first += 1
        return first

    cdef int get_idempotency(self, Stream stream) except -1:
        cdef int64_t offset = <int64_t>self.position()
        cdef uint64_t producers, iids
        cdef bytes pid, iid
        cdef StreamID id
        stream.idmp_duration = <uint32_t>self.get_small(MAX_IDMP_DURATION, "an idempotency duration")
        stream.idmp_maxsize = <uint32_t>self.get_small(MAX_IDMP_MAXSIZE, "a number of IIDs")
        if stream.idmp_duration == 0 or stream.idmp_maxsize == 0:
            self.corrupt("idempotency settings", "zero", offset)
        producers = self.get_count()
        if producers:
            stream.idempotency = Idempotency(self.registry, stream.idmp_duration, stream.idmp_maxsize)
        seen = set()
        while producers:
            offset = <int64_t>self.position()
            pid = self.get_bytes()
            if pid in seen:
                self.corrupt("another producer", f"'{one_line(pid)}' a second time", offset)
            seen.add(pid)
            offset = <int64_t>self.position()
            iids = self.get_small(stream.idmp_maxsize, "a number of IIDs")
            if iids == 0:
                self.corrupt("a producer with IIDs", "one without", offset)
            while iids:
                offset = <int64_t>self.position()
                iid = self.get_bytes()
                id = self.get_id()
                if stream.idempotency.find(pid, iid) is not None:
                    self.corrupt("another IID", f"'{one_line(iid)}' a second time", offset)
                stream.idempotency.record(pid, iid, (id.ms, id.seq))
                iids -= 1
            producers -= 1
        stream.iids_added = self.get_small(INT64_MAX, "a number of IIDs added")
        stream.iids_duplicates = self.get_small(INT64_MAX, "a number of duplicates")
        return 0

    # --- Values that are skipped --------------------------------------------------------------------------------------

    cdef int skip_value(self, int type) except -1:
        """Pass over a value of another type than strings and streams."""
        cdef uint64_t left
        if type in (1, 2, 14):                       # list, set, quicklist of ziplists
            self.skip_strings(self.get_count())
        elif type == 4:                              # hash
            left = self.get_count()
            while left:
                self.skip_strings(2)
                left -= 1
        elif type == 3:                              # sorted set, scores as text
            left = self.get_count()
            while left:
                self.skip_string()
                self.skip_old_double()
                left -= 1
        elif type == 5:                              # sorted set, scores as doubles
            left = self.get_count()
            while left:
                self.skip_string()
                self.skip(8)
                left -= 1
        elif type in (9, 10, 11, 12, 13, 16, 17, 20, 23):      # one string that has everything
            self.skip_string()
        elif type == 18:                             # quicklist of listpacks and plain nodes
            left = self.get_count()
            while left:
                self.get_count()
                self.skip_string()
                left -= 1
        elif type in (22, 24):                       # hash whose fields expire
            if type == 24:
                self.skip(8)
            left = self.get_count()
            while left:
                self.get_count()
                self.skip_strings(2)
                left -= 1
        elif type == 25:                             # the same as a listpack
            self.skip(8)
            self.skip_string()
        elif type == 7:
            self.get_count()
            self.skip_module_data()
        else:
            raise AssertionError(type)
        return 0

    cdef int skip_old_double(self) except -1:
        """Pass over a double written as text, or as one byte for what is not a number."""
        cdef uint8_t size = self.get_byte()
        return 0 if size >= 253 else self.skip(size)

    cdef int skip_module_data(self) except -1:
        """Pass over what a module has written, up to its end mark."""
        cdef int64_t offset
        cdef uint64_t kind
        while True:
            offset = <int64_t>self.position()
            kind = self.get_count()
            if kind == 0:
                return 0
            if kind <= 2:
                self.get_count()
            elif kind == 3:
                self.skip(4)
            elif kind == 4:
                self.skip(8)
            elif kind == 5:
                self.skip_string()
            else:
                self.corrupt("module data", f"an unknown kind of it, {kind}", offset)

    # --- The parts of a file ------------------------------------------------------------------------------------------

    def load(self):
        """Read all of it, at one go."""
        for _ in self.steps():
            pass

    def steps(self, uint64_t budget=DEFAULT_BUDGET):
        """Read all of it: an iterator over the number of bytes read so far, one after each `budget` of them or so.

        Raises CorruptFileError, below it UnsupportedValueError, MemoryError, and what the source raises.
        """
        cdef int opcode, type
        cdef int64_t expire_at_ms = -1
        cdef int64_t idle_s = -1
        cdef int uses = -1
        cdef int64_t offset
        cdef uint64_t number
        cdef bint expired
        self.sums = self.options.checksum
        self.pause_at = self.position() + budget
        self.read_head()
        self.select(0)
        while True:
            offset = <int64_t>self.position()
            opcode = self.get_byte()
            if opcode == OP_EXPIRE_MS:
                expire_at_ms = as_expiry(<int64_t>self.get_le(8))
            elif opcode == OP_EXPIRE:
                expire_at_ms = as_expiry(<int64_t><int32_t>self.get_le(4) * 1000)
            elif opcode == OP_IDLE:
                idle_s = <int64_t>self.get_small(INT64_MAX // 1000, "an idle time")
            elif opcode == OP_FREQUENCY:
                uses = self.get_byte()
            elif opcode == OP_SELECT:
                number = self.get_count()
                if self.databases is not None and number >= <uint64_t>len(self.databases):
                    self.corrupt(f"a database below {len(self.databases)}", str(number), offset)
                self.select(<int>(number & 0x7FFFFFFF))
            elif opcode == OP_RESIZE:
                self.get_count()
                self.get_count()
            elif opcode == OP_AUX:
                name = self.get_bytes()
                self.aux[name.decode("latin-1")] = self.get_bytes().decode("latin-1")
            elif opcode == OP_FUNCTION:
                self.skip_string()
                self.options.log("A library of functions is left out: streamd has no scripts")
            elif opcode == OP_OLD_FUNCTION:
                self.corrupt("something that a release of Redis writes", "functions of a pre-release of 7.0", offset)
            elif opcode == OP_HASH_TEMPLATE:
                self.corrupt("streams and strings", "templates of hashes (Redis 8.10)", offset)
            elif opcode == OP_MODULE_AUX:
                number = self.get_count()
                self.skip_module_data()
                self.options.log(f"Data of module {module_name(number)} is left out")
            elif opcode == OP_SLOT_INFO:
                self.get_count()
                self.get_count()
                self.get_count()
            elif opcode == OP_KEY_METADATA:
                number = self.get_count()
                while number:
                    self.skip(4)
                    self.skip_module_data()
                    number -= 1
            elif opcode == OP_END:
                break
            else:
                type = opcode
                self.key = self.get_bytes()
                expired = expire_at_ms != -1 and expire_at_ms < self.options.now_ms
                if type in STREAM_TYPES:
                    for _ in self._stream(type):
                        yield self.position()
                        self.pause_at = self.position() + budget
                elif type == TYPE_STRING:
                    self.value = self.get_bytes()
                else:
                    self.value = None
                    self.meet_unsupported(type, offset, expired)
                self.keep_key(type, expire_at_ms, idle_s, uses, expired, offset)
                expire_at_ms = idle_s = uses = -1
                if self.position() >= self.pause_at:
                    yield self.position()
                    self.pause_at = self.position() + budget
        self.read_end()
        yield self.position()

    cdef int read_head(self) except -1:
        cdef bytes head
        self.need(9)
        head = self.at[:9]
        if head[:5] != b"REDIS":
            self.corrupt("the magic REDIS", repr(head[:5]))
        if not head[5:].isdigit():
            self.corrupt("a version of four digits", repr(head[5:]), 5)
        self.version = int(head[5:])
        if not 1 <= self.version <= NEWEST_VERSION:
            self.corrupt(f"an RDB format version of 1 to {NEWEST_VERSION}", str(self.version), 5)
        self.at += 9
        return 0

    cdef int read_end(self) except -1:
        """Compare the checksum."""
        cdef uint64_t found
        cdef uint64_t expected
        self.sum_up()
        self.checksum = "none"
        if self.version >= 5:
            expected = self.crc
            found = self.get_le(8)
            self.summed = self.at
            if self.sums and found:
                if found != expected:
                    self.corrupt(f"the checksum {expected:016x}", f"{found:016x}", <int64_t>self.position() - 8)
                self.checksum = "ok"
        self.end_offset = <int64_t>self.position()
        return 0

    cdef int select(self, int index) except -1:
        self.db_index = index
        self.db = None if self.databases is None else <Database?>self.databases[index]
        return 0

    cdef int meet_unsupported(self, int type, int64_t offset, bint expired) except -1:
        """Pass over a value of a type that streamd does not have, or refuse it."""
        name = TYPE_NAMES.get(type)
        if name is None:
            self.corrupt("a type or an opcode", str(type), offset)
        dropped = expired and self.options.drop_expired
        if type in UNKNOWN_LAYOUTS or not (self.options.skip_unsupported or dropped or self.databases is None):
            raise UnsupportedValueError(self.name, offset, self.db_index, self.key, name)
        self.skip_value(type)
        if self.databases is not None and not dropped:
            self.keys_skipped += 1
            self.options.log(f"Key '{one_line(self.key)}' of database {self.db_index} is left out: it is a {name}")
        return 0

    cdef int keep_key(
        self, int type, int64_t expire_at_ms, int64_t idle_s, int uses, bint expired, int64_t offset
    ) except -1:
        """Put the value read into its database, unless it has expired."""
        cdef Slot slot
        value = self.value
        self.value = None
        name = TYPE_NAMES[type]
        self.types[name] = self.types.get(name, 0) + 1
        self.keys_with_expiry += expire_at_ms != -1
        if expired and (self.options.drop_expired or self.db is None):
            self.keys_expired += 1
            if self.db is not None:
                return 0
        if value is None:
            return 0
        self.keys_loaded += 1
        if self.db is None:
            return 0
        slot = Slot.__new__(Slot)
        slot.key = self.key
        slot.value = value
        try:
            self.db.insert(slot)
        except KeyError:
            self.corrupt("another key", f"'{one_line(self.key)}' a second time", offset)
        slot.accessed_ms = self.options.now_ms - (idle_s * 1000 if idle_s > 0 else 0)
        if uses >= 0:
            slot.uses = <unsigned char>uses
        if expire_at_ms != -1:
            self.db.set_deadline(slot, expire_at_ms)
        self.db.signal_ready(self.key)
        return 0

    # --- Payloads -----------------------------------------------------------------------------------------------------

    cdef object read_value(self):
        """The value that the bytes are, all of them."""
        cdef int type = self.get_byte()
        if type == TYPE_STRING:
            return self.get_bytes()
        self.is_strict = True
        if type not in STREAM_TYPES:
            self.corrupt("a stream or a string", TYPE_NAMES.get(type, f"type {type}"), 0)
        for _ in self._stream(type):
            pass
        return self.value


cdef inline int64_t as_expiry(int64_t at_ms) noexcept:
    """An expiry as it may stand in a database: -1 is none, and what is below has long passed."""
    return 0 if at_ms < -1 else at_ms


cdef int compare_places(const void *left, const void *right) noexcept nogil:
    cdef const Unowned *a = <const Unowned *>left
    cdef const Unowned *b = <const Unowned *>right
    if a.place != b.place:
        return -1 if a.place < b.place else 1
    return -1 if a.at < b.at else 1


cdef str show(StreamID id):
    return f"{id.ms}-{id.seq}"


cdef str module_name(uint64_t number):
    """The name in a module's number: nine characters of six bits, and ten bits of version below."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return "".join([letters[(number >> shift) & 63] for shift in range(58, 9, -6)])


def restore_value(bytes payload not None, options=None):
    """The value of a payload of DUMP: a new Stream, or bytes. O(bytes).

    options  LoadOptions: settings and registry of new streams
    Raises PayloadError when version or checksum are wrong, CorruptFileError when anything else is. A checksum of zero
    is taken for none, as Redis 8.6 does.
    """
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    cdef const uint8_t *footer = <const uint8_t *>PyBytes_AS_STRING(payload) + size - FOOTER
    cdef uint64_t crc
    cdef RdbReader reader
    if size < FOOTER:
        raise PayloadError("shorter than its footer")
    if load_le(footer, 2) > <uint64_t>NEWEST_VERSION:
        raise PayloadError(f"format version {load_le(footer, 2)}")
    crc = load_le(footer + 2, 8)
    if crc and crc != <uint64_t>crc64(memoryview(payload)[:size - 8]):
        raise PayloadError("wrong checksum")
    reader = RdbReader(payload[:size - FOOTER], options=options)
    return reader.read_value()
